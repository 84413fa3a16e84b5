#include "core/radial/radial_network.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "core_radial_support.h"

namespace clebsch {
namespace {

std::vector<double> value_at(const RadialNetwork& network, double r, double rc) {
  std::vector<double> value(network.description().columns());
  network.evaluate(r, rc, value.data(), nullptr, nullptr);
  return value;
}

// The network written out plainly, from the formulas of core/problem/problem.h.
std::vector<double> plain(const RadialDescription& d, const std::vector<double>& basis,
                          const std::vector<double>& weights, double r, double rc) {
  const double x = r / rc, p = d.cutoff_p;
  std::vector<double> h(d.widths.back(), 0.0);
  if (x >= 1) return h;
  const double f = 1 - (p + 1) * (p + 2) / 2 * std::pow(x, p) + p * (p + 2) * std::pow(x, p + 1) -
                   p * (p + 1) / 2 * std::pow(x, p + 2);
  h.resize(basis.size());
  for (size_t n = 0; n < basis.size(); ++n) h[n] = d.prefactor * std::sin(basis[n] * x) / x * f;
  const double* w = weights.data();
  for (size_t layer = 0; layer + 1 < d.widths.size(); ++layer) {
    std::vector<double> next(d.widths[layer + 1], 0.0);
    for (int64_t i = 0; i < d.widths[layer]; ++i) {
      for (double& o : next) o += h[i] * *w++;
    }
    if (layer + 2 < d.widths.size()) {
      for (double& o : next) o /= 1 + std::exp(-o);
    }
    h = next;
  }
  return h;
}

TEST(RadialNetwork, IsTheFormula) {
  for (double p : {2.0, 5.0, 6.0, 6.5}) {
    const test::RandomRadial random(9, {8, 16, 12, 7}, p);
    const RadialNetwork network = random.network();
    for (double r = 0.05; r < 5.5; r += 0.173) {
      const auto got = value_at(network, r, 5.0),
                 expected = plain(random.description, random.basis, random.weights, r, 5.0);
      for (size_t c = 0; c < got.size(); ++c) EXPECT_NEAR(got[c], expected[c], 1e-13) << r;
    }
  }
}

TEST(RadialNetwork, DerivativesAreThoseOfTheValue) {
  for (double p : {2.0, 5.0, 6.0, 7.3}) {
    const test::RandomRadial random(3, {8, 32, 16, 10}, p);
    const RadialNetwork network = random.network();
    const double rc = 5.0;
    const size_t columns = 10;
    std::vector<double> value(columns), first(columns), second(columns);
    double largest_first = 0, largest_second = 0;
    for (double r = 0.3; r < rc; r += 0.0917) {
      network.evaluate(r, rc, value.data(), first.data(), second.data());
      for (size_t c = 0; c < columns; ++c) {
        largest_first = std::max(largest_first, std::abs(first[c]));
        largest_second = std::max(largest_second, std::abs(second[c]));
      }
    }
    for (double r : {0.02, 0.3, 0.7, 0.795, 0.7957, 0.796, 1.3, 2.2, 3.1, 4.4, 4.99}) {
      const double h = 2e-3 * std::min(1.0, r);
      network.evaluate(r, rc, value.data(), first.data(), second.data());
      const auto a = value_at(network, r - 2 * h, rc), b = value_at(network, r - h, rc),
                 c = value_at(network, r + h, rc), d = value_at(network, r + 2 * h, rc);
      for (size_t k = 0; k < columns; ++k) {
        const double numeric = (8 * (c[k] - b[k]) - (d[k] - a[k])) / (12 * h);
        const double numeric2 = (16 * (b[k] + c[k]) - (a[k] + d[k]) - 30 * value[k]) / (12 * h * h);
        EXPECT_NEAR(first[k], numeric, 1e-6 * largest_first) << "r " << r << " p " << p;
        if (r > 0.1 && r < 4.98) {
          EXPECT_NEAR(second[k], numeric2, 1e-5 * largest_second) << "r " << r << " p " << p;
        }
      }
    }
  }
}

TEST(RadialNetwork, DerivativesOfAllKinds) {
  // Values are checked against mace-torch (tests/parity); here the derivatives against the values.
  const char* const kinds[] = {"gaussian,-9,5,6-8-4,silu",
                               "bessel,0.125,5,6-8-4,silu,agnesi",
                               "bessel,0.125,5,6-8-4,silu,soft",
                               "bessel,0.125,5,6-8-4,silu,cutoff-last",
                               "bessel,0.375,5,6-4,silu,density",
                               "bessel,0.125,5,6-8-4,norm-silu,cutoff-last",
                               "gaussian,-9,5,6-8-7-4,norm-silu,soft,cutoff-last,density"};
  for (const char* kind : kinds) {
    SCOPED_TRACE(kind);
    const std::string text = std::string("conv in1=4x0e in2=1x0e out=4x0e paths=uvu:0,0,0,1 radial=") + kind;
    const Problem problem = Problem::parse(text);
    EXPECT_EQ(problem.str(), text);
    const RadialDescription& d = *problem.radial;
    const int64_t types = 2;
    std::mt19937 rng(7);
    std::normal_distribution<double> normal(0.0, 0.4);
    std::vector<double> weights(static_cast<size_t>(d.network_values(types)));
    for (double& w : weights) w = normal(rng);
    std::vector<double> basis;
    for (int64_t n = 1; n <= d.basis_size(); ++n) basis.push_back(d.basis == RadialBasis::bessel ? 3.14 * n : 0.2 * n);
    const std::vector<double> transform = d.transform == DistanceTransform::agnesi
                                              ? std::vector<double>{0.9183, 4.5791, 1.0805}
                                              : std::vector<double>{4.0};
    if (d.transform != DistanceTransform::none) {
      basis.insert(basis.end(), transform.begin(), transform.end());
      basis.insert(basis.end(), {0.66, 1.1});
    }
    ASSERT_EQ(static_cast<int64_t>(basis.size()), d.basis_values(types));
    const RadialNetworks networks = pair_networks(d, d.pair_weights(), basis, weights, {true, true});
    const bool pairs = d.transform != DistanceTransform::none || d.pair_weights() > 0;
    ASSERT_EQ(networks.size(), pairs ? 4u : 1u);
    EXPECT_EQ(pairs && networks[1] == networks[2], pairs && d.pair_weights() == 0);
    const RadialNetwork& network = *networks[pairs ? 1 : 0];
    const double rc = 4.0, h = 1e-3;
    std::vector<double> value(4), first(4), second(4), alone(4);
    double largest = 0;
    for (double r : {0.5, 0.9, 1.7, 2.6, 3.4, 3.9}) {
      network.evaluate(r, rc, value.data(), first.data(), second.data());
      network.evaluate(r, rc, nullptr, alone.data(), nullptr);
      EXPECT_EQ(alone, first);
      const auto a = value_at(network, r - 2 * h, rc), b = value_at(network, r - h, rc),
                 c = value_at(network, r + h, rc), e = value_at(network, r + 2 * h, rc);
      for (size_t k = 0; k < 4; ++k) {
        largest = std::max({largest, std::abs(first[k]), std::abs(second[k])});
        EXPECT_NEAR(first[k], (8 * (c[k] - b[k]) - (e[k] - a[k])) / (12 * h), 1e-7 * (1 + largest)) << r;
        EXPECT_NEAR(second[k], (16 * (b[k] + c[k]) - (a[k] + e[k]) - 30 * value[k]) / (12 * h * h),
                    1e-5 * (1 + largest))
            << r;
      }
    }
    EXPECT_GT(largest, 1e-4);
    const RadialNetworks one_type = pair_networks(d, d.pair_weights(), basis, weights, {false, true});
    EXPECT_EQ(one_type.front() == nullptr, pairs);
  }
}

TEST(RadialNetwork, SmallArgumentsAgreeWithTheSeries) {
  // sin(b x)/x changes formula at b x = 1: value and both derivatives must meet there.
  const test::RandomRadial random(3, {1, 2}, 6.0);
  const RadialNetwork network(random.description, {1.0}, {1.0, 0.5});
  double below[3][2], above[3][2];
  network.evaluate(0.999999999, 1.5, below[0], below[1], below[2]);
  network.evaluate(1.000000001, 1.5, above[0], above[1], above[2]);
  const RadialNetwork edge(random.description, {1.5}, {1.0, 0.5});
  edge.evaluate(1.0 - 1e-12, 1.5, below[0], below[1], below[2]);
  edge.evaluate(1.0 + 1e-12, 1.5, above[0], above[1], above[2]);
  for (int order = 0; order < 3; ++order) {
    for (int c = 0; c < 2; ++c) EXPECT_NEAR(below[order][c], above[order][c], 1e-10);
  }
}

TEST(RadialNetwork, IsZeroAtAndBeyondTheCutoff) {
  const test::RandomRadial random(3, {8, 16, 5}, 6.0);
  const RadialNetwork network = random.network();
  std::vector<double> value(5, 1.0), first(5, 1.0), second(5, 1.0);
  for (double r : {4.0, 4.5, 100.0}) {
    network.evaluate(r, 4.0, value.data(), first.data(), second.data());
    for (int c = 0; c < 5; ++c) {
      EXPECT_EQ(value[c], 0.0);
      EXPECT_EQ(first[c], 0.0);
      EXPECT_EQ(second[c], 0.0);
    }
  }
  // Just inside, the cutoff makes the value vanish as the third power of the distance, the slope as the second.
  network.evaluate(4.0 - 1e-4, 4.0, value.data(), first.data(), second.data());
  for (int c = 0; c < 5; ++c) {
    EXPECT_LT(std::abs(value[c]), 1e-9);
    EXPECT_LT(std::abs(first[c]), 1e-5);
    EXPECT_LT(std::abs(second[c]), 1e-1);
  }
}

TEST(RadialNetwork, SkippedDerivativesChangeNothing) {
  const test::RandomRadial random(3, {8, 16, 5}, 6.0);
  const RadialNetwork network = random.network();
  std::vector<double> value(5), first(5), second(5), lone(5);
  network.evaluate(1.9, 4.0, value.data(), first.data(), second.data());
  network.evaluate(1.9, 4.0, lone.data(), nullptr, nullptr);
  EXPECT_EQ(lone, value);
  network.evaluate(1.9, 4.0, nullptr, lone.data(), nullptr);
  EXPECT_EQ(lone, first);
  network.evaluate(1.9, 4.0, nullptr, nullptr, lone.data());
  EXPECT_EQ(lone, second);
}

TEST(RadialNetwork, RefusesOtherSizes) {
  const test::RandomRadial random(3, {8, 16, 5}, 6.0);
  EXPECT_THROW(RadialNetwork(random.description, std::vector<double>(7), random.weights), Error);
  EXPECT_THROW(RadialNetwork(random.description, random.basis, std::vector<double>(3)), Error);
  RadialDescription short_one = random.description;
  short_one.widths = {8};
  EXPECT_THROW(RadialNetwork(short_one, random.basis, {}), Error);
  double value[5];
  EXPECT_THROW(random.network().evaluate(0.0, 4.0, value, nullptr, nullptr), Error);
  EXPECT_THROW(random.network().evaluate(NAN, 4.0, value, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace clebsch
