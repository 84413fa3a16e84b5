#pragma once
// Products of matrices by cuBLAS, opened at run time: a build of Clebsch needs none, and a process has at most torch's.
#include <cstddef>
#include <cstdint>

#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Number types of matrices: cudaDataType.
enum class BlasNumber { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 14 };

/// How products of 32-bit matrices are summed; those of 64 bits in 64, those of 16 bits in 32, whatever this says.
enum class BlasSums {
  kIeee,  ///< in 32 bits throughout
  kTf32,  ///< with operands rounded to TF32
};

/// A batch of matrices in rows, i.e. with columns adjacent.
struct BlasMatrix {
  const void* data = nullptr;
  int64_t row = 0;          ///< numbers from a row to the next
  int64_t batch = 0;        ///< numbers from a matrix to the next; 0: the same for all
  bool transposed = false;  ///< what is in memory is the transpose of what is multiplied
};

/// Which of cuBLAS's kernels multiplies, by its tiles, the parts of the result that a block computes at a time: the
/// first of those that it proposes, best first by its own estimate. Counts for operands of 16 bits where it proposes
/// such a kernel (cublasLt); else it chooses by itself.
struct BlasTiles {
  int64_t most = 0;     ///< numbers of the result that a tile has, on average, at most; 0: cuBLAS chooses
  bool counted = true;  ///< blocks may take tiles from a counter, which a launch of its own clears before
};

/// c = alpha a b + beta c for every matrix of the batch: a (m, k), b (k, n), c (m, n). c is not read when beta is 0.
struct BlasProduct {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  BlasMatrix a, b;
  void* c = nullptr;
  int64_t c_row = 0, c_batch = 0;
  BlasNumber operands = BlasNumber::kFloat32;  ///< of a and b
  BlasNumber result = BlasNumber::kFloat32;    ///< of c: that of the operands, or 32 bits for operands of 16
  BlasSums sums = BlasSums::kIeee;
  double alpha = 1, beta = 0;
  BlasTiles tiles;
};

/// Memory of the device that cuBLAS may write to while the products of a stream run.
struct BlasWorkspace {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

/// What cuBLAS's kernels for the current device want as workspace. The same at every call: its choice of kernels, and
/// so the bits of a result, follow the size.
std::size_t blas_workspace_bytes();

/// Asynchronous on the stream of the current device; from any thread. The same arguments give the same bits: one
/// stream, a workspace of the caller's, no reduced-precision reductions, no switch of torch. Can be recorded in a CUDA
/// graph once the device has had a product outside of one. Throws Error that says what was tried where there is no
/// cuBLAS, and with cuBLAS's words where it refuses.
void product(const BlasProduct& product, const BlasWorkspace& workspace, Stream stream);

/// The file that product() calls. Throws Error that says what was tried: CLEBSCH_CUBLAS alone where it is set, else
/// what the process has loaded, torch's wheels, and what the loader finds.
const char* cublas_path();

}  // namespace clebsch::cuda
