#pragma once
// The symmetric contraction as slow loops in fp64 straight from its definition, and random problems to run it on.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/problem/symmetric_problem.h"
#include "reference.h"

namespace clebsch::reference {

/// A random problem text: `count` monomials of degree 1..correlation per output component (fewer when that many do not
/// exist; component 1 gets none), over all components of `in`.
inline std::string random_symmetric_text(const std::string& in, const std::string& out, int correlation, int count,
                                         std::mt19937_64& random) {
  int components = 0, outs = 0;
  const Irreps irreps_in = Irreps::parse(in), irreps_out = Irreps::parse(out);
  for (const MulIrrep& block : irreps_in.blocks()) components += block.ir.dim();
  for (const MulIrrep& block : irreps_out.blocks()) outs += block.ir.dim();
  std::string text = "symmetric in=" + in + " out=" + out + " terms=";
  for (int w = 0; w < outs; ++w) {
    std::set<std::pair<size_t, std::vector<int>>> monomials;
    for (int trial = 0; trial < count && w != 1; ++trial) {
      std::vector<int> factors(1 + random() % correlation);
      for (int& factor : factors) factor = static_cast<int>(random() % components);
      std::sort(factors.begin(), factors.end());
      monomials.emplace(factors.size(), factors);
    }
    std::string list;
    for (const auto& [degree, factors] : monomials) {
      std::string item;
      for (int factor : factors) item += (item.empty() ? "" : ".") + std::to_string(factor);
      list += (list.empty() ? "" : ",") + item;
    }
    text += (w ? ";" : "") + list;
  }
  return text;
}

struct SymmetricOutput {
  Values out, grad_x, grad_coefficients;
};

/// out and the gradients of sum(grad_out * out) for rows [0, rows).
inline SymmetricOutput symmetric_contraction(const SymmetricProblem& problem, int64_t rows, int64_t types,
                                             const Values& x, const Values& coefficients,
                                             const std::vector<int32_t>& type, const Values& grad_out) {
  const int64_t channels = problem.channels, count = static_cast<int64_t>(problem.monomials.size());
  SymmetricOutput result{Values(rows * problem.out_components * channels), Values(rows * problem.components * channels),
                         Values(types * count * channels)};
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < count; ++k) {
      const auto& m = problem.monomials[k];
      for (int64_t c = 0; c < channels; ++c) {
        const auto at = [&](int i) { return (n * problem.components + m.factors[i]) * channels + c; };
        const int64_t to = (n * problem.out_components + m.out) * channels + c;
        const int64_t weight = (type[n] * count + k) * channels + c;
        double product = 1;
        for (int i = 0; i < m.degree; ++i) product *= x[at(i)];
        result.out[to] += coefficients[weight] * product;
        result.grad_coefficients[weight] += grad_out[to] * product;
        for (int i = 0; i < m.degree; ++i) {
          double rest = 1;
          for (int j = 0; j < m.degree; ++j) rest *= j == i ? 1.0 : x[at(j)];
          result.grad_x[at(i)] += grad_out[to] * coefficients[weight] * rest;
        }
      }
    }
  }
  return result;
}

}  // namespace clebsch::reference
