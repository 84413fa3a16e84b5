// clebsch::linear: per irrep a dense map between its channels. Differentiable to any order.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch/linear_maps.h"
#include "torch/tensors.h"

namespace clebsch::ops::linear_op {
namespace {

constexpr const char* kOp = "linear";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, int64_t rows, const LinearProblem& problem,
                    bool transposed) {
  const Irreps& out_irreps = transposed ? problem.in : problem.out;
  at::Tensor out = at::empty({x.size(0), out_irreps.dim()}, x.options().requires_grad(false));
  zero_tail(out, rows);
  multiply_blocks(problem, x.narrow(0, 0, rows), weight, transposed, out.narrow(0, 0, rows));
  return out;
}

at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& weight, at::TensorList graph, int64_t layer,
                       std::string_view text) {
  const auto problem = cached_linear_problem(std::string(text));
  const auto dtype = check_compute_dtype(kOp, "x", x);
  check_tensor(kOp, "x", x, dtype, {-1, problem->in.dim()});
  check_tensor(kOp, "weight", weight, dtype, {problem->weight_count});
  return multiply(x, weight, check_rows(kOp, graph, x.size(0), layer), *problem, false);
}

at::Tensor forward_meta(const at::Tensor& x, const at::Tensor&, at::TensorList, int64_t, std::string_view text) {
  return at::empty_symint({x.sym_size(0), cached_linear_problem(std::string(text))->out.dim()}, x.options());
}

/// y = x W, or x W^T when transposed; the backward of one is the other.
class Linear : public torch::autograd::Function<Linear> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, int64_t rows,
                            std::string text, bool transposed) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor out = multiply(x, weight, rows, *cached_linear_problem(text), transposed);
    ctx->save_for_backward({x, weight});
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
    variable_list results(5);
    if (ctx->needs_input_grad(0)) results[0] = Linear::apply(grad, saved[1], rows, text, !transposed);
    if (ctx->needs_input_grad(1)) {
      results[1] = weight_gradient(*cached_linear_problem(text), saved[0].narrow(0, 0, rows), grad.narrow(0, 0, rows),
                                   transposed);
    }
    return results;
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight, at::TensorList graph, int64_t layer,
                            std::string_view text) {
  const auto problem = cached_linear_problem(std::string(text));
  const auto dtype = check_compute_dtype(kOp, "x", x);
  check_tensor(kOp, "x", x, dtype, {-1, problem->in.dim()});
  check_tensor(kOp, "weight", weight, dtype, {problem->weight_count});
  return Linear::apply(x, weight, check_rows(kOp, graph, x.size(0), layer), std::string(text), false);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) { library.impl("linear", forward_cpu); }
TORCH_LIBRARY_IMPL(clebsch, Meta, library) { library.impl("linear", forward_meta); }
TORCH_LIBRARY_IMPL(clebsch, AutogradCPU, library) { library.impl("linear", forward_autograd); }

}  // namespace clebsch::ops::linear_op
