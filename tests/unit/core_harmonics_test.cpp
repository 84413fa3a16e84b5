#include "core/math/harmonics.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "core/math/coupling.h"
#include "core_support.h"

namespace clebsch {
namespace {

constexpr int kLmax = 7;

std::vector<std::vector<double>> directions() {
  std::vector<std::vector<double>> points = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {-1, 0, 0}, {0, -1, 0}, {0, 0, -1}};
  std::mt19937 rng(2);
  for (int i = 0; i < 30; ++i) points.push_back(test::random_unit(rng));
  return points;
}

// The slow formulation: Y_(l+1) is Y_1 coupled with Y_l, scaled to norm sqrt(2l+3).
std::vector<double> coupled_harmonics(const std::vector<double>& v) {
  std::vector<double> Y(harmonics_count(kLmax), 0.0);
  Y[0] = 1.0;
  for (int d = 0; d < 3; ++d) Y[1 + d] = std::sqrt(3.0) * v[d];
  for (int l = 1; l < kLmax; ++l) {
    double* next = &Y[(l + 1) * (l + 1)];
    double norm = 0;
    for (const CouplingEntry& e : wigner_3j(1, l, l + 1)) next[e.m3] += e.value * Y[1 + e.m1] * Y[l * l + e.m2];
    for (int m = 0; m < 2 * l + 3; ++m) norm += next[m] * next[m];
    for (int m = 0; m < 2 * l + 3; ++m) next[m] *= std::sqrt((2 * l + 3) / norm);
  }
  return Y;
}

TEST(Harmonics, AgreeWithE3nn) {
  for (const auto& expected : test::golden().at("spherical_harmonics")) {
    const std::vector<double> point = expected.at("point");
    const auto Y = test::harmonics_at(kLmax, point);
    for (size_t i = 0; i < Y.size(); ++i) EXPECT_NEAR(Y[i], expected.at("values")[i].get<double>(), 2e-14) << i;
  }
}

TEST(Harmonics, AgreeWithTheCoupledOnes) {
  for (const auto& v : directions()) {
    const auto fast = test::harmonics_at(kLmax, v), slow = coupled_harmonics(v);
    for (size_t i = 0; i < fast.size(); ++i) EXPECT_NEAR(fast[i], slow[i], 2e-13) << i;
  }
}

TEST(Harmonics, LowerDegreesDoNotDependOnLmax) {
  for (const auto& v : directions()) {
    const auto all = test::harmonics_at(kLmax, v);
    for (int lmax = 0; lmax < kLmax; ++lmax) {
      const auto some = test::harmonics_at(lmax, v);
      for (size_t i = 0; i < some.size(); ++i) EXPECT_NEAR(some[i], all[i], 1e-14);
    }
  }
}

TEST(Harmonics, FirstDegreeIsTheVector) {
  const auto Y = test::harmonics_at(1, {0.6, 0.0, 0.8});
  EXPECT_DOUBLE_EQ(Y[0], 1.0);
  EXPECT_DOUBLE_EQ(Y[1], std::sqrt(3.0) * 0.6);
  EXPECT_DOUBLE_EQ(Y[2], 0.0);
  EXPECT_DOUBLE_EQ(Y[3], std::sqrt(3.0) * 0.8);
}

TEST(Harmonics, ComponentNormalisation) {
  for (const auto& v : directions()) {
    const auto Y = test::harmonics_at(kLmax, v);
    for (int l = 0; l <= kLmax; ++l) {
      double norm = 0;
      for (int m = 0; m < 2 * l + 1; ++m) norm += Y[l * l + m] * Y[l * l + m];
      EXPECT_NEAR(norm, 2 * l + 1, 1e-13 * (2 * l + 1));
    }
  }
}

TEST(Harmonics, AdditionTheorem) {
  // sum_m Y_lm(a) Y_lm(b) = (2l+1) P_l(a . b)
  const auto points = directions();
  for (size_t i = 1; i < points.size(); ++i) {
    const auto &a = points[i - 1], &b = points[i];
    const auto Ya = test::harmonics_at(kLmax, a), Yb = test::harmonics_at(kLmax, b);
    const double c = a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    double below = 0, legendre = 1;
    for (int l = 0; l <= kLmax; ++l) {
      double sum = 0;
      for (int m = 0; m < 2 * l + 1; ++m) sum += Ya[l * l + m] * Yb[l * l + m];
      EXPECT_NEAR(sum, (2 * l + 1) * legendre, 1e-12) << l;
      const double next = ((2 * l + 1) * c * legendre - l * below) / (l + 1);
      below = legendre;
      legendre = next;
    }
  }
}

TEST(Harmonics, RotateWithinTheirDegree) {
  std::mt19937 rng(4);
  const auto R = test::random_rotation(rng);
  for (int l = 0; l <= kLmax; ++l) {
    const int d = 2 * l + 1;
    const auto D = test::rotation_matrix(l, R);
    for (const auto& v : directions()) {
      const auto Y = test::harmonics_at(l, v), YR = test::harmonics_at(l, test::rotate(R, v));
      for (int a = 0; a < d; ++a) {
        double sum = 0;
        for (int b = 0; b < d; ++b) sum += D[a * d + b] * Y[l * l + b];
        ASSERT_NEAR(sum, YR[l * l + a], 1e-12) << l;
      }
    }
    for (int a = 0; a < d; ++a) {
      for (int b = 0; b < d; ++b) {
        double sum = 0;
        for (int k = 0; k < d; ++k) sum += D[a * d + k] * D[b * d + k];
        ASSERT_NEAR(sum, a == b ? 1.0 : 0.0, 1e-12) << l;
      }
    }
  }
}

TEST(Harmonics, InversionGivesTheParity) {
  for (const auto& v : directions()) {
    const auto Y = test::harmonics_at(kLmax, v), minus = test::harmonics_at(kLmax, {-v[0], -v[1], -v[2]});
    for (int l = 0; l <= kLmax; ++l) {
      for (int m = 0; m < 2 * l + 1; ++m) EXPECT_NEAR(minus[l * l + m], (l % 2 ? -1 : 1) * Y[l * l + m], 1e-14);
    }
  }
}

TEST(Harmonics, GradientIsThatOfTheValue) {
  std::mt19937 rng(6);
  std::normal_distribution<double> normal;
  for (int lmax = 0; lmax <= kLmax; ++lmax) {
    std::vector<double> weights(harmonics_count(lmax));
    for (double& w : weights) w = normal(rng);
    const auto energy = [&](std::vector<double> r) {
      const double length = std::sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
      for (double& a : r) a /= length;
      const auto Y = test::harmonics_at(lmax, r);
      double sum = 0;
      for (size_t i = 0; i < Y.size(); ++i) sum += weights[i] * Y[i];
      return sum;
    };
    for (const auto& v : directions()) {
      const double length = 1.7, h = 1e-4;
      double gradient[3] = {10.0, 20.0, 30.0};  // added to, not overwritten
      spherical_harmonics_backward(lmax, v[0], v[1], v[2], 1.0 / length, weights.data(), gradient);
      for (int d = 0; d < 3; ++d) {
        const auto at = [&](double step) {
          std::vector<double> r = {length * v[0], length * v[1], length * v[2]};
          r[d] += step;
          return energy(r);
        };
        const double numeric = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
        EXPECT_NEAR(gradient[d] - 10.0 * (d + 1), numeric, 1e-8 * (1 + std::abs(numeric))) << lmax;
      }
    }
  }
}

TEST(Harmonics, FloatFollowsDouble) {
  for (const auto& v : directions()) {
    const auto Y = test::harmonics_at(kLmax, v);
    std::vector<float> Yf(Y.size()), ones(Y.size(), 1.0f);
    std::vector<double> one(Y.size(), 1.0);
    spherical_harmonics<float>(kLmax, v[0], v[1], v[2], Yf.data());
    for (size_t i = 0; i < Y.size(); ++i) EXPECT_NEAR(Yf[i], Y[i], 2e-5);
    float gf[3] = {0, 0, 0};
    double g[3] = {0, 0, 0};
    spherical_harmonics_backward<float>(kLmax, v[0], v[1], v[2], 1.0f, ones.data(), gf);
    spherical_harmonics_backward<double>(kLmax, v[0], v[1], v[2], 1.0, one.data(), g);
    for (int d = 0; d < 3; ++d) EXPECT_NEAR(gf[d], g[d], 2e-3);
  }
}

TEST(Harmonics, RefuseOtherDegrees) {
  double Y[81], out[3] = {};
  EXPECT_THROW(spherical_harmonics(8, 0.0, 0.0, 1.0, Y), Error);
  EXPECT_THROW(spherical_harmonics(-1, 0.0, 0.0, 1.0, Y), Error);
  EXPECT_THROW(spherical_harmonics_backward(8, 0.0, 0.0, 1.0, 1.0, Y, out), Error);
}

}  // namespace
}  // namespace clebsch
