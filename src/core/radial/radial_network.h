#pragma once
// The exact radial functions W(r) of a convolution, in fp64 with exact first and second derivatives.
#include <memory>
#include <vector>

#include "core/problem/problem.h"

namespace clebsch {

/// Evaluates RadialDescription with given weights, for one pair of types. Reference for every radial table and the
/// source they are built from.
class RadialNetwork {
 public:
  /// basis: basis_size() values b_n and, with a distance transform, q, p, a, r0 (agnesi) or alpha, r0 (soft); weights:
  /// weight_count() values. Throws Error when sizes differ from the description.
  RadialNetwork(RadialDescription description, std::vector<double> basis, std::vector<double> weights);
  const RadialDescription& description() const { return description_; }

  /// W, dW/dr, d2W/dr2 at distance r > 0 for the pair cutoff rc (Angstrom); each pointer holds columns() values and
  /// may be null (then that derivative is skipped). All zero for r >= rc.
  void evaluate(double r, double rc, double* value, double* first, double* second) const;

 private:
  RadialDescription description_;
  std::vector<double> basis_, weights_;
};

/// Radial functions of one layer, [centre][neighbour] or a single one that all pairs of types share.
using RadialNetworks = std::vector<std::shared_ptr<const RadialNetwork>>;

/// The networks of a layer from its `basis` and `network` tensors (src/torch/ops.schema); null for pairs of types not
/// in use. Pairs with the same functions share one object. own: weights at the beginning of a pair's network that every
/// ordered pair has for itself. basis holds description.basis_values(types) values, weights those of all pairs.
RadialNetworks pair_networks(const RadialDescription& description, int64_t own, const std::vector<double>& basis,
                             const std::vector<double>& weights, const std::vector<bool>& in_use);

}  // namespace clebsch
