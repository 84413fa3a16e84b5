#pragma once
// The segment tree over a factor's rows, as host and device see it, and the step from a node to a child.
#include "multilinear/sampling/kernels/philox.h"

namespace clebsch::sampling {

constexpr int kMostLevels = 40;

/// A binary tree whose leaves, all at level `depth`, are runs of rows. Level l has ceil(leaves / 2^(depth - l)) nodes;
/// node q of it has the children 2 q and 2 q + 1, the last node of a level perhaps only the first of them. A matrix is
/// stored for every left child that has a sibling: leaves - 1 of them, level by level.
struct TreeShape {
  long long rows = 0;
  long long leaf_rows = 0;  ///< rows of a leaf, the last leaf has the rest; 0: leaves of sparse rows
  long long leaves = 0;
  int columns = 0;
  int depth = 0;
  long long pairs[kMostLevels + 1] = {};   ///< nodes of level l - 1 with two children
  long long offset[kMostLevels + 1] = {};  ///< matrices stored for the levels above l
};

/// Symmetric matrices are stored as their lower triangle by rows, off-diagonal numbers doubled: h' G h is then the sum
/// over the stored numbers times h_i h_j.
CLEBSCH_HOST_DEVICE long long packed_size(int columns) { return static_cast<long long>(columns) * (columns + 1) / 2; }
CLEBSCH_HOST_DEVICE long long packed_row(int i) { return static_cast<long long>(i) * (i + 1) / 2; }

/// The largest double below one.
constexpr double kBelowOne = 1.0 - 1.1102230246251565e-16;

/// A sample on its way down.
struct Way {
  double mass;   ///< of the node
  double t;      ///< uniform in [0, 1)
  double noise;  ///< mass that is rounding alone: a part of that of the last node whose matrix was multiplied
};

/// Chooses between two children, the left one of mass `left`; t decides and is rescaled to [0, 1), so that no bits of
/// it are lost on the way down. The right child's mass is a difference, so a child whose mass is noise is never taken.
/// True for the left child.
CLEBSCH_HOST_DEVICE bool take_left(double left, double slack, Way* way) {
  const double rest = way->mass - left;
  double c = left / way->mass;
  if (!(left > way->noise)) c = 0.0;
  if (!(rest > way->noise)) c = 1.0;
  const bool goes_left = way->t < c;
  const double next = goes_left ? way->t / c : (way->t - c) / (1.0 - c);
  way->t = next < kBelowOne ? next : kBelowOne;
  way->mass = goes_left ? left : rest;
  if (goes_left) way->noise = slack * left;
  return goes_left;
}

}  // namespace clebsch::sampling
