#include "core/radial/radial_spline.h"

#include <algorithm>
#include <array>

#include "core/errors.h"
#include "core/radial/radial_table.h"

namespace clebsch {
namespace {

/// Numbers of an equation: the splines that are not zero at a knot.
constexpr int kAtKnot = kSplineOrder - 1;
using Equation = std::array<double, kAtKnot>;
/// Value, slope and second derivative in t at a knot.
constexpr Equation kValue{1.0 / 120, 26.0 / 120, 66.0 / 120, 26.0 / 120, 1.0 / 120};
constexpr Equation kSlope{-1.0 / 24, -10.0 / 24, 0, 10.0 / 24, 1.0 / 24};
constexpr Equation kSecond{1.0 / 6, 2.0 / 6, -6.0 / 6, 2.0 / 6, 1.0 / 6};

/// Square, banded: entries (i, j) with |i - j| < kAtKnot.
class Band {
 public:
  explicit Band(int64_t size) : rows_(static_cast<size_t>(size)) {}
  double& at(int64_t i, int64_t j) { return rows_[static_cast<size_t>(i)][static_cast<size_t>(j - i + kAtKnot - 1)]; }
  void set(int64_t i, int64_t first, const Equation& equation) {
    for (int k = 0; k < kAtKnot; ++k) at(i, first + k) = equation[static_cast<size_t>(k)];
  }
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }

 private:
  std::vector<std::array<double, 2 * kAtKnot - 1>> rows_;
};

/// x[i] -= factor * x[j], rows of `columns` numbers.
void subtract(double* x, int64_t columns, int64_t i, double factor, int64_t j) {
  for (int64_t c = 0; c < columns; ++c) x[i * columns + c] -= factor * x[j * columns + c];
}

/// Solves in place, without pivoting: the equations of values are dominated by the diagonal, and the end conditions'
/// pivots are 0.17, -0.33, 0.45 first and 0.45, 0.33, 0.09 last (condition number 91 with many pieces, 400 with one).
void solve(Band& band, double* x, int64_t columns) {
  const int64_t size = band.size();
  for (int64_t j = 0; j < size; ++j) {
    const int64_t last = std::min(size, j + kAtKnot);
    for (int64_t i = j + 1; i < last; ++i) {
      const double factor = band.at(i, j) / band.at(j, j);
      if (factor == 0.0) continue;
      for (int64_t k = j; k < last; ++k) band.at(i, k) -= factor * band.at(j, k);
      subtract(x, columns, i, factor, j);
    }
  }
  for (int64_t i = size - 1; i >= 0; --i) {
    for (int64_t j = i + 1; j < std::min(size, i + kAtKnot); ++j) subtract(x, columns, i, band.at(i, j), j);
    for (int64_t c = 0; c < columns; ++c) x[i * columns + c] /= band.at(i, i);
  }
}

}  // namespace

std::vector<double> radial_spline(const std::vector<double>& table, int pieces, int64_t columns) {
  require(pieces >= 1 && static_cast<int64_t>(table.size()) == (pieces + 1) * kTableOrder * columns,
          "radial spline: expected a table of {} pieces and {} columns, got {} numbers", pieces, columns, table.size());
  const auto coefficient = [&](int64_t row, int k) { return table.data() + (row * kTableOrder + k) * columns; };
  std::vector<double> spline(static_cast<size_t>(spline_rows(pieces) * columns));
  // Below the first knot the row's own polynomial, a parabola in t.
  std::copy_n(coefficient(0, 0), kSplineStart * columns, spline.begin());

  double* x = spline.data() + kSplineStart * columns;
  const int64_t size = pieces + kAtKnot;
  Band band(size);
  band.set(0, 0, kSecond);
  band.set(1, 0, kSlope);
  for (int k = 0; k <= pieces; ++k) band.set(k + 2, k, kValue);
  band.set(size - 2, pieces, kSlope);
  band.set(size - 1, pieces, kSecond);
  for (int64_t c = 0; c < columns; ++c) {
    x[c] = 2.0 * coefficient(1, 2)[c];
    x[columns + c] = coefficient(1, 1)[c];
    for (int k = 0; k < pieces; ++k) x[(k + 2) * columns + c] = coefficient(k + 1, 0)[c];
    double value = 0, slope = 0, second = 0;
    for (int k = 0; k < kTableOrder; ++k) {
      const double last = coefficient(pieces, k)[c];
      value += last;
      slope += k * last;
      second += k * (k - 1) * last;
    }
    x[(size - 3) * columns + c] = value;
    x[(size - 2) * columns + c] = slope;
    x[(size - 1) * columns + c] = second;
  }
  solve(band, x, columns);
  return spline;
}

std::vector<double> spline_pieces(const std::vector<double>& spline, int pieces, int64_t columns) {
  require(static_cast<int64_t>(spline.size()) == spline_rows(pieces) * columns,
          "radial spline: expected {} pieces of {} columns, got {} numbers", pieces, columns, spline.size());
  std::vector<double> table(static_cast<size_t>((pieces + 1) * kTableOrder * columns));
  std::copy_n(spline.begin(), kSplineStart * columns, table.begin());
  double* to = table.data() + kTableOrder * columns;
  for (int piece = 0; piece < pieces; ++piece) {
    const double* from = spline.data() + (kSplineStart + piece) * columns;
    for (int k = 0; k < kTableOrder; ++k, to += columns)
      for (int64_t c = 0; c < columns; ++c)
        for (int i = 0; i < kSplineOrder; ++i)
          to[c] += kSplinePieces[i][k] * from[i * columns + c] / static_cast<double>(kSplineScale);
  }
  return table;
}

}  // namespace clebsch
