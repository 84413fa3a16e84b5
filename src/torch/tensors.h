#pragma once
// Checks of tensor arguments against a problem and a graph, and plain views of them for the kernels.
//
// Callers are not trusted: a model file is a program, so whatever it hands to an op is checked here before a pointer
// of it is followed. Every check throws Error with the op, the argument, what was expected and what came.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <vector>

#include "core/graph.h"
#include "core/problem/problem.h"
#include "cpu/interaction.h"

namespace clebsch::ops {

/// Throws unless `tensor` is a dense contiguous CPU tensor of this dtype and shape (-1: any length).
void check_tensor(const char* op, const char* name, const at::Tensor& tensor, at::ScalarType dtype,
                  at::IntArrayRef shape);

/// Throws unless the dtype is float32 or float64; returns it.
at::ScalarType check_compute_dtype(const char* op, const char* name, const at::Tensor& tensor);

/// A checked graph and the number of rows one call computes.
struct CheckedGraph {
  GraphView view;    ///< types and edge_vec are not set
  int32_t rows = 0;  ///< rows < rows are computed
};

/// Checks the `graph` list of ops.schema for M = `nodes`, every index included, and `layer` (-1: `all_rows` of
/// ops.schema: M for node-wise ops, N for edge ops). Costs one pass over the edges, some 1% of the cheapest op.
CheckedGraph check_graph(const char* op, at::TensorList graph, int64_t nodes, int64_t layer);

/// Rows of a node-wise op. Looks at layer_rows alone: such an op follows no edge.
int64_t check_rows(const char* op, at::TensorList graph, int64_t nodes, int64_t layer);

/// Checks types (M) int32 in [0, count) and sets view.types.
void check_types(const char* op, const at::Tensor& types, int64_t nodes, int64_t count);

/// Number of types T from the cutoffs of a `radial` list; checks that list's length, cutoffs and basis.
int64_t check_radial(const char* op, at::TensorList radial, const Problem& problem);

/// The radial table of a `radial` list as the kernels read it; throws unless table and index fit the problem.
template <typename T>
cpu::RadialTableView<T> radial_view(const char* op, at::TensorList radial, const Problem& problem);

/// Parsed problem of a convolution, from the process-wide cache; throws unless it has a radial part when asked for.
std::shared_ptr<const Problem> conv_problem(const char* op, std::string_view text, bool needs_radial);

/// Zeroes the rows from `rows` on: those an op does not compute.
void zero_tail(const at::Tensor& out, int64_t rows);

/// Gives a view its transpose for the lifetime of this object when it lacks one and the caller wants it.
class Transpose {
 public:
  Transpose(GraphView& view, bool wanted);

 private:
  std::vector<int32_t> col_ptr_, col_edge_;
};

/// Calls f with a value of the C++ type of a checked compute dtype.
template <typename F>
auto dispatch_dtype(at::ScalarType dtype, F&& f) {
  return dtype == at::kDouble ? f(double{}) : f(float{});
}

/// Wraps first-derivative results so that differentiating them again throws instead of giving zero silently.
/// `depends_on` are the tensors of which the results are functions.
std::vector<at::Tensor> refuse_double_backward(const char* op, std::vector<at::Tensor> results,
                                               const std::vector<at::Tensor>& depends_on);

}  // namespace clebsch::ops
