#include "torch/edge_embedding_gradient.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

#include "core/math/coupling.h"
#include "core/math/harmonics.h"
#include "core/problem/problem.h"
#include "torch/tensors.h"

namespace clebsch::ops {
namespace {

/// D[m][k * (2l-1) + m'] with dR_lm/dr_k = sum over m' of D R_(l-1,m'), for l >= 1, row-major.
std::vector<double> solid_derivative(int l) {
  const int rows = 2 * l + 1, inner = 2 * l - 1;
  std::vector<double> derivative(static_cast<size_t>(rows) * 3 * inner, 0.0);
  for (const CouplingEntry& entry : wigner_3j(1, l - 1, l)) {
    derivative[(entry.m3 * 3 + entry.m1) * inner + entry.m2] = entry.value;
  }
  // Euler: sum over k of n_k dR_l/dr_k = l R_l on the unit sphere. This fixes the factor that the coupling leaves open.
  const double n[] = {0.48, 0.6, 0.64};
  double y[harmonics_count(kMaxDegree)];
  spherical_harmonics(l, n[0], n[1], n[2], y);
  const double *lower = y + (l - 1) * (l - 1), *same = y + l * l;
  double product = 0;
  for (int m = 0; m < rows; ++m) {
    for (int k = 0; k < 3; ++k) {
      for (int p = 0; p < inner; ++p) product += same[m] * derivative[(m * 3 + k) * inner + p] * n[k] * lower[p];
    }
  }
  for (double& value : derivative) value *= l * rows / product;
  return derivative;
}

/// (2l+1, 3 (2l-1)) fp64 on the device of `like`.
at::Tensor derivative_matrix(int l, const at::Tensor& like) {
  std::vector<double> values = solid_derivative(l);
  return at::from_blob(values.data(), {2 * l + 1, 3 * (2 * l - 1)}, at::kDouble).clone().to(like.device());
}

/// (E, 1): true for the edges of the rows that a call computes.
at::Tensor computed_edges(const at::Tensor& edge_vec, at::TensorList graph, int64_t layer) {
  const at::Tensor &row_ptr = graph[0], &layer_rows = graph[5];
  const c10::SymInt last = row_ptr.sym_size(0) - 1;
  const at::Tensor count = layer < 0
                               ? row_ptr.narrow_symint(0, last, 1)
                               : row_ptr.index_select(0, layer_rows.narrow(0, layer, 1).clamp_max(c10::Scalar(last)));
  return (at::arange(c10::Scalar(edge_vec.sym_size(0)), row_ptr.options()) < count).unsqueeze(1);
}

/// d basis / dr, (E, n), from r (E, 1).
at::Tensor basis_slope(const at::Tensor& r, const at::Tensor& cutoff, const at::Tensor& roots,
                       const RadialDescription& radial) {
  const double p = radial.cutoff_p, a = (p + 1) * (p + 2) / 2, b = p * (p + 2), c = p * (p + 1) / 2;
  const at::Tensor inside = r < cutoff;
  // Outside of the cutoff any point will do where everything is finite: values that are masked later must not make
  // gradients that are not numbers.
  const at::Tensor x = at::where(inside, r / cutoff, at::ones_like(r) * 0.5);
  const at::Tensor power = at::pow(x, p - 1);
  const at::Tensor value = 1 - power * x * (a - x * (b - x * c));
  const at::Tensor slope = -power * (a * p - x * (b * (p + 1) - x * (c * (p + 2))));
  const at::Tensor sine = at::sin(roots * x) / x, cosine = at::cos(roots * x);
  const at::Tensor derivative = ((roots * cosine - sine) / x * value + sine * slope) * radial.prefactor / cutoff;
  return at::where(inside, derivative, at::zeros_like(derivative));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> call_edge_embedding(const at::Tensor& edge_vec, at::TensorList graph,
                                                       const at::Tensor& types, at::TensorList radial, int64_t layer,
                                                       std::string_view problem, at::ScalarType dtype) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::edge_embedding", "")
                             .typed<decltype(call_edge_embedding)>();
  return op.call(edge_vec, graph, types, radial, layer, problem, dtype);
}

at::Tensor edge_embedding_gradient(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis,
                                   const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                                   at::TensorList radial, int64_t layer, std::string_view text) {
  const auto problem = conv_problem("edge_embedding", text, true);
  const at::Tensor valid = computed_edges(edge_vec, graph, layer);
  const auto masked = [&](const at::Tensor& t) {
    const at::Tensor value = t.to(at::kDouble);
    return at::where(valid, value, at::zeros_like(value));
  };
  const at::Tensor vectors = at::where(valid, edge_vec, at::ones_like(edge_vec));
  const at::Tensor r = vectors.square().sum(1, true).sqrt(), n = vectors / r;
  const at::Tensor gh = masked(grad_harmonics), gb = masked(grad_basis);

  const auto pair_types = [&](const at::Tensor& nodes) {
    const at::Tensor ids = at::where(valid.squeeze(1), nodes, at::zeros_like(nodes));
    return types.index_select(0, ids).to(at::kLong);
  };
  const at::Tensor pairs = pair_types(graph[2]) * radial[2].size(0) + pair_types(graph[1]);
  const at::Tensor cutoff = radial[2].flatten().index_select(0, pairs).unsqueeze(1);
  const at::Tensor slope = (basis_slope(r, cutoff, radial[3].unsqueeze(0), *problem->radial) * gb).sum(1, true);
  at::Tensor gradient = slope * n;

  if (problem->lmax_in2 > 0) {
    const at::Tensor y = std::get<0>(call_edge_embedding(vectors, graph, types, radial, layer, text, at::kDouble));
    at::Tensor tangent = at::zeros_like(vectors), along = at::zeros_like(r);
    for (int l = 1; l <= problem->lmax_in2; ++l) {
      const at::Tensor g = gh.narrow(1, l * l, 2 * l + 1);
      const at::Tensor lower = y.narrow(1, (l - 1) * (l - 1), 2 * l - 1).unsqueeze(1);
      tangent = tangent + (at::matmul(g, derivative_matrix(l, vectors)).unflatten(1, {3, 2 * l - 1}) * lower).sum(2);
      along = along + l * (g * y.narrow(1, l * l, 2 * l + 1)).sum(1, true);
    }
    gradient = gradient + (tangent - n * along) / r;
  }
  return at::where(valid, gradient, at::zeros_like(gradient));
}

}  // namespace clebsch::ops
