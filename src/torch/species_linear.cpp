// clebsch::species_linear: clebsch::linear with a weight of its own for each atom type. Differentiable to any order.
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/errors.h"
#include "torch/linear_maps.h"
#include "torch/tensors.h"

namespace clebsch::ops::species_linear_op {
namespace {

constexpr const char* kOp = "species_linear";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows grouped by type: row order[k] for start[t] <= k < start[t+1] has type t, ascending within a type.
struct Groups {
  at::Tensor order;  ///< (rows) int64
  std::vector<int64_t> start;
  bool sorted = true;  ///< the rows are in that order already
};

Groups group_rows(const at::Tensor& types, int64_t rows, int64_t count) {
  Groups groups;
  groups.start.assign(static_cast<size_t>(count) + 1, 0);
  const int32_t* type = types.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < rows; ++i) {
    ++groups.start[type[i] + 1];
    groups.sorted = groups.sorted && (i == 0 || type[i] >= type[i - 1]);
  }
  for (int64_t t = 0; t < count; ++t) groups.start[t + 1] += groups.start[t];
  groups.order = at::empty({rows}, at::kLong);
  int64_t* order = groups.order.mutable_data_ptr<int64_t>();
  std::vector<int64_t> next(groups.start.begin(), groups.start.end() - 1);
  for (int64_t i = 0; i < rows; ++i) order[next[type[i]]++] = i;
  return groups;
}

at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types, int64_t rows,
                    const LinearProblem& problem, bool transposed) {
  const Groups groups = group_rows(types, rows, weight.size(0));
  const Irreps& out_irreps = transposed ? problem.in : problem.out;
  at::Tensor out = at::empty({x.size(0), out_irreps.dim()}, x.options().requires_grad(false));
  zero_tail(out, rows);
  const at::Tensor from = groups.sorted ? x.narrow(0, 0, rows) : x.index_select(0, groups.order);
  const at::Tensor to = groups.sorted ? out.narrow(0, 0, rows) : at::empty({rows, out.size(1)}, out.options());
  for (int64_t t = 0; t < weight.size(0); ++t) {
    const int64_t first = groups.start[t], length = groups.start[t + 1] - first;
    multiply_blocks(problem, from.narrow(0, first, length), weight[t], transposed, to.narrow(0, first, length));
  }
  if (!groups.sorted) out.index_copy_(0, groups.order, to);
  return out;
}

int64_t check(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types, at::TensorList graph,
              int64_t layer, const LinearProblem& problem) {
  const auto dtype = check_compute_dtype(kOp, "x", x);
  check_tensor(kOp, "x", x, dtype, {-1, problem.in.dim()});
  check_tensor(kOp, "weight", weight, dtype, {-1, problem.weight_count});
  check_types(kOp, types, x.size(0), weight.size(0));
  return check_rows(kOp, graph, x.size(0), layer);
}

at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types, at::TensorList graph,
                       int64_t layer, std::string_view text) {
  const auto problem = cached_linear_problem(std::string(text));
  const int64_t rows = check(x, weight, types, graph, layer, *problem);
  return multiply(x, weight, types, rows, *problem, false);
}

at::Tensor forward_meta(const at::Tensor& x, const at::Tensor&, const at::Tensor&, at::TensorList, int64_t,
                        std::string_view text) {
  return at::empty_symint({x.sym_size(0), cached_linear_problem(std::string(text))->out.dim()}, x.options());
}

/// As Linear of linear.cpp: y = x W[type], or x W[type]^T when transposed; the backward of one is the other.
class SpeciesLinear : public torch::autograd::Function<SpeciesLinear> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& types, int64_t rows, std::string text, bool transposed) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor out = multiply(x, weight, types, rows, *cached_linear_problem(text), transposed);
    ctx->save_for_backward({x, weight, types});
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["problem"] = std::move(text);
    ctx->saved_data["transposed"] = transposed;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const int64_t rows = ctx->saved_data["rows"].toInt();
    const std::string text = ctx->saved_data["problem"].toStringRef();
    const bool transposed = ctx->saved_data["transposed"].toBool();
    const at::Tensor grad = grads[0].contiguous();
    variable_list results(6);
    if (ctx->needs_input_grad(0)) results[0] = SpeciesLinear::apply(grad, saved[1], saved[2], rows, text, !transposed);
    if (ctx->needs_input_grad(1)) {
      const auto problem = cached_linear_problem(text);
      const Groups groups = group_rows(saved[2], rows, saved[1].size(0));
      std::vector<at::Tensor> gradients;
      for (int64_t t = 0; t < saved[1].size(0); ++t) {
        const at::Tensor index = groups.order.narrow(0, groups.start[t], groups.start[t + 1] - groups.start[t]);
        gradients.push_back(
            weight_gradient(*problem, saved[0].index_select(0, index), grad.index_select(0, index), transposed));
      }
      results[1] = at::stack(gradients);
    }
    return results;
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types,
                            at::TensorList graph, int64_t layer, std::string_view text) {
  const auto problem = cached_linear_problem(std::string(text));
  const int64_t rows = check(x, weight, types, graph, layer, *problem);
  return SpeciesLinear::apply(x, weight, types, rows, std::string(text), false);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) { library.impl("species_linear", forward_cpu); }
TORCH_LIBRARY_IMPL(clebsch, Meta, library) { library.impl("species_linear", forward_meta); }
TORCH_LIBRARY_IMPL(clebsch, AutogradCPU, library) { library.impl("species_linear", forward_autograd); }

}  // namespace clebsch::ops::species_linear_op
