#pragma once
// Rows grouped by type, for kernels that read a type's weights once for several rows.
#include <cstdint>
#include <memory>

#include "cuda/kernels/group_rows.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Groups of `rows` rows that hold `nodes` rows whatever their types, those that are not computed included.
constexpr int64_t group_capacity(int64_t nodes, int64_t types, int rows) { return nodes / rows + types + 1; }

/// The kernel group_rows (kernels/group_rows.cu) for the current device; calls are asynchronous on the stream.
class GroupRows {
 public:
  static std::shared_ptr<const GroupRows> make();
  /// At most kMaxGroupTypes types.
  void run(const GroupRowsArguments& arguments, Stream stream) const;

 private:
  GroupRows();
  KernelOf<GroupRowsArguments> kernel_;
};

}  // namespace clebsch::cuda
