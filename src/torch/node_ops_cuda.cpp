// clebsch::linear, clebsch::species_linear and clebsch::gate on CUDA tensors. What the CPU knows as a number of rows is
// a number on the device here, so that nothing waits: the kernels mask rows, and so do the derivatives made of at::
// ops.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>

#include "core/errors.h"
#include "cuda/nodes/gate.h"
#include "cuda/nodes/node_linear.h"
#include "torch/cuda_tensors.h"
#include "torch/gate.h"
#include "torch/index_check.h"
#include "torch/linear_maps.h"

namespace clebsch::ops::nodes_on_cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const int32_t* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<int32_t>() : nullptr;
}

/// Rows from the limit on as zeros.
at::Tensor masked(const at::Tensor& x, const at::Tensor& limit) {
  if (!limit.defined()) return x;
  const at::Tensor live = at::arange(x.size(0), limit.options()).lt(limit);
  return x * live.to(x.scalar_type()).unsqueeze(1);
}

/// Autograd functions take a tensor that may be missing in this form alone.
using Optional = std::optional<at::Tensor>;
Optional or_none(const at::Tensor& tensor) { return tensor.defined() ? Optional(tensor) : std::nullopt; }
at::Tensor or_undefined(const Optional& tensor) { return tensor ? *tensor : at::Tensor(); }

/// Rows by type, which a map and its transpose share; undefined where rows are not grouped.
struct Groups {
  at::Tensor workspace;
  int64_t rows = 0;  ///< of a group
};

/// One launch over all blocks; `types` undefined: one weight (weight_count). `groups`: of an earlier call with the same
/// types and limit, or those of this call.
at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types, const at::Tensor& limit,
                    const std::string& text, bool transposed, Groups& groups) {
  const char* op = types.defined() ? "species_linear (cuda)" : "linear (cuda)";
  const c10::DeviceGuard device_guard(x.device());
  const auto problem = cached_linear_problem(text);
  const cuda::Scalar scalar = scalar_of(op, x);
  check_on(op, x, "x", x.device(), x.scalar_type(), {-1, (transposed ? problem->out : problem->in).dim()});
  require(x.size(0) < (int64_t{1} << 31) - 65536, "{}: expected fewer than 2^31 - 65536 rows", op);
  cuda::LinearOperands o;
  if (types.defined()) {
    check_on(op, weight, "weight", x.device(), x.scalar_type(), {-1, problem->weight_count});
    check_types_on(op, types, x.device(), x.size(0), weight.size(0));
    require(weight.size(0) >= 1 && weight.size(0) < 1024, "{}: expected weights of 1 to 1023 types, got {}", op,
            weight.size(0));
    o.type_count = static_cast<int32_t>(weight.size(0));
    if (o.type_count > 1) o.types = pointer(types);  // of one type no rows need to be grouped
  } else {
    check_on(op, weight, "weight", x.device(), x.scalar_type(), {problem->weight_count});
  }
  o.x = x.const_data_ptr();
  o.weight = weight.const_data_ptr();
  o.row_limit = pointer(limit);
  o.nodes = static_cast<int32_t>(x.size(0));
  const auto kernels = cuda::NodeLinear::make(problem, scalar);
  at::Tensor out =
      at::empty({x.size(0), (transposed ? problem->in : problem->out).dim()}, x.options().requires_grad(false));
  const int64_t rows = kernels->group_rows(o, transposed);
  o.grouped = rows > 0 && groups.workspace.defined() && groups.rows == rows;
  if (!o.grouped) groups = {scratch(kernels->workspace(o, transposed), x), rows};
  kernels->run(o, transposed, out.mutable_data_ptr(), address(groups.workspace), current_stream(x.device()));
  return out;
}

/// d/dweight of sum(grad * multiply(x, weight, transposed)), from at:: ops.
at::Tensor weight_gradient_of(const at::Tensor& x, const at::Tensor& grad, const at::Tensor& types,
                              const at::Tensor& limit, int64_t type_count, const std::string& text, bool transposed) {
  const auto problem = cached_linear_problem(text);
  const at::Tensor live = masked(x, limit);
  if (!types.defined()) return weight_gradient(*problem, live, grad, transposed);
  std::vector<at::Tensor> gradients;
  for (int64_t t = 0; t < type_count; ++t) {
    const at::Tensor own = live * types.eq(t).to(x.scalar_type()).unsqueeze(1);
    gradients.push_back(weight_gradient(*problem, own, grad, transposed));
  }
  return at::stack(gradients);
}

/// y = x W[type] (types undefined: x W), or its transpose; the backward of one is the other.
class NodeLinear : public torch::autograd::Function<NodeLinear> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const Optional& types,
                            const Optional& limit, std::string text, bool transposed, const Optional& groups,
                            int64_t group_rows) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Groups shared{or_undefined(groups), group_rows};
    at::Tensor out = multiply(x, weight, or_undefined(types), or_undefined(limit), text, transposed, shared);
    ctx->save_for_backward({x, weight, or_undefined(types), or_undefined(limit), shared.workspace});
    ctx->saved_data["group_rows"] = shared.rows;
    ctx->saved_data["problem"] = std::move(text);
    ctx->saved_data["transposed"] = transposed;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const std::string text = ctx->saved_data["problem"].toStringRef();
    const bool transposed = ctx->saved_data["transposed"].toBool();
    const at::Tensor grad = grads[0].contiguous();
    variable_list results(8);
    if (ctx->needs_input_grad(0)) {
      results[0] = NodeLinear::apply(grad, saved[1], or_none(saved[2]), or_none(saved[3]), text, !transposed,
                                     or_none(saved[4]), ctx->saved_data["group_rows"].toInt());
    }
    if (ctx->needs_input_grad(1)) {
      results[1] = weight_gradient_of(saved[0], grad, saved[2], saved[3], saved[1].size(0), text, transposed);
    }
    return results;
  }
};

/// A loader empties the weight of a map that a projection before it has taken in (model/run/first_layer.h).
bool is_folded(const at::Tensor& weight, std::string_view text) {
  if (weight.numel() != 0) return false;
  const auto problem = cached_linear_problem(std::string(text));
  return problem->weight_count > 0 && problem->in == problem->out;
}

at::Tensor linear_cuda(const at::Tensor& x, const at::Tensor& weight, at::TensorList graph, int64_t layer,
                       std::string_view text) {
  if (is_folded(weight, text)) return x;
  Groups groups;
  return multiply(x, weight, {}, row_limit("linear (cuda)", graph, x, layer), std::string(text), false, groups);
}

at::Tensor linear_autograd(const at::Tensor& x, const at::Tensor& weight, at::TensorList graph, int64_t layer,
                           std::string_view text) {
  if (is_folded(weight, text)) return x;
  const Optional limit = or_none(row_limit("linear (cuda)", graph, x, layer));
  return NodeLinear::apply(x, weight, Optional(), limit, std::string(text), false, Optional(), 0);
}

at::Tensor species_linear_cuda(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types,
                               at::TensorList graph, int64_t layer, std::string_view text) {
  Groups groups;
  return multiply(x, weight, types, row_limit("species_linear (cuda)", graph, x, layer), std::string(text), false,
                  groups);
}

at::Tensor species_linear_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& types,
                                   at::TensorList graph, int64_t layer, std::string_view text) {
  const Optional limit = or_none(row_limit("species_linear (cuda)", graph, x, layer));
  return NodeLinear::apply(x, weight, Optional(types), limit, std::string(text), false, Optional(), 0);
}

constexpr const char* kGate = "gate (cuda)";

/// out of x, or with grad_out the gradient of x.
at::Tensor run_gate(const at::Tensor& x, const at::Tensor& grad_out, const at::Tensor& limit, const std::string& text) {
  const c10::DeviceGuard device_guard(x.device());
  const auto problem = cached_gate_problem(text);
  const cuda::Scalar scalar = scalar_of(kGate, x);
  check_on(kGate, x, "x", x.device(), x.scalar_type(), {-1, problem->in.dim()});
  require(x.size(0) < (int64_t{1} << 31), "{}: expected fewer than 2^31 rows", kGate);
  const auto kernels = cuda::Gate::make(problem, scalar);
  const int32_t nodes = static_cast<int32_t>(x.size(0));
  const cuda::Stream stream = current_stream(x.device());
  const int64_t width = grad_out.defined() ? problem->in.dim() : problem->out.dim();
  at::Tensor out = at::empty({x.size(0), width}, x.options().requires_grad(false));
  if (grad_out.defined()) {
    check_on(kGate, grad_out, "grad_out", x.device(), x.scalar_type(), {x.size(0), problem->out.dim()});
    kernels->backward(x.const_data_ptr(), grad_out.const_data_ptr(), pointer(limit), nodes, out.mutable_data_ptr(),
                      stream);
  } else {
    kernels->forward(x.const_data_ptr(), pointer(limit), nodes, out.mutable_data_ptr(), stream);
  }
  return out;
}

class GateOnCuda : public torch::autograd::Function<GateOnCuda> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& limit, std::string text) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor out = run_gate(x, {}, or_undefined(limit), text);
    ctx->save_for_backward({x, or_undefined(limit)});
    ctx->saved_data["problem"] = std::move(text);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &limit = saved[1];
    const std::string text = ctx->saved_data["problem"].toStringRef();
    if (at::GradMode::is_enabled()) {  // the result is to be differentiated again
      // The gate of zeros is zero, so it is enough to mask the rows of the input.
      const at::Tensor out = gate_composite(masked(x, limit), x.size(0), *cached_gate_problem(text));
      return {torch::autograd::grad({out}, {x}, {grads[0]}, true, true)[0], {}, {}};
    }
    return {run_gate(x, grads[0].contiguous(), limit, text), {}, {}};
  }
};

at::Tensor gate_cuda(const at::Tensor& x, at::TensorList graph, int64_t layer, std::string_view text) {
  return run_gate(x, {}, row_limit(kGate, graph, x, layer), std::string(text));
}

at::Tensor gate_autograd(const at::Tensor& x, at::TensorList graph, int64_t layer, std::string_view text) {
  return GateOnCuda::apply(x, or_none(row_limit(kGate, graph, x, layer)), std::string(text));
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("linear", linear_cuda);
  library.impl("species_linear", species_linear_cuda);
  library.impl("gate", gate_cuda);
}
TORCH_LIBRARY_IMPL(clebsch, AutogradCUDA, library) {
  library.impl("linear", linear_autograd);
  library.impl("species_linear", species_linear_autograd);
  library.impl("gate", gate_autograd);
}

}  // namespace clebsch::ops::nodes_on_cuda
