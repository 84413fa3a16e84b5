#pragma once
// What a draw from a Khatri-Rao product needs besides the trees, from Gram matrices alone: the same code for host and
// device.
#include <vector>

#include "multilinear/sampling/spectrum.h"

namespace clebsch::sampling {

/// The law of one factor's row, given those of the factors before it, is a mixture over components b (rows):
/// p(t) = sum_b p(b) (u_t . (h * b))^2 / |U (h * b)|^2.
struct FactorMixture {
  int factor = 0;
  int count = 0;                   ///< of components
  std::vector<double> components;  ///< (count, columns)
};

/// Algorithm 6 of the dissertation, lines 1 to 4, with a Cholesky factorisation in the place of the eigenvectors of
/// G_>k: the law of the mixture is the same for any b with sum b b' = G_>k.
struct Mixture {
  Spectrum spectrum;  ///< of the product's Gram matrix, the columns of every factor divided by their norms
  std::vector<FactorMixture> factors;
};

/// grams: (columns, columns) of every factor, RowSampler::unit_gram(). exclude: a factor that is left out, or -1.
/// Throws Error when the product's rank is zero.
Mixture make_mixture(const std::vector<std::vector<double>>& grams, int columns, int exclude);

}  // namespace clebsch::sampling
