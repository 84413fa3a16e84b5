// clebsch::symmetric_contraction: MACE's product basis as sorted monomials with given coefficients. First and second
// derivatives on every device: each device implements the three ops registered here.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "core/errors.h"
#include "cpu/symmetric_contraction.h"
#include "torch/symmetric_contraction.h"
#include "torch/tensors.h"

namespace clebsch::ops::symmetric_contraction_op {
namespace {

constexpr const char* kOp = "symmetric_contraction";

struct Arguments {
  std::shared_ptr<const SymmetricProblem> problem;
  at::ScalarType dtype;
  int64_t rows;

  Arguments(const at::Tensor& x, const at::Tensor& coefficients, const at::Tensor& types, at::TensorList graph,
            int64_t layer, std::string_view text)
      : problem(cached_symmetric_problem(std::string(text))), dtype(check_compute_dtype(kOp, "x", x)) {
    check_tensor(kOp, "x", x, dtype, {-1, problem->in.dim()});
    check_coefficients("coefficients", coefficients, -1);
    check_types(kOp, types, x.size(0), coefficients.size(0));
    rows = check_rows(kOp, graph, x.size(0), layer);
  }

  void check_coefficients(const char* name, const at::Tensor& coefficients, int64_t types) const {
    const auto monomials = static_cast<int64_t>(problem->monomials.size());
    check_tensor(kOp, name, coefficients, dtype, {types, monomials, problem->channels});
  }

  template <typename T>
  cpu::SymmetricInput<T> input(const at::Tensor& x, const at::Tensor& coefficients, const at::Tensor& types) const {
    return {x.const_data_ptr<T>(), coefficients.const_data_ptr<T>(), types.const_data_ptr<int32_t>(), rows,
            coefficients.size(0)};
  }

  /// Allocates an output whose rows behind those computed are zero; an undefined tensor when it is not wanted.
  at::Tensor rows_of(const at::Tensor& like, int64_t columns, bool wanted) const {
    if (!wanted) return {};
    at::Tensor out = at::empty({like.size(0), columns}, like.options().requires_grad(false));
    zero_tail(out, rows);
    return out;
  }
};

at::Tensor empty_if(const at::Tensor& like, bool wanted) {
  return wanted ? at::empty(like.sizes(), like.options().requires_grad(false)) : at::Tensor();
}

template <typename T>
T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& coefficients, const at::Tensor& types,
                       at::TensorList graph, int64_t layer, std::string_view text) {
  const Arguments a(x, coefficients, types, graph, layer, text);
  const at::Tensor out = a.rows_of(x, a.problem->out.dim(), true);
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::symmetric_contraction_forward<T>(*a.problem, a.input<T>(x, coefficients, types), out.mutable_data_ptr<T>(),
                                          at::get_num_threads());
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> backward_cpu(const at::Tensor& grad_out, const at::Tensor& x,
                                                const at::Tensor& coefficients, const at::Tensor& types,
                                                at::TensorList graph, int64_t layer, std::string_view text,
                                                std::array<bool, 2> mask) {
  const Arguments a(x, coefficients, types, graph, layer, text);
  check_tensor(kOp, "grad_out", grad_out, a.dtype, {x.size(0), a.problem->out.dim()});
  const at::Tensor grad_x = a.rows_of(x, x.size(1), mask[0]), grad_coefficients = empty_if(coefficients, mask[1]);
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::symmetric_contraction_backward<T>(*a.problem, a.input<T>(x, coefficients, types), grad_out.const_data_ptr<T>(),
                                           data_or_null<T>(grad_x), data_or_null<T>(grad_coefficients),
                                           at::get_num_threads());
  });
  return {grad_x, grad_coefficients};
}

SymmetricGradients double_backward_cpu(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& tangent_x,
                                       const at::Tensor& coefficients, const at::Tensor& tangent_coefficients,
                                       const at::Tensor& types, at::TensorList graph, int64_t layer,
                                       std::string_view text, std::array<bool, 3> mask) {
  const Arguments a(x, coefficients, types, graph, layer, text);
  check_tensor(kOp, "grad_out", grad_out, a.dtype, {x.size(0), a.problem->out.dim()});
  check_tensor(kOp, "tangent_x", tangent_x, a.dtype, x.sizes());
  a.check_coefficients("tangent_coefficients", tangent_coefficients, coefficients.size(0));
  const at::Tensor out = a.rows_of(x, a.problem->out.dim(), mask[0]), grad_x = a.rows_of(x, x.size(1), mask[1]),
                   grad_coefficients = empty_if(coefficients, mask[2]);
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::symmetric_contraction_tangent<T>(*a.problem, a.input<T>(x, coefficients, types), tangent_x.const_data_ptr<T>(),
                                          tangent_coefficients.const_data_ptr<T>(), grad_out.const_data_ptr<T>(),
                                          data_or_null<T>(out), data_or_null<T>(grad_x),
                                          data_or_null<T>(grad_coefficients), at::get_num_threads());
  });
  return {out, grad_x, grad_coefficients};
}

at::Tensor like(const at::Tensor& tensor, bool wanted) {
  return wanted ? at::empty_symint(tensor.sym_sizes(), tensor.options()) : at::Tensor();
}

at::Tensor forward_meta(const at::Tensor& x, const at::Tensor&, const at::Tensor&, at::TensorList, int64_t,
                        std::string_view text) {
  return at::empty_symint({x.sym_size(0), cached_symmetric_problem(std::string(text))->out.dim()}, x.options());
}

std::tuple<at::Tensor, at::Tensor> backward_meta(const at::Tensor&, const at::Tensor& x, const at::Tensor& coefficients,
                                                 const at::Tensor&, at::TensorList, int64_t, std::string_view,
                                                 std::array<bool, 2> mask) {
  return {like(x, mask[0]), like(coefficients, mask[1])};
}

SymmetricGradients double_backward_meta(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor&,
                                        const at::Tensor& coefficients, const at::Tensor&, const at::Tensor&,
                                        at::TensorList, int64_t, std::string_view, std::array<bool, 3> mask) {
  return {like(grad_out, mask[0]), like(x, mask[1]), like(coefficients, mask[2])};
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("symmetric_contraction", forward_cpu);
  library.impl("symmetric_contraction_backward", backward_cpu);
  library.impl("symmetric_contraction_double_backward", double_backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("symmetric_contraction", forward_meta);
  library.impl("symmetric_contraction_backward", backward_meta);
  library.impl("symmetric_contraction_double_backward", double_backward_meta);
}

}  // namespace clebsch::ops::symmetric_contraction_op
