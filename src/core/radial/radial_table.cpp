#include "core/radial/radial_table.h"

#include <algorithm>

#include "core/errors.h"

namespace clebsch {
namespace {

void check(double rc, int pieces) {
  require(std::isfinite(rc) && rc > kTableStart, "radial table: expected a cutoff above {} Angstrom, got {}",
          kTableStart, rc);
  require(pieces >= 1 && pieces <= 4096, "radial table: expected 1 to 4096 pieces, got {}", pieces);
}

// W, dW/dt and d2W/dt2 at one knot, with t = s/h and s = sqrt(r), and d2W/dr2; all zero at the cutoff by construction,
// unless the network jumps there.
struct Knot {
  std::vector<double> value, first, second, curvature;
};

Knot knot(const RadialNetwork& network, double rc, double s, double h, bool at_cutoff) {
  const int64_t columns = network.description().columns();
  const std::vector<double> zeros(columns);
  Knot k{zeros, zeros, zeros, zeros};
  if (at_cutoff && network.description().smooth_end()) return k;
  network.evaluate(at_cutoff ? std::nextafter(rc, 0.0) : s * s, rc, k.value.data(), k.first.data(), k.curvature.data());
  for (int64_t c = 0; c < columns; ++c) {
    const double slope = k.first[c];
    k.first[c] = 2.0 * s * slope * h;
    k.second[c] = (4.0 * s * s * k.curvature[c] + 2.0 * slope) * h * h;
  }
  return k;
}

}  // namespace

std::vector<double> build_radial_table(const RadialNetwork& network, double rc, int pieces) {
  check(rc, pieces);
  const int64_t columns = network.description().columns();
  const double s0 = std::sqrt(kTableStart), h = (std::sqrt(rc) - s0) / pieces;
  std::vector<double> table(static_cast<size_t>(pieces + 1) * kTableOrder * columns, 0.0);
  Knot left = knot(network, rc, s0, h, false);

  // Row 0: W0 + W0' (r - r0) + W0''/2 (r - r0)^2 with r - r0 = 2 s0 h t (locate); left.first = 2 s0 h W0'.
  for (int64_t c = 0; c < columns; ++c) {
    table[c] = left.value[c];
    table[columns + c] = left.first[c];
    table[2 * columns + c] = 2.0 * s0 * s0 * h * h * left.curvature[c];
  }
  for (int piece = 0; piece < pieces; ++piece) {
    Knot right = knot(network, rc, s0 + (piece + 1) * h, h, piece + 1 == pieces);
    double* row = table.data() + static_cast<int64_t>(piece + 1) * kTableOrder * columns;
    for (int64_t c = 0; c < columns; ++c) {
      // Quintic Hermite polynomial on [0,1] from both ends' value, slope and curvature.
      const double step = right.value[c] - left.value[c];
      const double a = left.first[c], b = right.first[c], aa = left.second[c], bb = right.second[c];
      row[c] = left.value[c];
      row[columns + c] = a;
      row[2 * columns + c] = 0.5 * aa;
      row[3 * columns + c] = 10.0 * step - 6.0 * a - 4.0 * b - 1.5 * aa + 0.5 * bb;
      row[4 * columns + c] = -15.0 * step + 8.0 * a + 7.0 * b + 1.5 * aa - bb;
      row[5 * columns + c] = 6.0 * step - 3.0 * a - 3.0 * b - 0.5 * aa + 0.5 * bb;
    }
    left = std::move(right);
  }
  return table;
}

TableError radial_table_error(const RadialNetwork& network, double rc, int pieces, double r_from, int samples) {
  return radial_table_error(network, rc, pieces, build_radial_table(network, rc, pieces), r_from, samples);
}

TableError radial_table_error(const RadialNetwork& network, double rc, int pieces, const std::vector<double>& table,
                              double r_from, int samples) {
  check(rc, pieces);
  require(r_from > 0.0 && r_from < rc, "radial table error: expected 0 < r_from < {}, got {}", rc, r_from);
  require(samples >= 1, "radial table error: expected at least one sample, got {}", samples);
  const int64_t columns = network.description().columns();
  require(static_cast<int64_t>(table.size()) == (pieces + 1) * kTableOrder * columns,
          "radial table error: expected {} pieces of {} columns, got {} numbers", pieces, columns, table.size());
  std::vector<double> value(columns), slope(columns);
  double value_error = 0.0, slope_error = 0.0, value_scale = 0.0, slope_scale = 0.0;
  const auto sample = [&](double r) {
    if (r < r_from || r >= rc) return;
    network.evaluate(r, rc, value.data(), slope.data(), nullptr);
    const TablePoint point = locate(r, rc, pieces);
    const double* row = table.data() + static_cast<int64_t>(point.piece) * kTableOrder * columns;
    const double t = point.t;
    for (int64_t c = 0; c < columns; ++c) {
      const double c0 = row[c], c1 = row[columns + c], c2 = row[2 * columns + c], c3 = row[3 * columns + c],
                   c4 = row[4 * columns + c], c5 = row[5 * columns + c];
      const double w = ((((c5 * t + c4) * t + c3) * t + c2) * t + c1) * t + c0;
      const double dw = ((((5.0 * c5) * t + 4.0 * c4) * t + 3.0 * c3) * t + 2.0 * c2) * t + c1;
      value_error = std::max(value_error, std::abs(w - value[c]));
      slope_error = std::max(slope_error, std::abs(dw * point.dt_dr - slope[c]));
      value_scale = std::max(value_scale, std::abs(value[c]));
      slope_scale = std::max(slope_scale, std::abs(slope[c]));
    }
  };
  const double s_from = std::sqrt(r_from), s_range = std::sqrt(rc) - s_from;
  for (int i = 0; i < samples; ++i) {
    const double s = s_from + s_range * i / samples;
    sample(s * s);
  }
  const double s0 = std::sqrt(kTableStart), h = (std::sqrt(rc) - s0) / pieces;
  for (int k = 0; k <= pieces; ++k) sample((s0 + k * h) * (s0 + k * h));
  // A network that is zero everywhere is matched exactly.
  return {value_scale > 0.0 ? value_error / value_scale : 0.0, slope_scale > 0.0 ? slope_error / slope_scale : 0.0};
}

}  // namespace clebsch
