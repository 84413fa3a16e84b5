#include "torch/cuda_tensors.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "core/errors.h"
#include "torch/index_check.h"

namespace clebsch::ops {

void check_on(const char* op, const at::Tensor& tensor, const char* name, at::Device device, at::ScalarType dtype,
              at::IntArrayRef shape) {
  require(tensor.defined() && tensor.layout() == at::kStrided && tensor.is_contiguous(),
          "{}: {}: expected a dense contiguous tensor", op, name);
  require(tensor.device() == device, "{}: {}: expected device {}, got {}", op, name, device.str(),
          tensor.device().str());
  require(tensor.scalar_type() == dtype, "{}: {}: expected dtype {}, got {}", op, name, at::toString(dtype),
          at::toString(tensor.scalar_type()));
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t d = 0; fits && d < shape.size(); ++d)
    fits = shape[d] < 0 || tensor.size(static_cast<int64_t>(d)) == shape[d];
  require(fits, "{}: {}: expected shape {} (-1: any), got {}", op, name, c10::str(shape), c10::str(tensor.sizes()));
}

cuda::Scalar scalar_of(const char* op, const at::Tensor& x) {
  require(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble, "{}: x: expected float32 or float64, got {}",
          op, at::toString(x.scalar_type()));
  return x.scalar_type() == at::kDouble ? cuda::Scalar::f64 : cuda::Scalar::f32;
}

at::Tensor row_limit(const char* op, at::TensorList graph, const at::Tensor& x, int64_t layer) {
  require(graph.size() == 7 || graph.size() == 8, "{}: graph: expected 7 or 8 tensors, got {}", op, graph.size());
  check_on(op, graph[5], "layer_rows", x.device(), at::kInt, {-1});
  require(layer >= -1 && layer < graph[5].size(0), "{}: layer: expected -1 to {}, got {}", op, graph[5].size(0) - 1,
          layer);
  if (checks_device_indices()) check_device_range(op, "graph's layer_rows", graph[5], x.size(0) + 1);
  return layer >= 0 ? graph[5].narrow(0, layer, 1) : at::Tensor();
}

CudaGraph check_cuda_graph(const char* op, at::TensorList graph, const at::Tensor& x, int64_t layer) {
  const at::Tensor limit = row_limit(op, graph, x, layer);
  const at::Device device = x.device();
  static const char* const names[] = {"row_ptr",  "senders",    "receivers", "col_ptr",
                                      "col_edge", "layer_rows", "n_local"};
  for (size_t i = 0; i < 7; ++i) check_on(op, graph[i], names[i], device, at::kInt, {-1});
  const int64_t nodes = x.dim() >= 1 ? x.size(0) : 0, rows = graph[0].size(0) - 1;
  CudaGraph g;
  g.any_order = graph.size() == 8;
  g.edges = graph[1].size(0);
  check_on(op, graph[2], "receivers", device, at::kInt, {g.edges});
  require(rows >= 0 && rows <= nodes, "{}: row_ptr: expected 1 to {} entries, got {}", op, nodes + 1, rows + 1);
  require(nodes < (int64_t{1} << 31) && g.edges < (int64_t{1} << 31), "{}: expected fewer than 2^31 nodes and edges",
          op);
  g.rows = static_cast<int32_t>(rows);
  g.row_ptr = graph[0].const_data_ptr<int32_t>();
  g.senders = graph[1].const_data_ptr<int32_t>();
  g.receivers = graph[2].const_data_ptr<int32_t>();
  if (graph[3].size(0) > 0) {
    check_on(op, graph[3], "col_ptr", device, at::kInt, {nodes + 1});
    check_on(op, graph[4], "col_edge", device, at::kInt, {g.edges});
    g.col_ptr = graph[3].const_data_ptr<int32_t>();
    g.col_edge = graph[4].const_data_ptr<int32_t>();
  }
  g.row_limit = limit.defined() ? limit.const_data_ptr<int32_t>() : nullptr;
  if (checks_device_indices()) {
    check_on(op, graph[6], "n_local", device, at::kInt, {1});
    check_device_graph(op, graph, nodes);
  }
  return g;
}

void require_order(const char* op, bool in_order) {
  const at::Context& context = at::globalContext();
  if (in_order || !context.deterministicAlgorithms()) return;
  constexpr auto kWhy = "deterministic algorithms were asked for, so the graph needs its transpose (col_ptr, col_edge)";
  require(context.deterministicAlgorithmsWarnOnly(), "{}: {}", op, kWhy);
  TORCH_WARN_ONCE(op, ": ", kWhy);
}

cuda::Stream current_stream(at::Device device) {
  if (device.is_cpu()) return nullptr;  // host memory under the emulated driver of the tests
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

at::Tensor scratch(int64_t bytes, const at::Tensor& like) {
  return bytes > 0 ? at::empty({bytes}, like.options().dtype(at::kByte).requires_grad(false)) : at::Tensor();
}

void* address(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

}  // namespace clebsch::ops
