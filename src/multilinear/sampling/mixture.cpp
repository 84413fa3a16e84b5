#include "multilinear/sampling/mixture.h"

#include <algorithm>

#include "core/errors.h"

namespace clebsch::sampling {
namespace {

void multiply(std::vector<double>& to, const std::vector<double>& from) {
  for (size_t k = 0; k < to.size(); ++k) to[k] *= from[k];
}

}  // namespace

Mixture make_mixture(const std::vector<std::vector<double>>& grams, int columns, int exclude) {
  Mixture mixture;
  std::vector<double> product(static_cast<size_t>(columns) * static_cast<size_t>(columns), 1.0);
  const int factors = static_cast<int>(grams.size());
  for (int k = 0; k < factors; ++k) {
    if (k != exclude) multiply(product, grams[static_cast<size_t>(k)]);
  }
  mixture.spectrum = spectrum(product, columns);
  require(mixture.spectrum.rank > 0,
          "rank 0: every row of the Khatri-Rao product is zero, so there is nothing to draw; each of its {} columns is "
          "zero in some factor",
          columns);
  std::vector<double> rest = pseudo_inverse(mixture.spectrum, columns);
  for (int k = factors - 1; k >= 0; --k) {
    if (k == exclude) continue;
    FactorMixture factor;
    factor.factor = k;
    factor.components = square_root_rows(rest, columns);
    factor.count = static_cast<int>(factor.components.size()) / columns;
    mixture.factors.push_back(std::move(factor));
    multiply(rest, grams[static_cast<size_t>(k)]);
  }
  std::reverse(mixture.factors.begin(), mixture.factors.end());
  return mixture;
}

}  // namespace clebsch::sampling
