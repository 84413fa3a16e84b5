#include "cuda/nodes/group_rows.h"

#include <algorithm>

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

std::shared_ptr<const GroupRows> GroupRows::make() {
  return one_a_device<GroupRows>([] { return new GroupRows(); });
}

GroupRows::GroupRows() : kernel_(load_fixed("group_rows", {"group_rows"}).front()) {}

void GroupRows::run(const GroupRowsArguments& arguments, Stream stream) const {
  // Every block counts all rows, 4 bytes each, from the L2 cache, and places its own.
  const int64_t blocks = std::clamp<int64_t>((int64_t{arguments.nodes} + 1023) / 1024, 1, 128);
  kernel_.launch(blocks, kGroupThreads, stream, arguments);
}

}  // namespace clebsch::cuda
