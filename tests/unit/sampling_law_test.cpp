// The law of draws, enumerated by going down to every leaf, against leverages of the product itself; and draws against
// the law.
#include <gtest/gtest.h>
#include <omp.h>

#include <numeric>

#include "core/errors.h"
#include "multilinear/sampling/khatri_rao_sampler.h"
#include "sampling_support.h"

namespace clebsch::testing {
namespace {

using sampling::Factor;
using sampling::KhatriRaoSampler;
using sampling::RowSampler;

std::vector<Factor> views(std::vector<OwnFactor>& factors) {
  std::vector<Factor> all;
  for (OwnFactor& factor : factors) all.push_back(factor.view());
  return all;
}

/// Largest difference between a sampler's law and leverage / rank, without the excluded factor.
void expect_law(std::vector<OwnFactor> factors, int64_t leaf_rows, int exclude, double tolerance) {
  KhatriRaoSampler sampler(views(factors), leaf_rows);
  std::vector<OwnFactor> drawn;
  for (size_t k = 0; k < factors.size(); ++k) {
    if (static_cast<int>(k) != exclude) drawn.push_back(factors[k]);
  }
  const OwnFactor product = khatri_rao(drawn);
  const Leverages expected = leverages(product);
  std::vector<double> law(expected.values.size(), NAN);
  sampler.law(exclude, law.data());
  double sum = 0;
  for (size_t i = 0; i < law.size(); ++i) {
    ASSERT_NEAR(law[i], expected.values[i] / expected.rank, tolerance) << i;
    sum += law[i];
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
  // Every row's score, and the rank.
  const auto all = static_cast<int64_t>(factors.size());
  std::vector<int64_t> indices(law.size() * factors.size(), -1);
  for (size_t i = 0; i < law.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    for (int64_t k = all - 1; k >= 0; --k) {
      if (k == exclude) continue;
      indices[i * factors.size() + static_cast<size_t>(k)] = rest % factors[static_cast<size_t>(k)].rows;
      rest /= factors[static_cast<size_t>(k)].rows;
    }
  }
  std::vector<double> scores(law.size(), NAN);
  EXPECT_EQ(sampler.scores(indices.data(), product.rows, exclude, scores.data()), expected.rank);
  for (size_t i = 0; i < law.size(); ++i) ASSERT_NEAR(scores[i], expected.values[i], expected.rank * tolerance) << i;
}

TEST(SamplingLaw, EveryShapeOfTree) {
  std::mt19937_64 random(7);
  for (const int64_t leaf_rows : {1, 2, 3, 8}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
      SCOPED_TRACE(std::to_string(leaf_rows) + " rows a leaf, " + std::to_string(rows));
      expect_law({normal_factor(rows, 3, random)}, leaf_rows, -1, 1e-12);
      expect_law({normal_factor(3, 3, random), normal_factor(rows, 3, random)}, leaf_rows, -1, 1e-12);
    }
  }
}

TEST(SamplingLaw, ColumnsFactorsAndExclusion) {
  std::mt19937_64 random(11);
  for (const int columns : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    for (const int factors : {1, 2, 3, 4, 5}) {
      SCOPED_TRACE(std::to_string(columns) + " columns, " + std::to_string(factors) + " factors");
      std::vector<OwnFactor> all;
      for (int k = 0; k < factors; ++k) all.push_back(normal_factor(factors > 3 ? 3 : 4 + k, columns, random));
      // With few rows the product is well conditioned only when it has more rows than columns.
      for (int exclude = -1; exclude < (factors > 1 ? factors : 0); ++exclude) expect_law(all, 2, exclude, 1e-11);
    }
  }
}

TEST(SamplingLaw, DegenerateAndDeficientFactors) {
  std::mt19937_64 random(13);
  OwnFactor a = normal_factor(6, 4, random), b = normal_factor(5, 4, random), c = normal_factor(4, 4, random);
  OwnFactor zero_column = a, equal_columns = a, zero_rows = b, one_row = normal_factor(1, 4, random), rank_one = b;
  for (int64_t i = 0; i < 6; ++i) {
    zero_column.at(i, 2) = 0;
    equal_columns.at(i, 3) = 2 * equal_columns.at(i, 1);
  }
  for (int column = 0; column < 4; ++column) zero_rows.at(0, column) = zero_rows.at(3, column) = 0;
  for (int64_t i = 0; i < 5; ++i) {
    for (int column = 0; column < 4; ++column) rank_one.at(i, column) = rank_one.at(i, 0) * (column + 1);
  }
  const OwnFactor identity{4, 4, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}};
  for (const OwnFactor& odd : {zero_column, equal_columns, zero_rows, one_row, rank_one, identity}) {
    for (const int64_t leaf_rows : {1, 2, 0}) {
      expect_law({odd}, leaf_rows, -1, 1e-12);
      expect_law({odd, b, c}, leaf_rows, -1, 1e-12);
      expect_law({b, odd, c}, leaf_rows, -1, 1e-12);
      expect_law({b, c, odd}, leaf_rows, 0, 1e-12);
    }
  }
  // Equal columns in every factor: the product is deficient as well.
  OwnFactor other = b;
  for (int64_t i = 0; i < 5; ++i) other.at(i, 3) = -3 * other.at(i, 1);
  expect_law({equal_columns, other}, 2, -1, 1e-12);
  // A factor of zeros.
  OwnFactor zeros{3, 4, std::vector<double>(12, 0.0)};
  std::vector<OwnFactor> none{a, zeros};
  KhatriRaoSampler sampler(views(none));
  std::vector<double> weight(1), row(4);
  std::vector<int64_t> index(2);
  EXPECT_THROW(sampler.draw(1, -1, 0, index.data(), row.data(), weight.data()), Error);
  EXPECT_EQ(sampler.draw(1, 1, 0, index.data(), row.data(), weight.data()), 4);
}

TEST(SamplingLaw, VeryLargeAndVerySmallNumbers) {
  std::mt19937_64 random(17);
  const OwnFactor a = normal_factor(9, 3, random), b = normal_factor(5, 3, random);
  for (const double scale : {1e150, 1e-150}) {
    OwnFactor scaled = a, mixed = b;
    for (double& number : scaled.numbers) number *= scale;
    for (int64_t i = 0; i < 5; ++i) mixed.at(i, 1) *= scale;
    std::vector<OwnFactor> plain{a, b}, large{scaled, mixed};
    KhatriRaoSampler expected(views(plain), 2), got(views(large), 2);
    std::vector<double> law(45), other(45);
    expected.law(-1, law.data());
    got.law(-1, other.data());
    for (size_t i = 0; i < law.size(); ++i) ASSERT_NEAR(law[i], other[i], 1e-13) << scale;
    std::vector<int64_t> index(200);
    std::vector<double> rows(300), weights(100);
    EXPECT_EQ(got.draw(100, -1, 3, index.data(), rows.data(), weights.data()), 3);
    for (const double weight : weights) ASSERT_TRUE(std::isfinite(weight) && weight > 0);
  }
}

TEST(SamplingLaw, RowSamplerWithAnyForm) {
  std::mt19937_64 random(19);
  for (const int64_t leaf_rows : {1, 3}) {
    OwnFactor u = normal_factor(10, 4, random), root = normal_factor(6, 4, random), h = normal_factor(1, 4, random);
    std::vector<double> y(16, 0.0), q(10), law(10);
    for (int64_t i = 0; i < 6; ++i) {
      for (int a = 0; a < 4; ++a) {
        for (int b = 0; b < 4; ++b) y[static_cast<size_t>(4 * a + b)] += root.at(i, a) * root.at(i, b);
      }
    }
    double sum = 0;
    for (int64_t i = 0; i < 10; ++i) {
      for (int a = 0; a < 4; ++a) {
        for (int b = 0; b < 4; ++b) {
          q[static_cast<size_t>(i)] +=
              u.at(i, a) * h.at(0, a) * y[static_cast<size_t>(4 * a + b)] * u.at(i, b) * h.at(0, b);
        }
      }
      sum += q[static_cast<size_t>(i)];
    }
    const RowSampler sampler(u.view(), leaf_rows, y.data());
    sampler.law(h.numbers.data(), law.data());
    for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(law[i], q[i] / sum, 1e-13);
  }
}

/// The smallest chi^2 that 1e-6 of all trials exceed, by Wilson and Hilferty's formula.
double chi_square_limit(double freedom) {
  const double z = 4.753424, part = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - part + z * std::sqrt(part), 3);
}

TEST(SamplingLaw, DrawsFollowTheLaw) {
  std::mt19937_64 random(23);
  std::vector<OwnFactor> factors;
  for (int k = 0; k < 3; ++k) {
    factors.push_back(normal_factor(8, 8, random));
    for (size_t i = 0; i < 64; i += 37) factors.back().numbers[i] *= 10;
  }
  constexpr int64_t kCount = 50000;
  for (const int64_t leaf_rows : {0, 2, 1}) {
    KhatriRaoSampler sampler(views(factors), leaf_rows);
    std::vector<int64_t> indices(3 * kCount);
    std::vector<double> rows(8 * kCount), weights(kCount), law(512);
    EXPECT_EQ(sampler.draw(kCount, -1, 5, indices.data(), rows.data(), weights.data()), 8);
    sampler.law(-1, law.data());
    std::vector<double> found(512);
    for (size_t s = 0; s < kCount; ++s) {
      const auto at = static_cast<size_t>(64 * indices[3 * s] + 8 * indices[3 * s + 1] + indices[3 * s + 2]);
      ++found[at];
      ASSERT_NEAR(weights[s] * kCount * law[at], 1.0, 1e-9);
    }
    double chi = 0, expected = 0, counted = 0;
    int bins = 0;
    for (size_t i = 0; i < 512; ++i) {  // bins of at least ten
      expected += law[i] * kCount;
      counted += found[i];
      if (expected < 10 && i + 1 < 512) continue;
      chi += (counted - expected) * (counted - expected) / expected;
      expected = counted = 0;
      ++bins;
    }
    EXPECT_LT(chi, chi_square_limit(bins - 1)) << bins;
  }
}

TEST(SamplingLaw, SumsWithWeightsAreUnbiased) {
  std::mt19937_64 random(29);
  for (const bool deficient : {false, true}) {
    std::vector<OwnFactor> factors{normal_factor(12, 4, random), normal_factor(10, 4, random)};
    if (deficient) {
      for (OwnFactor& factor : factors) {
        for (int64_t i = 0; i < factor.rows; ++i) factor.at(i, 3) = factor.at(i, 0);
      }
    }
    KhatriRaoSampler sampler(views(factors), 3);
    const OwnFactor product = khatri_rao(factors);
    std::vector<double> gram(16, 0.0), mean(16, 0.0);
    for (int64_t i = 0; i < product.rows; ++i) {
      for (size_t k = 0; k < 16; ++k) {
        gram[k] +=
            product.numbers[static_cast<size_t>(4 * i) + k / 4] * product.numbers[static_cast<size_t>(4 * i) + k % 4];
      }
    }
    constexpr int64_t kCount = 200000;
    std::vector<int64_t> indices(2 * kCount);
    std::vector<double> rows(4 * kCount), weights(kCount);
    EXPECT_EQ(sampler.draw(kCount, -1, 1, indices.data(), rows.data(), weights.data()), deficient ? 3 : 4);
    double trace = 0;
    for (size_t s = 0; s < kCount; ++s) {
      for (size_t k = 0; k < 16; ++k) mean[k] += weights[s] * rows[4 * s + k / 4] * rows[4 * s + k % 4];
    }
    for (size_t k = 0; k < 16; k += 5) trace += gram[k];
    for (size_t k = 0; k < 16; ++k) EXPECT_NEAR(mean[k] / trace, gram[k] / trace, 0.01);
  }
}

TEST(SamplingLaw, ThreadsDoNotMatter) {
  std::mt19937_64 random(31);
  std::vector<OwnFactor> factors{normal_factor(3000, 6, random), normal_factor(77, 6, random)};
  std::vector<std::vector<int64_t>> all;
  std::vector<std::vector<double>> weights_of;
  const int threads = omp_get_max_threads();
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    KhatriRaoSampler sampler(views(factors));
    std::vector<int64_t> indices(2 * 3000);
    std::vector<double> rows(6 * 3000), weights(3000);
    sampler.draw(3000, -1, 9, indices.data(), rows.data(), weights.data());
    all.push_back(indices);
    weights_of.push_back(weights);
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
  EXPECT_EQ(weights_of[0], weights_of[2]);
}

}  // namespace
}  // namespace clebsch::testing
