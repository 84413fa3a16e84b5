// symmetric_contraction on the CPU against slow loops in fp64: values, gradients, their changes along a direction.
#include "cpu/symmetric_contraction.h"

#include <gtest/gtest.h>

#include "cpu/dispatch.h"
#include "symmetric_reference.h"

namespace clebsch {
namespace {

using reference::SymmetricOutput;
using reference::Values;

struct SymmetricCase {
  unsigned seed = reference::fresh_seed();
  std::mt19937_64 random{seed};
  SymmetricProblem problem;
  int64_t rows, types;
  std::vector<int32_t> type;
  Values x, coefficients, grad_out, tangent_x, tangent_coefficients;

  SymmetricCase(const std::string& in, const std::string& out, int correlation, int count, int64_t rows_,
                int64_t types_)
      : problem(SymmetricProblem::parse(reference::random_symmetric_text(in, out, correlation, count, random))),
        rows(rows_),
        types(types_),
        type(rows_) {
    const size_t weights = types * problem.monomials.size() * problem.channels;
    for (int32_t& t : type) t = static_cast<int32_t>(random() % types);
    x = reference::random_values(rows * problem.in.dim(), random);
    coefficients = reference::random_values(weights, random);
    grad_out = reference::random_values(rows * problem.out.dim(), random);
    tangent_x = reference::random_values(x.size(), random);
    tangent_coefficients = reference::random_values(weights, random);
  }

  SymmetricOutput expected(const Values& at_x, const Values& at_coefficients) const {
    return reference::symmetric_contraction(problem, rows, types, at_x, at_coefficients, type, grad_out);
  }

  /// Bounds of the sums of absolute terms: what rounding errors are relative to, however much the terms cancel. With
  /// `tangent`, of the changes as well.
  SymmetricOutput magnitudes(bool tangent) const {
    const auto absolute = [&](const Values& values, const Values& change) {
      Values sum(values.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = std::abs(values[i]) + (tangent ? std::abs(change[i]) : 0);
      return sum;
    };
    SymmetricCase other = *this;
    other.grad_out = absolute(grad_out, Values(grad_out.size()));
    return other.expected(absolute(x, tangent_x), absolute(coefficients, tangent_coefficients));
  }

  /// The kernels' results; with `tangent` their changes. Targets start as NaN, so that what is not written shows.
  template <typename T>
  SymmetricOutput run(bool tangent = false, int threads = 1, bool of_x = true, bool of_coefficients = true) const {
    const auto cast = [](const Values& values) { return std::vector<T>(values.begin(), values.end()); };
    const std::vector<T> xt = cast(x), ct = cast(coefficients), gt = cast(grad_out), dx = cast(tangent_x),
                         dc = cast(tangent_coefficients);
    std::vector<T> out(gt.size(), NAN), grad_x(xt.size(), NAN), grad_c(ct.size(), NAN);
    const cpu::SymmetricInput<T> input{xt.data(), ct.data(), type.data(), rows, types};
    T* to_x = of_x ? grad_x.data() : nullptr;
    T* to_c = of_coefficients ? grad_c.data() : nullptr;
    if (tangent) {
      cpu::symmetric_contraction_tangent<T>(problem, input, dx.data(), dc.data(), gt.data(), out.data(), to_x, to_c,
                                            threads);
    } else {
      cpu::symmetric_contraction_forward<T>(problem, input, out.data(), threads);
      cpu::symmetric_contraction_backward<T>(problem, input, gt.data(), to_x, to_c, threads);
    }
    const auto widen = [](const std::vector<T>& values) { return Values(values.begin(), values.end()); };
    return {widen(out), widen(grad_x), widen(grad_c)};
  }
};

void expect_close(const Values& got, const Values& expected, const Values& magnitudes, double tolerance,
                  const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  double scale = 1e-300;
  for (double v : magnitudes) scale = std::max(scale, v);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance * scale) << what << " " << i;
  }
}

void expect_close(const SymmetricOutput& got, const SymmetricOutput& expected, const SymmetricOutput& magnitudes,
                  double tolerance) {
  expect_close(got.out, expected.out, magnitudes.out, tolerance, "out");
  expect_close(got.grad_x, expected.grad_x, magnitudes.grad_x, tolerance, "grad_x");
  expect_close(got.grad_coefficients, expected.grad_coefficients, magnitudes.grad_coefficients, tolerance,
               "grad_coefficients");
}

std::vector<cpu::Isa> instruction_sets() {
  std::vector<cpu::Isa> sets;
  for (cpu::Isa isa : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512}) {
    try {
      const cpu::Isa before = cpu::isa();
      cpu::set_isa(isa);
      cpu::set_isa(before);
      sets.push_back(isa);
    } catch (const std::exception&) {
    }
  }
  return sets;
}

struct Shape {
  const char *in, *out;
  int correlation, count;
  int64_t rows, types;
};
const Shape kShapes[] = {
    {"16x0e+16x1o+16x2e+16x3o", "16x0e+16x1o", 3, 120, 21, 3},
    {"37x0e+37x1o", "37x0e+37x1o+37x2e", 4, 60, 9, 2},  // channels that fill no vector
    {"5x0e+5x1o+5x2e", "5x0e", 2, 40, 150, 89},         // most types have one atom or none
    {"3x0e+3x1o", "3x1o", 1, 10, 4, 1},
    {"1x0e", "1x0e", 4, 8, 1, 1},
    {"8x0e+8x1e", "8x1e", 3, 30, 0, 2},    // no atoms
    {"70x0e+70x1o", "70x0e", 3, 0, 3, 2},  // no monomials
};

TEST(SymmetricContraction, ValuesAndGradientsOnEveryInstructionSet) {
  const cpu::Isa before = cpu::isa();
  for (const cpu::Isa isa : instruction_sets()) {
    cpu::set_isa(isa);
    for (const Shape& s : kShapes) {
      const SymmetricCase test(s.in, s.out, s.correlation, s.count, s.rows, s.types);
      SCOPED_TRACE(cpu::isa_name(isa) + " " + s.in + " seed " + std::to_string(test.seed));
      const SymmetricOutput expected = test.expected(test.x, test.coefficients);
      const SymmetricOutput magnitudes = test.magnitudes(false);
      expect_close(test.run<double>(), expected, magnitudes, 1e-15);
      expect_close(test.run<float>(), expected, magnitudes, 5e-7);
    }
  }
  cpu::set_isa(before);
}

TEST(SymmetricContraction, EachGradientAlone) {
  const SymmetricCase test("16x0e+16x1o", "16x0e+16x1o", 3, 50, 11, 2);
  SCOPED_TRACE(test.seed);
  const SymmetricOutput expected = test.expected(test.x, test.coefficients);
  const SymmetricOutput magnitudes = test.magnitudes(false);
  expect_close(test.run<double>(false, 1, true, false).grad_x, expected.grad_x, magnitudes.grad_x, 1e-15, "grad_x");
  expect_close(test.run<double>(false, 1, false, true).grad_coefficients, expected.grad_coefficients,
               magnitudes.grad_coefficients, 1e-15, "grad_coefficients");
  EXPECT_TRUE(std::isnan(test.run<double>(false, 1, true, false).grad_coefficients[0]));
}

TEST(SymmetricContraction, TangentIsTheDifferenceQuotient) {
  const cpu::Isa before = cpu::isa();
  for (const cpu::Isa isa : instruction_sets()) {
    cpu::set_isa(isa);
    for (const Shape& s : kShapes) {
      const SymmetricCase test(s.in, s.out, s.correlation, s.count, s.rows, s.types);
      SCOPED_TRACE(cpu::isa_name(isa) + " " + s.in + " seed " + std::to_string(test.seed));
      // A polynomial of degree at most 4 in the step: this stencil's error is of order h^4.
      const double h = 1e-2;
      const auto moved = [&](double step) {
        Values x = test.x, c = test.coefficients;
        for (size_t i = 0; i < x.size(); ++i) x[i] += step * test.tangent_x[i];
        for (size_t i = 0; i < c.size(); ++i) c[i] += step * test.tangent_coefficients[i];
        return test.expected(x, c);
      };
      const SymmetricOutput a = moved(h), b = moved(-h), c = moved(2 * h), d = moved(-2 * h);
      const auto slope = [&](const Values& p, const Values& m, const Values& pp, const Values& mm) {
        Values v(p.size());
        for (size_t i = 0; i < v.size(); ++i) v[i] = (8 * (p[i] - m[i]) - (pp[i] - mm[i])) / (12 * h);
        return v;
      };
      const SymmetricOutput expected{
          slope(a.out, b.out, c.out, d.out), slope(a.grad_x, b.grad_x, c.grad_x, d.grad_x),
          slope(a.grad_coefficients, b.grad_coefficients, c.grad_coefficients, d.grad_coefficients)};
      const SymmetricOutput magnitudes = test.magnitudes(true);
      expect_close(test.run<double>(true), expected, magnitudes, 1e-8);
      expect_close(test.run<float>(true), expected, magnitudes, 5e-7);
    }
  }
  cpu::set_isa(before);
}

TEST(SymmetricContraction, SameBitsForAnyNumberOfThreads) {
  const SymmetricCase test("40x0e+40x1o+40x2e", "40x0e+40x1o", 3, 90, 203, 4);
  SCOPED_TRACE(test.seed);
  for (const bool tangent : {false, true}) {
    const SymmetricOutput one = test.run<float>(tangent, 1);
    for (const int threads : {2, 3, 8}) {
      const SymmetricOutput many = test.run<float>(tangent, threads);
      EXPECT_EQ(one.out, many.out);
      EXPECT_EQ(one.grad_x, many.grad_x);
      EXPECT_EQ(one.grad_coefficients, many.grad_coefficients);
    }
  }
}

}  // namespace
}  // namespace clebsch
