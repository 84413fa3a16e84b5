#pragma once
// Maps of tensors for copies of boxes (kernels/tensor_copies.cuh, compute capability 9.0).
#include <cstdint>

#include "cuda/kernels/tensor_map.h"

namespace clebsch::cuda {

/// A batch of matrices of 16-bit numbers, and the box that a copy takes of a matrix.
struct TensorBoxes {
  const void* data = nullptr;                   ///< a multiple of 16 bytes
  int64_t columns = 0, rows = 0, matrices = 0;  ///< columns are adjacent; what is beyond them is zeros, or not written
  int64_t row = 0, matrix = 0;                  ///< numbers from one to the next, multiples of 8
  int box_columns = 0, box_rows = 0;            ///< at most 256; a line of a box is 64 or 128 bytes
};

/// Whether the driver makes maps (from CUDA 12 on).
bool has_tensor_maps();
/// The map. A line of a box follows the other in shared memory, where 16-byte parts are exchanged: with lines of 128
/// bytes part c of line r is at c ^ r % 8, with lines of 64 bytes at c ^ r / 2 % 4. Throws Error where the driver
/// refuses.
TensorMap tensor_map(const TensorBoxes& boxes);

}  // namespace clebsch::cuda
