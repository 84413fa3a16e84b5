#pragma once
// Random radial networks like those of a fresh NequIP model.
#include <cmath>
#include <random>
#include <vector>

#include "core/radial/radial_network.h"

namespace clebsch::test {

/// Bessel frequencies n pi, weights normal with variance 1/fan-in (2/fan-in after an activation).
struct RandomRadial {
  RadialDescription description;
  std::vector<double> basis, weights;

  RandomRadial(unsigned seed, std::vector<int64_t> widths, double p, double rc = 5.0) {
    description.widths = std::move(widths);
    description.cutoff_p = p;
    description.prefactor = 2.0 / (rc * rc);
    for (int64_t n = 1; n <= description.basis_size(); ++n) basis.push_back(n * std::acos(-1.0));
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    for (size_t layer = 0; layer + 1 < description.widths.size(); ++layer) {
      const int64_t rows = description.widths[layer];
      const double scale = std::sqrt((layer == 0 ? 1.0 : 2.0) / rows);
      for (int64_t i = 0; i < rows * description.widths[layer + 1]; ++i) weights.push_back(scale * normal(rng));
    }
  }
  RadialNetwork network() const { return RadialNetwork(description, basis, weights); }
};

}  // namespace clebsch::test
