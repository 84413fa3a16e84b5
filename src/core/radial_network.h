#pragma once
// The exact radial functions W(r) of a convolution, in fp64 with exact first and second derivatives.
#include <vector>

#include "core/problem.h"

namespace clebsch {

/// Evaluates RadialDescription with given weights. Reference for every radial table and the source they are built from.
class RadialNetwork {
 public:
  /// basis: basis_size() values b_n; weights: weight_count() values, layers concatenated row-major [in][out].
  /// Throws Error when sizes differ from the description.
  RadialNetwork(RadialDescription description, std::vector<double> basis, std::vector<double> weights);
  const RadialDescription& description() const { return description_; }

  /// W, dW/dr, d2W/dr2 at distance r > 0 for the pair cutoff rc (Angstrom); each pointer holds columns() values and
  /// may be null (then that derivative is skipped). All zero for r >= rc.
  void evaluate(double r, double rc, double* value, double* first, double* second) const;

 private:
  RadialDescription description_;
  std::vector<double> basis_, weights_;
};

}  // namespace clebsch
