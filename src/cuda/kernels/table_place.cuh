#pragma once
// Where a distance falls in a radial table: core/radial/radial_table.h's locate() as one number, with s = sqrt(r) and
// pieces_per_s = pieces / (sqrt(cutoff) - kFirstKnot).

/// sqrt(kTableStart) of core/radial/radial_table.h.
constexpr double kFirstKnot = 0.63245553203367588;

/// Below the first knot the number is negative and is t of row 0; else it is the piece, from 0, plus t. Where s is not
/// finite it is not a number: 0 times infinity.
__device__ __forceinline__ double table_place(double s, double pieces_per_s) {
  const double u = (s - kFirstKnot) * pieces_per_s + 0.0 * s;
  return u < 0 ? 0.5 / kFirstKnot * u * (s + kFirstKnot) : u;
}

/// Its derivative by r.
__device__ __forceinline__ double table_slope(double s, double pieces_per_s) {
  return 0.5 * pieces_per_s / fmax(s, kFirstKnot);
}
