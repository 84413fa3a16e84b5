#pragma once
// The caller's graph on the host: checked, what it leaves out filled in, and as the tensors that ops take.
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "model/run/impl.h"

namespace clebsch {

/// A tensor over the caller's array, which must outlive it.
template <typename T>
at::Tensor as_tensor(const T* data, at::IntArrayRef shape) {
  // torch has no tensor over const memory; nothing a model file may contain writes to its arguments.
  return at::from_blob(const_cast<T*>(data), shape, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

/// The graph with what the caller left out, in buffers of the model. For a GPU, which makes its own, receivers and the
/// transpose are left out. Throws Error on an invalid graph, a type that is not in use, and, on the CPU, a vector that
/// is not finite.
GraphView complete_graph(Model::Impl& model, GraphView graph);

/// Throws Error when a coordinate is not finite: kernels compare distances, and a NaN would just drop out of the sum.
void require_finite_vectors(const Model::Impl& model, const GraphView& graph);

/// Throws Error naming the first node whose type is not among the types in use.
void require_types_in_use(const Model::Impl& model, const int32_t* types, int32_t nodes);

/// `graph` of ops.schema, over the arrays of a complete graph.
c10::List<at::Tensor> graph_tensors(const GraphView& graph);

}  // namespace clebsch
