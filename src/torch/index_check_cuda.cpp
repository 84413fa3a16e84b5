// Indices of a graph on a device, looked at before kernels follow them (CLEBSCH_CUDA_CHECK=1).
#include "torch/index_check.h"

#include <ATen/ops/full.h>

#include "core/errors.h"
#include "cuda/edges/index_check.h"
#include "torch/cuda_tensors.h"

namespace clebsch::ops {
namespace {

using cuda::IndexCheck;

/// The smallest place at fault that a check finds, IndexCheck::kNoFault when there is none. Waits for the device.
template <typename Check>
int64_t first_fault(const at::Tensor& like, const Check& check) {
  const at::Tensor first = at::full({1}, IndexCheck::kNoFault, like.options().dtype(at::kLong).requires_grad(false));
  check(*IndexCheck::make(), first.mutable_data_ptr<int64_t>(), current_stream(like.device()));
  return first.item<int64_t>();
}

int32_t entry(const at::Tensor& values, int64_t place) { return values.select(0, place).item<int32_t>(); }

/// Offsets of rows in an array of `capacity` places. Returns the number of places in use.
int32_t check_offsets(const char* op, const char* name, const at::Tensor& offsets, int64_t capacity) {
  const int64_t rows = offsets.numel() - 1;
  const int64_t at = first_fault(offsets, [&](const IndexCheck& kernels, int64_t* first, cuda::Stream stream) {
    kernels.offsets(offsets.const_data_ptr<int32_t>(), rows, capacity, first, stream);
  });
  if (at == IndexCheck::kNoFault) return entry(offsets, rows);
  if (at == 0) fail("{}: expected graph's {}[0] = 0, got {}", op, name, entry(offsets, 0));
  fail("{}: expected graph's {} not to decrease and to end at {} edges at most, got {}[{}] = {} after {}", op, name,
       capacity, name, at, entry(offsets, at), entry(offsets, at - 1));
}

void check_range(const char* op, const char* name, const at::Tensor& values, int64_t count, int64_t bound) {
  const int64_t at = first_fault(values, [&](const IndexCheck& kernels, int64_t* first, cuda::Stream stream) {
    kernels.range(values.const_data_ptr<int32_t>(), count, bound, first, stream);
  });
  if (at != IndexCheck::kNoFault)
    fail("{}: expected {}[{}] in [0, {}), got {}", op, name, at, bound, entry(values, at));
}

}  // namespace

void check_device_graph(const char* op, at::TensorList graph, int64_t nodes) {
  const at::Tensor &row_ptr = graph[0], &senders = graph[1], &receivers = graph[2], &col_ptr = graph[3];
  const int64_t rows = row_ptr.numel() - 1, capacity = senders.numel();
  const int32_t edges = check_offsets(op, "row_ptr", row_ptr, capacity);
  check_range(op, "graph's senders", senders, edges, nodes);
  const int64_t at = first_fault(senders, [&](const IndexCheck& kernels, int64_t* first, cuda::Stream stream) {
    kernels.receivers(row_ptr.const_data_ptr<int32_t>(), rows, receivers.const_data_ptr<int32_t>(), first, stream);
  });
  if (at != IndexCheck::kNoFault) {
    fail("{}: graph's receivers disagree with its row_ptr: expected the row of edge {}, got {}", op, at,
         entry(receivers, at));
  }
  if (col_ptr.numel() > 0) {
    const int32_t transposed = check_offsets(op, "col_ptr", col_ptr, capacity);
    require(transposed == edges, "{}: graph's row_ptr counts {} edges, its col_ptr {}", op, edges, transposed);
    check_range(op, "graph's col_edge", graph[4], edges, edges);
  }
  check_range(op, "graph's n_local", graph[6], graph[6].numel(), rows + 1);
}

void check_device_range(const char* op, const char* name, const at::Tensor& values, int64_t bound) {
  check_range(op, name, values, values.numel(), bound);
}

void check_types_on(const char* op, const at::Tensor& types, at::Device device, int64_t nodes, int64_t count) {
  check_on(op, types, "types", device, at::kInt, {nodes});
  if (checks_device_indices()) check_device_range(op, "types", types, count);
}

}  // namespace clebsch::ops
