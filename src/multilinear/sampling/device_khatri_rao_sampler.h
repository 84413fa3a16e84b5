#pragma once
// KhatriRaoSampler on a CUDA device.
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/runtime/memory.h"
#include "multilinear/sampling/device_tree.h"
#include "multilinear/sampling/mixture.h"

namespace clebsch::sampling {

/// A dense matrix (rows, columns) of doubles, row after row, in a device's memory; the caller's.
struct DeviceFactor {
  double* u = nullptr;
  int64_t rows = 0;
  int columns = 0;
};

/// The same law and, but for branches that rounding decides, the same rows as KhatriRaoSampler's for a seed
/// (khatri_rao_sampler.h has the meaning of every argument). All pointers are of the device that was current at
/// construction and must be at every call; calls are asynchronous on the stream, except that the first draw after a
/// change of factors waits for nothing but its own upload. Memory is kept and written again from call to call: a call
/// on another stream than the last has to come after it (torch_kept_memory.h).
class DeviceKhatriRaoSampler {
 public:
  DeviceKhatriRaoSampler(const std::vector<DeviceFactor>& factors, int64_t leaf_rows, const Allocate& allocate,
                         cuda::Stream stream);
  int factors() const { return static_cast<int>(trees_.size()); }
  int columns() const { return columns_; }
  const DeviceTree& tree(int factor) const { return *trees_[static_cast<size_t>(factor)]; }
  /// At most 2^31 - 1 samples.
  int draw(int64_t count, int exclude, uint64_t seed, int64_t* indices, double* rows, double* weights,
           cuda::Stream stream);
  /// Indices are trusted.
  int scores(const int64_t* indices, int64_t count, int exclude, double* scores, cuda::Stream stream);
  /// An error leaves the sampler as it was; so the tree that there is outlasts the building of the other.
  void set_factor(int factor, const DeviceFactor& u, cuda::Stream stream);
  void set(int factor, int64_t row, int column, double value, cuda::Stream stream);
  int64_t bytes() const;

 private:
  struct Plan;
  const Plan& plan(int exclude, cuda::Stream stream);
  void write_inverse_norms(const DeviceTree& tree, const Memory& to) const;

  int columns_ = 0;
  int64_t leaf_rows_ = 0;
  Allocate allocate_;
  std::shared_ptr<const DeviceKernels> kernels_;
  DeviceDescent descent_;
  std::vector<std::unique_ptr<DeviceTree>> trees_;
  std::vector<Memory> inverse_norms_;
  std::shared_ptr<const Plan> plan_;
  int planned_exclude_ = -2;
};

}  // namespace clebsch::sampling
