#pragma once
// Kernels that look at the indices of a graph on a device: what the host's checks do for a graph in its own memory.
#include <cstdint>
#include <limits>
#include <memory>

#include "cuda/kernels/index_check.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Kernels for the current device, asynchronous on the stream. Pointers are the device's. Each call looks at one array
/// and lowers *first, which must hold kNoFault before, to the smallest place at fault.
class IndexCheck {
 public:
  static constexpr int64_t kNoFault = std::numeric_limits<int64_t>::max();

  static std::shared_ptr<const IndexCheck> make();
  /// offsets (rows + 1): begin with 0, do not decrease, end at `capacity` at most.
  void offsets(const int32_t* offsets, int64_t rows, int64_t capacity, int64_t* first, Stream stream) const;
  /// values (count): in [0, bound).
  void range(const int32_t* values, int64_t count, int64_t bound, int64_t* first, Stream stream) const;
  /// receivers[e] = row for the edges e of every row; row_ptr (rows + 1) must have passed offsets().
  void receivers(const int32_t* row_ptr, int64_t rows, const int32_t* receivers, int64_t* first, Stream stream) const;

 private:
  IndexCheck();
  KernelOf<IndexCheckArguments> offsets_, range_, receivers_;
};

}  // namespace clebsch::cuda
