#include "core/radial/radial_table.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "core_radial_support.h"

namespace clebsch {
namespace {

constexpr double kCutoff = 5.0;
constexpr int64_t kColumns = 24;

class RadialTable : public ::testing::TestWithParam<int> {
 protected:
  RadialTable() : network_(test::RandomRadial(1, {8, 32, kColumns}, 6.0).network()) {
    table_ = build_radial_table(network_, kCutoff, GetParam());
    for (double r = 0.4; r < kCutoff; r += 0.01) {
      std::vector<double> value(kColumns), first(kColumns), second(kColumns);
      network_.evaluate(r, kCutoff, value.data(), first.data(), second.data());
      for (int64_t c = 0; c < kColumns; ++c) {
        scale_[0] = std::max(scale_[0], std::abs(value[c]));
        scale_[1] = std::max(scale_[1], std::abs(first[c]));
        scale_[2] = std::max(scale_[2], std::abs(second[c]));
      }
    }
  }

  // The polynomial of one row and column, derivative `order` in t.
  double row(int piece, double t, int64_t column, int order = 0) const {
    double sum = 0;
    for (int k = order; k < kTableOrder; ++k) {
      double factor = 1;
      for (int i = 0; i < order; ++i) factor *= k - i;
      sum += factor * table_[(piece * kTableOrder + k) * kColumns + column] * std::pow(t, k - order);
    }
    return sum;
  }
  double at(double r, int64_t column) const {
    const TablePoint p = locate(r, kCutoff, GetParam());
    return row(p.piece, p.t, column);
  }
  double slope(double r, int64_t column) const {
    const TablePoint p = locate(r, kCutoff, GetParam());
    return row(p.piece, p.t, column, 1) * p.dt_dr;
  }
  double knot(int k) const {
    const double s0 = std::sqrt(kTableStart);
    const double s = s0 + (std::sqrt(kCutoff) - s0) * k / GetParam();
    return s * s;
  }

  RadialNetwork network_;
  std::vector<double> table_;
  // Rounding of a polynomial with few, long pieces, whose coefficients are large.
  double few_ = GetParam() < 10 ? 1e3 : 1.0;
  double scale_[3] = {0, 0, 0};  // largest |W|, |dW/dr|, |d2W/dr2|
};

TEST_P(RadialTable, HoldsTheNetworkAtTheKnots) {
  std::vector<double> value(kColumns), first(kColumns);
  for (int k = 0; k < GetParam(); ++k) {
    network_.evaluate(knot(k), kCutoff, value.data(), first.data(), nullptr);
    for (int64_t c = 0; c < kColumns; ++c) {
      EXPECT_NEAR(at(knot(k), c), value[c], 1e-13 * few_ * scale_[0]);
      EXPECT_NEAR(slope(knot(k), c), first[c], 1e-11 * few_ * scale_[1]);
    }
  }
}

TEST_P(RadialTable, IsTwiceContinuouslyDifferentiable) {
  const double h = (std::sqrt(kCutoff) - std::sqrt(kTableStart)) / GetParam();
  for (int k = 1; k < GetParam(); ++k) {
    for (int64_t c = 0; c < kColumns; ++c) {
      EXPECT_NEAR(row(k, 1.0, c), row(k + 1, 0.0, c), 1e-13 * few_ * scale_[0]) << k;
      // In t both pieces have the same length, so derivatives in t compare directly.
      EXPECT_NEAR(row(k, 1.0, c, 1) / h, row(k + 1, 0.0, c, 1) / h, 1e-12 * few_ * scale_[1]) << k;
      EXPECT_NEAR(row(k, 1.0, c, 2) / (h * h), row(k + 1, 0.0, c, 2) / (h * h), 1e-11 * few_ * scale_[2]) << k;
    }
  }
}

TEST_P(RadialTable, FiniteDifferencesAcrossEveryKnot) {
  for (int k = 0; k <= GetParam(); ++k) {
    const double r = knot(k), h = 1e-5;
    if (k == GetParam()) break;                  // nothing beyond the cutoff
    for (double off : {-0.6e-5, 0.0, 0.3e-5}) {  // the knot lies between the two points, off centre
      for (int64_t c = 0; c < kColumns; ++c) {
        const double numeric = (at(r + off + h, c) - at(r + off - h, c)) / (2 * h);
        EXPECT_NEAR(slope(r + off, c), numeric, 1e-6 * scale_[1]) << "knot " << k;
      }
    }
  }
}

TEST_P(RadialTable, VanishesAtTheCutoffWithItsDerivatives) {
  const int pieces = GetParam();
  const double h = (std::sqrt(kCutoff) - std::sqrt(kTableStart)) / pieces;
  for (int64_t c = 0; c < kColumns; ++c) {
    EXPECT_NEAR(row(pieces, 1.0, c), 0.0, 1e-15 * few_ * scale_[0]);
    EXPECT_NEAR(row(pieces, 1.0, c, 1) / h, 0.0, 1e-13 * few_ * scale_[1]);
    EXPECT_NEAR(row(pieces, 1.0, c, 2) / (h * h), 0.0, 1e-12 * few_ * scale_[2]);
    EXPECT_NEAR(at(std::nextafter(kCutoff, 0.0), c), 0.0, 1e-15 * few_ * scale_[0]);
    EXPECT_NEAR(at(kCutoff - 1e-3, c), 0.0, 1e-7 * few_ * scale_[0]);
  }
}

TEST_P(RadialTable, IsAParabolaBelowTheFirstKnot) {
  std::vector<double> value(kColumns), first(kColumns), second(kColumns);
  network_.evaluate(kTableStart, kCutoff, value.data(), first.data(), second.data());
  for (double r : {1e-6, 0.01, 0.1, 0.25, 0.3999}) {
    const double x = r - kTableStart;
    for (int64_t c = 0; c < kColumns; ++c) {
      EXPECT_NEAR(at(r, c), value[c] + first[c] * x + 0.5 * second[c] * x * x,
                  1e-13 * (scale_[0] + scale_[1] + scale_[2]));
      EXPECT_NEAR(slope(r, c), first[c] + second[c] * x, 1e-13 * few_ * (scale_[1] + scale_[2]));
    }
  }
}

TEST_P(RadialTable, MeetsTheParabolaWithTwoDerivatives) {
  for (int64_t c = 0; c < kColumns; ++c) {
    // Derivatives in r on both sides: dt/dr is the same at the knot, d2t/dr2 is not zero within the first piece.
    const double s0 = std::sqrt(kTableStart), h = (std::sqrt(kCutoff) - s0) / GetParam();
    const double dt = 0.5 / (s0 * h), ddt = -0.25 / (s0 * s0 * s0 * h);
    EXPECT_EQ(row(0, 0.0, c), row(1, 0.0, c));
    EXPECT_EQ(row(0, 0.0, c, 1), row(1, 0.0, c, 1));
    EXPECT_NEAR(row(0, 0.0, c, 2) * dt * dt, row(1, 0.0, c, 2) * dt * dt + row(1, 0.0, c, 1) * ddt,
                1e-12 * few_ * scale_[2]);
  }
}

INSTANTIATE_TEST_SUITE_P(Pieces, RadialTable, ::testing::Values(1, 3, 32, 48, 64));

TEST(TableLocation, PiecesAndPosition) {
  for (int pieces : {1, 32, 48}) {
    for (double r = 0.001; r < 4.0; r += 0.0013) {
      const TablePoint p = locate(r, 4.0, pieces);
      ASSERT_GE(p.piece, 0);
      ASSERT_LE(p.piece, pieces);
      if (r < kTableStart - 1e-9) {
        ASSERT_EQ(p.piece, 0);
      }
      if (r > kTableStart + 1e-9) {
        ASSERT_GE(p.piece, 1);
      }
      if (p.piece > 0) {
        ASSERT_GE(p.t, 0.0);
        ASSERT_LE(p.t, 1.0 + 1e-12);
      }
    }
    EXPECT_EQ(locate(std::nextafter(4.0, 0.0), 4.0, pieces).piece, pieces);
  }
}

TEST(TableError, KeepsItsBudget) {
  // A NequIP-like network: 8 Bessel functions, one hidden layer of 128, cutoff 5. design: 48 pieces hold W to some
  // 5e-7 of the largest |W| and dW/dr to some 6e-6.
  for (unsigned seed : {1u, 2u, 3u}) {
    const RadialNetwork network = test::RandomRadial(seed, {8, 128, 96}, 6.0).network();
    const TableError e32 = radial_table_error(network, 5.0, 32), e48 = radial_table_error(network, 5.0, 48),
                     e64 = radial_table_error(network, 5.0, 64);
    EXPECT_LT(e48.value, 1e-6) << seed;
    EXPECT_LT(e48.slope, 1e-5) << seed;
    EXPECT_LT(e64.value, 2e-7) << seed;
    EXPECT_LT(e64.slope, 3e-6) << seed;
    EXPECT_GT(e32.value, e48.value);
    EXPECT_GT(e48.slope, e64.slope);
    EXPECT_GT(e64.value, 0.0);
  }
}

TEST(TableError, IsNoneForAZeroNetwork) {
  const test::RandomRadial random(1, {8, 4, 3}, 6.0);
  const RadialNetwork zero(random.description, random.basis, std::vector<double>(random.weights.size(), 0.0));
  const TableError error = radial_table_error(zero, 5.0, 8);
  EXPECT_EQ(error.value, 0.0);
  EXPECT_EQ(error.slope, 0.0);
}

TEST(TableBuild, Refusals) {
  const RadialNetwork network = test::RandomRadial(1, {8, 4, 3}, 6.0).network();
  EXPECT_THROW(build_radial_table(network, 0.4), Error);
  EXPECT_THROW(build_radial_table(network, NAN), Error);
  EXPECT_THROW(build_radial_table(network, 5.0, 0), Error);
  EXPECT_THROW(radial_table_error(network, 5.0, 8, 6.0), Error);
}

}  // namespace
}  // namespace clebsch
