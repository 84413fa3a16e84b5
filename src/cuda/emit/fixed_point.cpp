#include "cuda/emit/fixed_point.h"

#include <algorithm>

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

std::shared_ptr<const FixedPoint> FixedPoint::make() {
  return one_a_device<FixedPoint>([] { return new FixedPoint(); });
}

FixedPoint::FixedPoint() {
  const std::vector<Kernel> kernels = load_fixed("fixed_point", {"largest_number", "quanta_to_numbers"});
  largest_ = kernels[0];
  numbers_ = kernels[1];
}

int64_t FixedPoint::workspace(int64_t nodes, int64_t width) {
  // The sums, a mark a node, the bits of the largest number.
  return nodes * width * static_cast<int64_t>(sizeof(int64_t)) + (nodes + 1) * static_cast<int64_t>(sizeof(int32_t));
}

void FixedPoint::place(void* workspace, FixedPointArguments& arguments) {
  auto* const sums = static_cast<long long*>(workspace);
  const int64_t count = int64_t{arguments.nodes} * arguments.width;
  arguments.sums = sums;
  int* const bad = reinterpret_cast<int*>(sums + count);
  arguments.bad = bad;
  arguments.largest = reinterpret_cast<unsigned*>(bad + arguments.nodes);
}

void FixedPoint::begin(const FixedPointArguments& arguments, Stream stream) const {
  void* const workspace = const_cast<long long*>(arguments.sums);
  zero_async(workspace, static_cast<size_t>(FixedPoint::workspace(arguments.nodes, arguments.width)), stream);
  // Some eight packs of four numbers a thread, and no more blocks than a large device runs at a time.
  const int64_t count = int64_t{arguments.rows} * arguments.row;
  const int64_t blocks = std::clamp<int64_t>(count / (32 * kFixedPointThreads), 1, 2048);
  largest_.launch(blocks, kFixedPointThreads, stream, arguments);
}

void FixedPoint::end(const FixedPointArguments& arguments, Stream stream) const {
  numbers_.launch(arguments.nodes, kFixedPointThreads, stream, arguments);
}

}  // namespace clebsch::cuda
