// Radial tables as B-splines: the table's values at the knots, its ends, how far they are from the network between, and
// that a column's polynomials meet with four derivatives.
#include "core/radial/radial_spline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/errors.h"
#include "core/radial/radial_table.h"
#include "core_radial_support.h"

namespace clebsch {
namespace {

constexpr double kCutoff = 5.0;
constexpr int64_t kColumns = 24;

class RadialSpline : public ::testing::TestWithParam<int> {
 protected:
  RadialSpline() : network_(test::RandomRadial(1, {8, 32, kColumns}, 6.0).network()) {
    table_ = build_radial_table(network_, kCutoff, GetParam());
    spline_ = radial_spline(table_, GetParam(), kColumns);
  }

  /// Derivative `order` in t of piece `piece`, from 0.
  double spline(int piece, double t, int64_t column, int order = 0) const {
    double sum = 0;
    for (int i = 0; i < kSplineOrder; ++i) {
      for (int k = order; k < kSplineOrder; ++k) {
        double factor = static_cast<double>(kSplinePieces[i][k]) / kSplineScale;
        for (int d = 0; d < order; ++d) factor *= k - d;
        sum += factor * std::pow(t, k - order) * spline_[(kSplineStart + piece + i) * kColumns + column];
      }
    }
    return sum;
  }
  double table(int piece, int k, int64_t column) const {
    return table_[((piece + 1) * kTableOrder + k) * kColumns + column];
  }

  RadialNetwork network_;
  std::vector<double> table_, spline_;
};

TEST_P(RadialSpline, HasTheTablesKnotsAndEnds) {
  ASSERT_EQ(static_cast<int64_t>(spline_.size()), spline_rows(GetParam()) * kColumns);
  const int last = GetParam() - 1;
  for (int64_t c = 0; c < kColumns; ++c) {
    for (int piece = 0; piece <= last; ++piece) EXPECT_NEAR(spline(piece, 0, c), table(piece, 0, c), 1e-12);
    EXPECT_NEAR(spline(0, 0, c, 1), table(0, 1, c), 1e-11);
    EXPECT_NEAR(spline(0, 0, c, 2), 2 * table(0, 2, c), 1e-11);
    for (int order : {0, 1, 2}) EXPECT_NEAR(spline(last, 1, c, order), 0, 1e-11);
    for (int k = 0; k < kSplineStart; ++k) EXPECT_EQ(spline_[k * kColumns + c], table(-1, k, c));
  }
}

TEST_P(RadialSpline, PiecesMeetWithFourDerivatives) {
  for (int piece = 1; piece < GetParam(); ++piece) {
    for (int64_t c = 0; c < kColumns; ++c) {
      for (int order = 0; order <= 4; ++order) {
        EXPECT_NEAR(spline(piece - 1, 1, c, order), spline(piece, 0, c, order), 1e-11) << piece;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pieces, RadialSpline, ::testing::Values(1, 3, 32, 96));

/// Largest error of slopes over 0.8 A to the cutoff, of the spline and of the table, relative to the largest slope.
TEST(RadialSplineError, IsThatOfATableOfFewerPieces) {
  const RadialNetwork network = test::RandomRadial(1, {8, 32, kColumns}, 6.0).network();
  double before = 1;
  for (int pieces : {48, 96, 192}) {
    const std::vector<double> spline = radial_spline(build_radial_table(network, kCutoff, pieces), pieces, kColumns);
    const std::vector<double> table_form = spline_pieces(spline, pieces, kColumns);
    const double error = radial_table_error(network, kCutoff, pieces, table_form).slope;
    const double table = radial_table_error(network, kCutoff, pieces).slope;
    RecordProperty("slope_error_" + std::to_string(pieces), std::to_string(error) + " of " + std::to_string(table));
    EXPECT_LT(error, 6 * table) << pieces;
    EXPECT_LT(error, before / 20);  // the fifth power of the knots' distance
    before = error;
  }
}

TEST(RadialSplineError, RefusesATableOfAnotherSize) {
  EXPECT_THROW(radial_spline({1, 2, 3}, 4, 2), Error);
  EXPECT_THROW(spline_pieces({1, 2, 3}, 4, 2), Error);
}

}  // namespace
}  // namespace clebsch
