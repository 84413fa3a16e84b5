#pragma once
// RowSampler's tree and its draws on a CUDA device.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emit/scan.h"
#include "multilinear/device_memory.h"
#include "multilinear/sampling/device_kernels.h"

namespace clebsch::sampling {

/// A tree in the memory of a device.
struct DeviceTreeView {
  TreeShape shape;
  const double* u = nullptr;
  const double* nodes = nullptr;
  const double* root = nullptr;
  const double* scale = nullptr;  ///< null: columns are not scaled
};

/// RowSampler (row_sampler.h) without a Y for a dense matrix u (rows, columns) of the current device. Calls are
/// asynchronous on the stream but where they say so.
class DeviceTree {
 public:
  /// Waits for the device once. At most 1016 columns; leaves of at most 256 rows (up to 46 columns) or 1032.
  DeviceTree(double* u, int64_t rows, int columns, int64_t leaf_rows, Allocate allocate, cuda::Stream stream,
             std::string name);
  /// Waits. After an error there is no tree: what reads it throws until another rebuild() has succeeded.
  void rebuild(cuda::Stream stream);
  /// Waits.
  void set(int64_t row, int column, double value, cuda::Stream stream);
  DeviceTreeView view() const;
  std::vector<double> column_norms() const;
  std::vector<double> unit_gram() const;
  int64_t bytes() const;
  int64_t rows() const { return shape_.rows; }
  const double* u() const { return u_; }

 private:
  void require_built() const;
  void build_scaled(cuda::Stream stream);
  void build(cuda::Stream stream);
  void read_root(cuda::Stream stream);
  void find_scale(cuda::Stream stream);

  double* u_;
  std::string name_;
  TreeShape shape_;
  int64_t packed_;
  Allocate allocate_;
  std::shared_ptr<const DeviceKernels> kernels_;
  Memory nodes_, root_, device_scale_;
  std::vector<double> scale_, host_root_, unit_gram_;
  bool built_ = false;
};

/// Draws rows for many samples; its scratch memory is kept from call to call.
class DeviceDescent {
 public:
  explicit DeviceDescent(Allocate allocate);
  /// row (count): for every x (count, columns) and way.t a row of the tree. leaf_x: x where columns are not scaled.
  void run(const DeviceTreeView& tree, const double* x, const double* leaf_x, Way* ways, int count, long long* row,
           cuda::Stream stream);
  /// Levels for which samples are grouped: trees of few columns have small nodes, which the cache holds.
  static int grouped_levels(const TreeShape& shape, int count);

 private:
  Allocate allocate_;
  std::shared_ptr<const DeviceKernels> kernels_;
  std::shared_ptr<const cuda::Scan> scan_;
  Memory scratch_;
  int room_ = 0;
};

/// Copies to the host and waits.
void copy_back(void* to, const void* from, std::size_t bytes, cuda::Stream stream);

}  // namespace clebsch::sampling
