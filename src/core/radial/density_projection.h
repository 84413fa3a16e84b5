#pragma once
// A convolution whose senders' features follow from their types alone, as in the first layer of MACE and NequIP, in two
// steps: a sum over edges without channels, and a linear map.
//
// With W(r) of a channel and path a spline (core/radial/radial_spline.h) of coefficients c[j], and x the feature of a
// sender of slot s (a type in use), out = sum over edges of x W(r) Y becomes
//   A[s, j, Y's component] = sum over the edges from slot s of B_j(r) Y,   out = sum over s, j of (x[s] c[j]) A[s, j].
// Backward, dE/dA is the map's transpose of the messages' gradient. dW/dr is a sum of differences of neighbouring
// coefficients, which are small beside them: taken from rounded rows of dE/dA it would lose two digits. So the
// transposed map has rows of differences besides.
//
// The first costs six products a component and edge whatever the number of channels, the second is a matrix product of
// the atoms. The idea is that of the density projections of atomic cluster expansions (Drautz 2019,
// doi:10.1103/PhysRevB.99.014104).
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem/problem.h"

namespace clebsch {

/// The sizes of a problem's density projection, and its two linear maps.
struct DensityProjection {
  int slots = 0;  ///< kinds of senders
  int rows = 0;   ///< of a slot: spline_rows(pieces)
  int lmax = 0;   ///< of the harmonics
  /// Problems of the maps (core/problem/node_problem.h). `linear`, forward: from slots * rows channels of every degree.
  /// `differences`, whose transpose serves backward: from twice as many, the rows and then their differences.
  std::string linear, differences;
  int pieces() const;
  /// Numbers of an atom in A: [component][slot][row]. Its gradient has twice as many, [component][kind][slot][row].
  int64_t width() const { return int64_t{(lmax + 1) * (lmax + 1)} * slots * rows; }
};

/// Pieces are a multiple of this, so that rows are multiples of eight numbers.
constexpr int kProjectionPieces = 8;
/// The pieces that a projection has where a table would have so many: a third more. In pieces of length h a quintic
/// Hermite polynomial's slope is off by up to 7.4e-5 h^5 W, a spline's by 2.0e-4 (the Bernoulli polynomial B_5 over
/// 120), and (4/3)^5 = 4.2 makes up for that.
constexpr int projection_pieces(int pieces) {
  const int more = (4 * pieces + 2) / 3;
  return (more + kProjectionPieces - 1) / kProjectionPieces * kProjectionPieces;
}

/// Whether the problem has one block of scalars as input and from it one uvu path with weights to every degree of the
/// harmonics, each to an output block of its own, in order.
bool can_project(const Problem& problem);

/// Of a problem that can_project(); pieces a multiple of kProjectionPieces. Throws Error for others.
DensityProjection density_projection(const Problem& problem, int pieces, int slots);

/// The map's weight, (weights of `linear`): spline [rows][problem.weight_count] of radial_spline(), features
/// [slots][channels of the input].
std::vector<double> projection_weight(const Problem& problem, const DensityProjection& projection,
                                      const std::vector<double>& spline, const std::vector<double>& features);

/// The weight of `differences` from that of `linear`. Difference j of a slot is row j + 1 less row j; the last is zero.
/// Across the rows of the continuation, which are no spline, it has no meaning and nobody reads it.
std::vector<double> projection_differences(const Problem& problem, const DensityProjection& projection,
                                           const std::vector<double>& weight);

/// The weight of the same map and then another from problem.out to itself, one matrix for every block, whose weight is
/// `next` (core/problem/node_problem.h).
std::vector<double> projection_weight_and(const Problem& problem, const DensityProjection& projection,
                                          const std::vector<double>& weight, const std::vector<double>& next);

}  // namespace clebsch
