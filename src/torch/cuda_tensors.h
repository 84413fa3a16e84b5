#pragma once
// What the CUDA ops share: checks that look at shapes alone, scratch memory, torch's stream.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cuda/plan/scalar.h"
#include "cuda/runtime/driver.h"

namespace clebsch::ops {

/// Throws unless the tensor is dense, contiguous, on the device and of this dtype and shape (-1: any length).
void check_on(const char* op, const at::Tensor& tensor, const char* name, at::Device device, at::ScalarType dtype,
              at::IntArrayRef shape);

/// The number type of x; throws for others than float32 and float64.
cuda::Scalar scalar_of(const char* op, const at::Tensor& x);

/// layer_rows[layer] of a graph list as a tensor (1) on the device of x; undefined for layer -1.
at::Tensor row_limit(const char* op, at::TensorList graph, const at::Tensor& x, int64_t layer);

/// A graph list on a device. Its indices are trusted, since looking at them makes the host wait, unless
/// checks_device_indices() (torch/index_check.h).
struct CudaGraph {
  const int32_t* row_ptr = nullptr;
  const int32_t* senders = nullptr;
  const int32_t* receivers = nullptr;
  const int32_t* col_ptr = nullptr;    ///< null without transpose
  const int32_t* col_edge = nullptr;   ///< null without transpose
  bool any_order = false;              ///< sums by sender may take any order although there is a transpose
  const int32_t* row_limit = nullptr;  ///< layer_rows[layer], null for layer -1
  int32_t rows = 0;                    ///< N
  int64_t edges = 0;                   ///< capacity E
};

/// Checks the `graph` list of ops.schema against the rows of x (M, ...), on the device of x.
CudaGraph check_cuda_graph(const char* op, at::TensorList graph, const at::Tensor& x, int64_t layer);

/// For sums by sender, `in_order` with the transpose and else in any order: where torch was told to use deterministic
/// algorithms, the other ones are refused, or with warn_only warned of once.
void require_order(const char* op, bool in_order);

/// The stream that torch uses on the device, through the virtual guard: libtorch_cuda is not linked.
cuda::Stream current_stream(at::Device device);

/// Uninitialised bytes on the device of `like` from torch's allocator; undefined for none.
at::Tensor scratch(int64_t bytes, const at::Tensor& like);
/// Its address, null when undefined.
void* address(const at::Tensor& tensor);

}  // namespace clebsch::ops
