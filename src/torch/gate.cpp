// clebsch::gate: activations of scalars, and scalars that multiply the channels of higher degrees (e3nn's Gate).
// Differentiable to any order.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/problem/gate_plan.h"
#include "torch/gate.h"
#include "torch/tensors.h"

namespace clebsch::ops {
namespace {

constexpr const char* kOp = "gate";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// sigmoid(x), or tanh(x) where that is the activation, (rows, columns): torch's vectorised functions, on strided
/// views.
at::Tensor activation_arguments(const GatePlan& plan, const at::Tensor& x, int64_t rows) {
  at::Tensor table = at::empty({rows, plan.columns}, x.options().requires_grad(false));
  for (const auto& s : plan.scalars) {
    const at::Tensor from = x.narrow(0, 0, rows).narrow(1, s.in, s.count);
    at::Tensor to = table.narrow(1, s.column, s.count);
    s.act == GateActivation::tanh ? at::tanh_out(to, from) : at::sigmoid_out(to, from);
  }
  return table;
}

/// Value and slope of the activation from its argument x and a = sigmoid(x) or tanh(x).
template <typename T>
struct Act {
  T silu, tanh, sigmoid;
  explicit Act(const GateProblem& problem)
      : silu(static_cast<T>(problem.silu)),
        tanh(static_cast<T>(problem.tanh)),
        sigmoid(static_cast<T>(problem.sigmoid.value_or(0.0))) {}
  T value(GateActivation act, T x, T a) const {
    return act == GateActivation::tanh ? tanh * a : act == GateActivation::sigmoid ? sigmoid * a : silu * x * a;
  }
  T slope(GateActivation act, T x, T a) const {
    if (act == GateActivation::tanh) return tanh * (1 - a * a);
    if (act == GateActivation::sigmoid) return sigmoid * a * (1 - a);
    return silu * a * (1 + x * (1 - a));
  }
};

template <typename T>
void forward_rows(const GateProblem& problem, const GatePlan& plan, const at::Tensor& x, const at::Tensor& table,
                  const at::Tensor& out) {
  const Act<T> act(problem);
  const int64_t d_in = x.size(1), d_out = out.size(1);
  at::parallel_for(0, table.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = x.const_data_ptr<T>() + i * d_in;
      const T* a = table.const_data_ptr<T>() + i * plan.columns;
      T* to = out.mutable_data_ptr<T>() + i * d_out;
      for (const auto& s : plan.scalars) {
        if (s.out < 0) continue;
        for (int64_t c = 0; c < s.count; ++c) to[s.out + c] = act.value(s.act, row[s.in + c], a[s.column + c]);
      }
      for (const auto& g : plan.gated) {
        for (int64_t c = 0; c < g.count; ++c) {
          const T gate = act.value(g.act, row[g.gate + c], a[g.column + c]);
          for (int m = 0; m < g.dim; ++m) to[g.out + m * g.out_stride + c] = gate * row[g.in + m * g.in_stride + c];
        }
      }
    }
  });
}

template <typename T>
void backward_rows(const GateProblem& problem, const GatePlan& plan, const at::Tensor& x, const at::Tensor& table,
                   const at::Tensor& grad_out, const at::Tensor& grad_x) {
  const Act<T> act(problem);
  const int64_t d_in = x.size(1), d_out = grad_out.size(1);
  at::parallel_for(0, table.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = x.const_data_ptr<T>() + i * d_in;
      const T* a = table.const_data_ptr<T>() + i * plan.columns;
      const T* grad = grad_out.const_data_ptr<T>() + i * d_out;
      T* to = grad_x.mutable_data_ptr<T>() + i * d_in;
      for (const auto& s : plan.scalars) {
        if (s.out < 0) continue;
        for (int64_t c = 0; c < s.count; ++c) {
          to[s.in + c] = grad[s.out + c] * act.slope(s.act, row[s.in + c], a[s.column + c]);
        }
      }
      for (const auto& g : plan.gated) {
        for (int64_t c = 0; c < g.count; ++c) {
          const T gate = act.value(g.act, row[g.gate + c], a[g.column + c]);
          T sum = 0;
          for (int m = 0; m < g.dim; ++m) {
            const T up = grad[g.out + m * g.out_stride + c];
            sum += up * row[g.in + m * g.in_stride + c];
            to[g.in + m * g.in_stride + c] = up * gate;
          }
          to[g.gate + c] = sum * act.slope(g.act, row[g.gate + c], a[g.column + c]);
        }
      }
    }
  });
}

at::Tensor forward_rows_of(const at::Tensor& x, int64_t rows, const GateProblem& problem) {
  const GatePlan plan = make_gate_plan(problem);
  at::Tensor out = at::empty({x.size(0), problem.out.dim()}, x.options().requires_grad(false));
  zero_tail(out, rows);
  const at::Tensor table = activation_arguments(plan, x, rows);
  dispatch_dtype(x.scalar_type(), [&](auto zero) { forward_rows<decltype(zero)>(problem, plan, x, table, out); });
  return out;
}

int64_t check(const at::Tensor& x, at::TensorList graph, int64_t layer, const GateProblem& problem) {
  check_tensor(kOp, "x", x, check_compute_dtype(kOp, "x", x), {-1, problem.in.dim()});
  return check_rows(kOp, graph, x.size(0), layer);
}

at::Tensor forward_cpu(const at::Tensor& x, at::TensorList graph, int64_t layer, std::string_view text) {
  const auto problem = cached_gate_problem(std::string(text));
  return forward_rows_of(x, check(x, graph, layer, *problem), *problem);
}

at::Tensor forward_meta(const at::Tensor& x, at::TensorList, int64_t, std::string_view text) {
  return at::empty_symint({x.sym_size(0), cached_gate_problem(std::string(text))->out.dim()}, x.options());
}

class Gate : public torch::autograd::Function<Gate> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t rows, std::string text) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor out = forward_rows_of(x, rows, *cached_gate_problem(text));
    ctx->save_for_backward({x});
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["problem"] = std::move(text);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const int64_t rows = ctx->saved_data["rows"].toInt();
    const auto problem = cached_gate_problem(ctx->saved_data["problem"].toStringRef());
    if (at::GradMode::is_enabled()) {  // the result is to be differentiated again
      return {torch::autograd::grad({gate_composite(x, rows, *problem)}, {x}, {grads[0]}, true, true)[0], {}, {}};
    }
    const GatePlan plan = make_gate_plan(*problem);
    const at::Tensor grad_out = grads[0].contiguous();
    at::Tensor grad_x = at::empty(x.sizes(), x.options().requires_grad(false));
    zero_tail(grad_x, rows);
    const at::Tensor table = activation_arguments(plan, x, rows);
    dispatch_dtype(x.scalar_type(),
                   [&](auto zero) { backward_rows<decltype(zero)>(*problem, plan, x, table, grad_out, grad_x); });
    return {grad_x, {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& x, at::TensorList graph, int64_t layer, std::string_view text) {
  const int64_t rows = check(x, graph, layer, *cached_gate_problem(std::string(text)));
  return Gate::apply(x, rows, std::string(text));
}

}  // namespace

at::Tensor gate_composite(const at::Tensor& x, int64_t rows, const GateProblem& problem) {
  const GatePlan plan = make_gate_plan(problem);
  const at::Tensor used = x.narrow(0, 0, rows);
  at::Tensor out = at::zeros({x.size(0), problem.out.dim()}, x.options().requires_grad(false));
  auto activate = [&](int64_t offset, int64_t count, GateActivation act) {
    const at::Tensor v = used.narrow(1, offset, count);
    if (act == GateActivation::sigmoid) return at::sigmoid(v) * *problem.sigmoid;
    return act == GateActivation::tanh ? at::tanh(v) * problem.tanh : at::silu(v) * problem.silu;
  };
  for (const auto& s : plan.scalars) {
    if (s.out >= 0) out.narrow(0, 0, rows).narrow(1, s.out, s.count).copy_(activate(s.in, s.count, s.act));
  }
  for (const auto& g : plan.gated) {
    const at::Tensor gate = activate(g.gate, g.count, g.act);
    for (int m = 0; m < g.dim; ++m) {
      out.narrow(0, 0, rows)
          .narrow(1, g.out + m * g.out_stride, g.count)
          .copy_(gate * used.narrow(1, g.in + m * g.in_stride, g.count));
    }
  }
  return out;
}

TORCH_LIBRARY_IMPL(clebsch, CPU, library) { library.impl("gate", forward_cpu); }
TORCH_LIBRARY_IMPL(clebsch, Meta, library) { library.impl("gate", forward_meta); }
TORCH_LIBRARY_IMPL(clebsch, AutogradCPU, library) { library.impl("gate", forward_autograd); }

}  // namespace clebsch::ops
