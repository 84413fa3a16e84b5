#pragma once
// Piecewise quintic tables of radial functions: C2 everywhere, exactly zero at each pair's cutoff.
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/radial/radial_network.h"

namespace clebsch {

/// First knot in Angstrom; below it W continues as the parabola in r with the first knot's value, slope and curvature:
/// C2, and with a bounded slope down to r = 0.
constexpr double kTableStart = 0.4;
/// Number of quintic pieces to begin with (src/model/run/radial_tables.cpp takes more for a steep network): 96 keep
/// forces within 5e-7 of the exact network (tests/parity, worst of presets S, M, l_max 4 and the trained water model;
/// 48 pieces 1.2e-5, 64 2.4e-6, 80 9e-7) and cost the CPU 8% of a step against 48.
constexpr int kTablePieces = 96;
/// Coefficients per piece and column.
constexpr int kTableOrder = 6;

/// Where a distance falls in a table: coefficients of row `piece`, polynomial in t, and dt/dr.
/// Rows: 0 is the continuation below kTableStart, 1..pieces the quintic pieces, so a table has pieces+1 rows.
/// Knots are uniform in s = sqrt(r); t = (s - s_knot) / h in [0,1]. In row 0 t is linear in r instead, negative, with
/// the same value and slope at the first knot: t = (r - kTableStart) / (2 sqrt(kTableStart) h).
struct TablePoint {
  int piece;
  double t, dt_dr;
};

/// Requires 0 < r < rc. Static: files compiled for different instruction sets must not share one copy.
static inline TablePoint locate(double r, double rc, int pieces) {
  const double s0 = std::sqrt(kTableStart), s = std::sqrt(r), inv_h = pieces / (std::sqrt(rc) - s0);
  const double u = (s - s0) * inv_h;
  int k = static_cast<int>(std::floor(u));
  if (k >= pieces) k = pieces - 1;
  if (k < 0) return {0, 0.5 * u * (s + s0) / s0, 0.5 * inv_h / s0};
  return {k + 1, u - k, 0.5 * inv_h / s};
}

/// Coefficients of one cutoff's table, fp64, layout [pieces + 1][kTableOrder][columns]; W = sum_k c_k t^k.
/// Quintic Hermite from the network's exact value, slope and curvature at the knots (all zero at rc, unless the
/// network jumps there).
std::vector<double> build_radial_table(const RadialNetwork& network, double rc, int pieces = kTablePieces);

/// Largest |W_table - W| and |dW_table/dr - dW/dr| over [r_from, rc], each relative to the largest |W| (|dW/dr|) there,
/// sampled at `samples` points between and on the knots. What `clebsch info` prints.
struct TableError {
  double value, slope;
};
TableError radial_table_error(const RadialNetwork& network, double rc, int pieces, double r_from = 0.8,
                              int samples = 2000);
/// The same of other polynomials in the layout of build_radial_table.
TableError radial_table_error(const RadialNetwork& network, double rc, int pieces, const std::vector<double>& table,
                              double r_from = 0.8, int samples = 2000);

}  // namespace clebsch
