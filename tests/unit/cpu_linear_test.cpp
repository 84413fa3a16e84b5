// linear on the CPU against slow loops in fp64, with every instruction set of this machine.
#include "cpu/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/errors.h"
#include "cpu/dispatch.h"
#include "reference.h"

namespace clebsch {
namespace {

using Values = std::vector<double>;

/// A multiplicity of 1, around a vector's width, around a panel's, and one into which several maps go; irreps that come
/// from nowhere and that go nowhere.
const char* const kProblems[] = {
    "linear in=1x0e out=1x0e",
    "linear in=64x0e out=16x0e",
    "linear in=16x0e out=1x0e",
    "linear in=7x0e+33x1o+3x2e+5x3o out=65x0e+4x0o+17x1o+3x2e",
    "linear in=5x0e+4x1o+6x0e+2x2e out=9x1o+31x0e",
};

struct LinearCase {
  LinearProblem problem;
  bool transposed;
  int64_t rows;
  Values x, weight;

  LinearCase(const std::string& text, bool transposed_, int64_t rows_, std::mt19937_64& random)
      : problem(LinearProblem::parse(text)), transposed(transposed_), rows(rows_) {
    x = reference::random_values(rows * (transposed ? problem.out : problem.in).dim(), random);
    weight = reference::random_values(problem.weight_count, random);
  }

  int64_t x_row() const { return (transposed ? problem.out : problem.in).dim(); }
  int64_t out_row() const { return (transposed ? problem.in : problem.out).dim(); }

  /// With the sums of absolute terms, what rounding errors are relative to.
  void expected(Values& out, Values& magnitude) const {
    out.assign(rows * out_row(), 0.0);
    magnitude = out;
    for (int64_t row = 0; row < rows; ++row) {
      for (const auto& map : problem.maps) {
        for (int64_t i = 0; i < map.in_mul; ++i) {
          for (int64_t o = 0; o < map.out_mul; ++o) {
            for (int64_t m = 0; m < 2 * map.l + 1; ++m) {
              const int64_t in = map.in_offset + m * map.in_mul + i, to = map.out_offset + m * map.out_mul + o;
              const double w = weight[map.weight_offset + i * map.out_mul + o];
              const double term = w * x[row * x_row() + (transposed ? to : in)];
              out[row * out_row() + (transposed ? in : to)] += term;
              magnitude[row * out_row() + (transposed ? in : to)] += std::abs(term);
            }
          }
        }
      }
    }
  }

  /// The result starts as NaN, so that what is not written shows.
  template <typename T>
  std::vector<T> run(int threads, int64_t first = 0, int64_t count = -1) const {
    if (count < 0) count = rows;
    const std::vector<T> xt(x.begin() + first * x_row(), x.begin() + (first + count) * x_row());
    const std::vector<T> wt(weight.begin(), weight.end());
    std::vector<T> out(count * out_row(), std::numeric_limits<T>::quiet_NaN());
    cpu::linear<T>(problem, transposed, count, xt.data(), wt.data(), out.data(), threads);
    return out;
  }
};

template <typename T>
void check(const LinearCase& c) {
  Values expected, magnitude;
  c.expected(expected, magnitude);
  const std::vector<T> got = c.run<T>(1);
  const double unit = 16.0 * std::numeric_limits<T>::epsilon();
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_NEAR(got[k], expected[k], unit * (magnitude[k] + 1e-30)) << c.rows << " rows, number " << k;
  }
  EXPECT_EQ(got, c.run<T>(2)) << "threads";
  EXPECT_EQ(got, c.run<T>(5)) << "threads";
  for (const int64_t row : {int64_t{0}, c.rows / 2, c.rows - 1}) {
    if (row < 0 || row >= c.rows) continue;
    const std::vector<T> alone = c.run<T>(1, row, 1);
    for (int64_t k = 0; k < c.out_row(); ++k) ASSERT_EQ(alone[k], got[row * c.out_row() + k]) << "row " << row;
  }
}

TEST(CpuLinear, IsTheSumOfItsTerms) {
  std::mt19937_64 random(reference::fresh_seed());
  const cpu::Isa before = cpu::isa();
  for (const cpu::Isa isa : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512}) {
    try {
      cpu::set_isa(isa);
    } catch (const Error&) {
      continue;
    }
    for (const char* text : kProblems) {
      for (const bool transposed : {false, true}) {
        for (const int64_t rows : {0, 1, 5, 12, 29, 200}) {
          SCOPED_TRACE(cpu::isa_name(isa) + " " + text + (transposed ? " transposed" : ""));
          const LinearCase c(text, transposed, rows, random);
          check<float>(c);
          check<double>(c);
        }
      }
    }
  }
  cpu::set_isa(before);
}

}  // namespace
}  // namespace clebsch
