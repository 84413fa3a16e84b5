#pragma once
// Where an edge of an Allegro network falls in its radial table.
#include "cuda/kernels/table_place.cuh"

/// An edge's row of all tables (-1: from the cutoff on), t, dt/dr, 1/r and its direction. A vector that is not a
/// number, or a pair without a table, gives a t that is not a number.
struct Place {
  int row;
  double t, dt_dr, inverse, x, y, z;
};

__device__ __forceinline__ Place locate(const double* __restrict__ v, int pair, const int* __restrict__ table_index,
                                        const double* __restrict__ cutoffs, int pieces) {
  const double vx = __ldg(v), vy = __ldg(v + 1), vz = __ldg(v + 2);
  const double r = sqrt(vx * vx + vy * vy + vz * vz), cutoff = __ldg(cutoffs + pair);
  Place p = {-1, 0, 0, 0, 0, 0, 0};
  if (r >= cutoff && r - r == 0) return p;  // an infinite vector must show
  const int table = __ldg(table_index + pair);
  const double s = sqrt(r), pieces_per_s = pieces / (sqrt(cutoff) - kFirstKnot);
  const double u = table_place(s, pieces_per_s);
  const bool inside = u >= 0 && table >= 0;
  const int piece = inside ? min(static_cast<int>(u), pieces - 1) : -1;
  p.row = max(table, 0) * (pieces + 1) + piece + 1;
  p.t = table < 0 ? 0.0 / 0.0 : inside ? u - piece : u;
  p.dt_dr = table_slope(s, pieces_per_s);
  p.inverse = 1 / r;
  p.x = vx * p.inverse;
  p.y = vy * p.inverse;
  p.z = vz * p.inverse;
  return p;
}
