// Matrix products and sigmoids of the triangle multiplicative update on the CPU, of every instruction set that is here.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "multilinear/triangle/host_products.h"

namespace clebsch::triangle {

extern const AllLoops loops_baseline;
#if defined(__x86_64__)
extern const AllLoops loops_avx2, loops_avx512;
#endif

namespace {

std::vector<const AllLoops*> all() {
  std::vector<const AllLoops*> found{&loops_baseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&loops_avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq")) {
    found.push_back(&loops_avx512);
  }
#endif
  return found;
}

template <typename R>
const Loops<R>& of(const AllLoops& loops) {
  if constexpr (sizeof(R) == 4) return loops.floats;
  if constexpr (sizeof(R) == 8) return loops.doubles;
}

template <typename R>
std::vector<R> numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<R> uniform(-1, 1);
  std::vector<R> made(static_cast<size_t>(count));
  for (R& x : made) x = uniform(random);
  return made;
}

/// c (m, n) of a, turned or not, and b, turned or not, added to what is there or not; columns beyond n stay.
template <typename R>
void expect_product(const Loops<R>& loops, int64_t m, int64_t n, int64_t k) {
  for (int way = 0; way < 8; ++way) {
    const bool turned_a = way & 1, turned_b = way & 2, add = way & 4;
    const auto a = numbers<R>(m * k, 1), b = numbers<R>(k * n, 2);
    const int64_t stride = n + 3;
    auto c = numbers<R>(m * stride, 3);
    const auto before = c;
    const Matrix<R> left{a.data(), turned_a ? 1 : k, turned_a ? m : 1};
    const Matrix<R> right{b.data(), turned_b ? 1 : n, turned_b ? k : 1};
    std::vector<R> packed(static_cast<size_t>(loops.packed_size(k, n)));
    loops.pack(right, k, n, packed.data());
    loops.multiply(left, m, k, packed.data(), n, c.data(), stride, add);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < stride; ++j) {
        const auto at = static_cast<size_t>(i * stride + j);
        if (j >= n) {
          EXPECT_EQ(c[at], before[at]);
          continue;
        }
        double sum = add ? static_cast<double>(before[at]) : 0.0;
        for (int64_t t = 0; t < k; ++t) {
          sum += static_cast<double>(left.data[i * left.row_stride + t * left.column_stride]) *
                 static_cast<double>(right.data[t * right.row_stride + j * right.column_stride]);
        }
        const double bound = static_cast<double>(std::numeric_limits<R>::epsilon()) * static_cast<double>(k + 1);
        ASSERT_NEAR(static_cast<double>(c[at]), sum, bound) << m << " " << n << " " << k << " way " << way;
      }
    }
  }
}

template <typename R>
void expect_all() {
  for (const AllLoops* loops : all()) {
    for (const auto& [m, n, k] :
         {std::tuple{1, 1, 1}, {12, 32, 7}, {13, 33, 256}, {96, 5, 300}, {200, 64, 16}, {5, 100, 600}, {24, 16, 0}}) {
      expect_product(of<R>(*loops), m, n, k);
    }
  }
}

TEST(TriangleProducts, OfFloats) { expect_all<float>(); }
TEST(TriangleProducts, OfDoubles) { expect_all<double>(); }

template <typename R>
void expect_sigmoids(double bound) {
  for (const AllLoops* loops : all()) {
    std::vector<R> x;
    for (R at = -100; at <= 100; at += R(0.173)) x.push_back(at);
    const auto given = x;
    of<R>(*loops).sigmoid(x.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(given[i])));
      ASSERT_NEAR(static_cast<double>(x[i]), exact, bound * exact + 1e-37) << given[i];
    }
    R odd[] = {std::numeric_limits<R>::infinity(), -std::numeric_limits<R>::infinity(),
               std::numeric_limits<R>::quiet_NaN(), R{0}, R{1e30f}};
    of<R>(*loops).sigmoid(odd, 5);
    EXPECT_EQ(odd[0], R{1});
    EXPECT_NEAR(static_cast<double>(odd[1]), 0.0, 1e-37);
    EXPECT_TRUE(std::isnan(odd[2]));
    EXPECT_EQ(odd[3], R{0.5});
    EXPECT_EQ(odd[4], R{1});
  }
}

TEST(TriangleProducts, SigmoidsOfFloats) { expect_sigmoids<float>(4e-7); }
TEST(TriangleProducts, SigmoidsOfDoubles) { expect_sigmoids<double>(1e-15); }

}  // namespace
}  // namespace clebsch::triangle
