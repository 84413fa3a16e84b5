#include "torch/tensors.h"

#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "core/errors.h"
#include "core/radial/radial_table.h"

namespace clebsch::ops {
namespace {

std::string shape_text(at::IntArrayRef shape) { return fmt::format("({})", joined(shape, ", ")); }

std::string expected_shape_text(at::IntArrayRef shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += i ? ", " : "";
    text += shape[i] < 0 ? std::string("any") : std::to_string(shape[i]);
  }
  return text + ")";
}

constexpr size_t kGraphTensors = 7;
constexpr size_t kRadialTensors = 5;

const int32_t* int_data(const at::Tensor& tensor) { return tensor.const_data_ptr<int32_t>(); }

/// One pass over row_ptr; returns the true edge count.
int32_t check_offsets(const char* op, const char* name, const int32_t* offsets, int64_t rows, int64_t capacity) {
  require(offsets[0] == 0, "clebsch::{}: expected graph's {}[0] = 0, got {}", op, name, offsets[0]);
  bool ordered = true;
  for (int64_t i = 0; i < rows; ++i) ordered &= offsets[i] <= offsets[i + 1];
  require(ordered, "clebsch::{}: expected graph's {} not to decrease, but it does", op, name);
  require(offsets[rows] <= capacity, "clebsch::{}: graph's {} ends at {} edges, but the edge arrays hold {}", op, name,
          offsets[rows], capacity);
  return offsets[rows];
}

/// All of values[0..count) in [0, bound)? Unsigned comparison, so that the loop vectorises.
void check_indices(const char* op, const char* name, const int32_t* values, int64_t count, int64_t bound) {
  bool inside = true;
  for (int64_t i = 0; i < count; ++i) inside &= static_cast<uint32_t>(values[i]) < static_cast<uint32_t>(bound);
  if (inside) return;
  for (int64_t i = 0; i < count; ++i) {
    require(static_cast<uint32_t>(values[i]) < static_cast<uint32_t>(bound),
            "clebsch::{}: expected {}[{}] in [0, {}), got {}", op, name, i, bound, values[i]);
  }
}

class RefuseDoubleBackward : public torch::autograd::Function<RefuseDoubleBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& result, const at::Tensor& source,
                            std::string op) {
    (void)source;
    ctx->saved_data["op"] = std::move(op);
    return result.view_as(result);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list&) {
    fail(
        "clebsch::{} has first derivatives only, but a second derivative was asked for (create_graph=True). "
        "Differentiate once, or use the exact path built from at:: ops",
        ctx->saved_data["op"].toStringRef());
  }
};

}  // namespace

void check_tensor(const char* op, const char* name, const at::Tensor& tensor, at::ScalarType dtype,
                  at::IntArrayRef shape) {
  require(tensor.defined(), "clebsch::{}: argument {} is missing", op, name);
  require(tensor.device().is_cpu(), "clebsch::{}: expected {} on the CPU, got {}", op, name, tensor.device().str());
  require(tensor.layout() == at::kStrided, "clebsch::{}: expected {} to be a dense tensor", op, name);
  require(tensor.scalar_type() == dtype, "clebsch::{}: expected {} of dtype {}, got {}", op, name, at::toString(dtype),
          at::toString(tensor.scalar_type()));
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] < 0 || tensor.size(i) == shape[i];
  require(fits, "clebsch::{}: expected {} of shape {}, got {}", op, name, expected_shape_text(shape),
          shape_text(tensor.sizes()));
  require(tensor.is_contiguous(), "clebsch::{}: expected {} to be contiguous; call .contiguous() first", op, name);
}

at::ScalarType check_compute_dtype(const char* op, const char* name, const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  require(dtype == at::kFloat || dtype == at::kDouble, "clebsch::{}: expected {} of dtype Float or Double, got {}", op,
          name, at::toString(dtype));
  return dtype;
}

int64_t check_rows(const char* op, at::TensorList graph, int64_t nodes, int64_t layer) {
  require(graph.size() == kGraphTensors || graph.size() == kGraphTensors + 1,
          "clebsch::{}: expected graph of {} or {} tensors, got {}", op, kGraphTensors, kGraphTensors + 1,
          graph.size());
  check_tensor(op, "graph's layer_rows", graph[5], at::kInt, {-1});
  if (layer == -1) return nodes;
  require(layer >= 0 && layer < graph[5].numel(), "clebsch::{}: expected layer -1 or in [0, {}), got {}", op,
          graph[5].numel(), layer);
  const int32_t rows = int_data(graph[5])[layer];
  require(rows >= 0 && rows <= nodes, "clebsch::{}: expected layer_rows[{}] in [0, {}], got {}", op, layer, nodes,
          rows);
  return rows;
}

CheckedGraph check_graph(const char* op, at::TensorList graph, int64_t nodes, int64_t layer) {
  const int64_t rows = check_rows(op, graph, nodes, layer);
  constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;
  check_tensor(op, "graph's row_ptr", graph[0], at::kInt, {-1});
  const int64_t n_rows = graph[0].numel() - 1;
  require(n_rows >= 0 && n_rows <= nodes && nodes <= kMaxCount,
          "clebsch::{}: expected graph's row_ptr to hold 1 to {} entries, got {}", op, nodes + 1, n_rows + 1);
  check_tensor(op, "graph's senders", graph[1], at::kInt, {-1});
  const int64_t capacity = graph[1].numel();
  check_tensor(op, "graph's receivers", graph[2], at::kInt, {capacity});
  check_tensor(op, "graph's n_local", graph[6], at::kInt, {1});
  CheckedGraph result;
  GraphView& view = result.view;
  view.n_rows = static_cast<int32_t>(n_rows);
  view.n_nodes = static_cast<int32_t>(nodes);
  view.n_edges = capacity;
  view.n_layers = static_cast<int32_t>(graph[5].numel());
  view.row_ptr = int_data(graph[0]);
  view.senders = int_data(graph[1]);
  view.receivers = int_data(graph[2]);
  view.layer_rows = int_data(graph[5]);
  view.n_local = *int_data(graph[6]);
  require(view.n_local >= 0 && view.n_local <= n_rows, "clebsch::{}: expected n_local in [0, {}], got {}", op, n_rows,
          view.n_local);
  const int32_t edges = check_offsets(op, "row_ptr", view.row_ptr, n_rows, capacity);
  check_indices(op, "graph's senders", view.senders, edges, nodes);
  bool matching = true;
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int32_t e = view.row_ptr[i]; e < view.row_ptr[i + 1]; ++e) matching &= view.receivers[e] == i;
  }
  require(matching, "clebsch::{}: graph's receivers disagree with its row_ptr", op);
  if (graph[3].numel() > 0) {
    check_tensor(op, "graph's col_ptr", graph[3], at::kInt, {nodes + 1});
    check_tensor(op, "graph's col_edge", graph[4], at::kInt, {capacity});
    view.col_ptr = int_data(graph[3]);
    view.col_edge = int_data(graph[4]);
    const int32_t transposed = check_offsets(op, "col_ptr", view.col_ptr, nodes, capacity);
    require(transposed == edges, "clebsch::{}: graph's row_ptr counts {} edges, its col_ptr {}", op, edges, transposed);
    check_indices(op, "graph's col_edge", view.col_edge, edges, edges);
  }
  // Rows beyond N have no edges and stay zero, whatever layer_rows says.
  result.rows = static_cast<int32_t>(std::min(rows, n_rows));
  return result;
}

void check_types(const char* op, const at::Tensor& types, int64_t nodes, int64_t count) {
  check_tensor(op, "types", types, at::kInt, {nodes});
  check_indices(op, "types", int_data(types), nodes, count);
}

int64_t check_radial(const char* op, at::TensorList radial, const Problem& problem) {
  require(radial.size() == kRadialTensors, "clebsch::{}: expected radial of {} tensors, got {}", op, kRadialTensors,
          radial.size());
  check_tensor(op, "radial's cutoffs", radial[2], at::kDouble, {-1, -1});
  const int64_t types = radial[2].size(0);
  check_tensor(op, "radial's cutoffs", radial[2], at::kDouble, {types, types});
  const double* cutoffs = radial[2].const_data_ptr<double>();
  for (int64_t i = 0; i < types * types; ++i) {
    require(cutoffs[i] > 0 && cutoffs[i] < 1e3, "clebsch::{}: expected cutoffs in (0, 1000) Angstrom, got {}", op,
            cutoffs[i]);
  }
  check_tensor(op, "radial's basis", radial[3], at::kDouble, {problem.radial->basis_values(types)});
  return types;
}

template <typename T>
cpu::RadialTableView<T> radial_view(const char* op, at::TensorList radial, const Problem& problem) {
  const int64_t types = check_radial(op, radial, problem);
  check_tensor(op, "radial's table", radial[0], at::CppTypeToScalarType<T>::value,
               {-1, -1, kTableOrder, problem.weight_count});
  require(radial[0].size(1) >= 2, "clebsch::{}: expected a table of at least 2 rows, got {}", op, radial[0].size(1));
  check_tensor(op, "radial's table_index", radial[1], at::kInt, {types, types});
  cpu::RadialTableView<T> view;
  view.table = radial[0].const_data_ptr<T>();
  view.table_index = int_data(radial[1]);
  view.cutoffs = radial[2].const_data_ptr<double>();
  view.types = static_cast<int>(types);
  view.tables = static_cast<int>(radial[0].size(0));
  view.pieces = static_cast<int>(radial[0].size(1) - 1);
  view.columns = problem.weight_count;
  for (int64_t i = 0; i < types * types; ++i) {
    require(view.table_index[i] >= -1 && view.table_index[i] < view.tables,
            "clebsch::{}: expected table_index in [-1, {}), got {}", op, view.tables, view.table_index[i]);
  }
  return view;
}
template cpu::RadialTableView<float> radial_view(const char*, at::TensorList, const Problem&);
template cpu::RadialTableView<double> radial_view(const char*, at::TensorList, const Problem&);

std::shared_ptr<const Problem> conv_problem(const char* op, std::string_view text, bool needs_radial) {
  auto problem = cached_problem(std::string(text));
  if (needs_radial) require(problem->radial.has_value(), "clebsch::{}: expected a problem with a radial part", op);
  return problem;
}

void zero_tail(const at::Tensor& out, int64_t rows) {
  if (rows < out.size(0)) out.narrow(0, rows, out.size(0) - rows).zero_();
}

Transpose::Transpose(GraphView& view, bool wanted) {
  if (!wanted || view.col_ptr) return;
  transpose_graph(view, col_ptr_, col_edge_);
  view.col_ptr = col_ptr_.data();
  view.col_edge = col_edge_.data();
}

std::vector<at::Tensor> refuse_double_backward(const char* op, std::vector<at::Tensor> results,
                                               const std::vector<at::Tensor>& depends_on) {
  if (!at::GradMode::is_enabled()) return results;
  for (auto& result : results) {
    if (!result.defined()) continue;
    for (const auto& source : depends_on) {
      if (source.defined() && source.requires_grad()) result = RefuseDoubleBackward::apply(result, source, op);
    }
  }
  return results;
}

}  // namespace clebsch::ops
