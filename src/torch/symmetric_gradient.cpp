#include "torch/symmetric_gradient.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <vector>

namespace clebsch::ops {
namespace {

constexpr int64_t kTemporaryBytes = int64_t{1} << 26;  // of one of some four arrays (rows, K, C)

/// Component of factor i of every monomial; where a monomial has fewer, the component behind the last, which is one.
at::Tensor factor_index(const SymmetricProblem& problem, int i, at::Device device) {
  std::vector<int64_t> index;
  for (const auto& m : problem.monomials) index.push_back(i < m.degree ? m.factors[i] : problem.components);
  return at::tensor(index, at::kLong).to(device);
}

}  // namespace

at::Tensor symmetric_coefficient_gradient(const SymmetricProblem& problem, const at::Tensor& grad_out,
                                          const at::Tensor& x, const at::Tensor& tangent_x, const at::Tensor& types,
                                          const at::Tensor& row_limit, int64_t type_count) {
  const int64_t rows = x.size(0), count = static_cast<int64_t>(problem.monomials.size()), channels = problem.channels;
  at::Tensor sum = at::zeros({type_count, count, channels}, x.options().requires_grad(false));
  if (rows == 0 || count == 0 || type_count == 0) return sum;
  std::array<at::Tensor, kMaxCorrelation> index;
  int degree = 0;
  for (const auto& m : problem.monomials) degree = std::max(degree, m.degree);
  for (int i = 0; i < degree; ++i) index[i] = factor_index(problem, i, x.device());
  std::vector<int64_t> outs;
  for (const auto& m : problem.monomials) outs.push_back(m.out);
  const at::Tensor out_index = at::tensor(outs, at::kLong).to(x.device());

  at::Tensor counted = (types >= 0).logical_and(types < type_count);
  if (row_limit.defined()) counted = counted.logical_and(at::arange(rows, types.options()) < row_limit);
  const at::Tensor type = types.clamp(0, type_count - 1).to(at::kLong);
  const at::Tensor grad = (grad_out * counted.unsqueeze(1)).view({rows, problem.out_components, channels});
  // A component more, which is one and does not change.
  const at::Tensor with_one = at::constant_pad_nd(x.view({rows, problem.components, channels}), {0, 0, 0, 1}, 1);
  const at::Tensor change =
      tangent_x.defined() ? at::constant_pad_nd(tangent_x.view({rows, problem.components, channels}), {0, 0, 0, 1}, 0)
                          : at::Tensor();
  const int64_t step = std::max<int64_t>(1, kTemporaryBytes / (count * channels * x.element_size()));
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t length = std::min(step, rows - begin);
    const at::Tensor part = with_one.narrow(0, begin, length);
    at::Tensor product, tangent;
    for (int i = 0; i < degree; ++i) {
      const at::Tensor factor = part.index_select(1, index[i]);
      if (change.defined()) {
        const at::Tensor moved = change.narrow(0, begin, length).index_select(1, index[i]);
        tangent = i == 0 ? moved : tangent * factor + product * moved;
      }
      product = i == 0 ? factor : product * factor;
    }
    const at::Tensor weight = grad.narrow(0, begin, length).index_select(1, out_index);
    sum.index_add_(0, type.narrow(0, begin, length), weight * (change.defined() ? tangent : product));
  }
  return sum;
}

}  // namespace clebsch::ops
