// The generated kernels of symmetric_contraction and their launcher in the emulator: against slow loops in fp64, and
// the changes along a direction against the CPU op. Rows that are not computed, types out of range, lanes without a
// channel.
#include <gtest/gtest.h>

#include "cpu/symmetric_contraction.h"
#include "cuda/kernels/embedded_source.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/nodes/symmetric_contraction.h"
#include "symmetric_problems.h"
#include "symmetric_reference.h"

namespace clebsch {
namespace {

using cuda::SymmetricPass;
using reference::SymmetricOutput;
using reference::Values;

/// Rows grouped by type by the generated kernel; limit -1: none given.
struct Grouping {
  std::vector<int> order, group_type;
  int groups;

  Grouping(const std::vector<int32_t>& types, int limit, int type_count, int rows, int blocks) {
    static const cuda::KernelOf<cuda::GroupRowsArguments> kernel(
        cuda::load_module(cuda::compile(cuda::embedded_source("group_rows.cu"), "group_rows", 90).code, {"group_rows"})
            .front());
    const int nodes = static_cast<int>(types.size());
    groups = static_cast<int>(cuda::group_capacity(nodes, type_count, rows));
    order.assign(static_cast<size_t>(groups * rows), -7);
    group_type.assign(static_cast<size_t>(groups), -7);
    kernel.launch(
        blocks, cuda::kGroupThreads, nullptr,
        {types.data(), limit < 0 ? nullptr : &limit, nodes, type_count, rows, groups, order.data(), group_type.data()});
  }
};

TEST(EmulatedGroupRows, EveryRowOnceInAGroupOfItsType) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const int nodes : {1, 5, 1300}) {
    for (const int type_count : {1, 3, 89}) {
      const int rows = 1 << random() % 3;
      std::vector<int32_t> types(static_cast<size_t>(nodes));
      for (int32_t& type : types)
        type = static_cast<int32_t>(random() % (type_count + 2)) - 1;  // two that do not exist
      const int limit = random() % 2 ? static_cast<int>(random() % (nodes + 1)) : -1;
      const Grouping made(types, limit, type_count, rows, 1 << random() % 4);
      std::vector<int> seen(static_cast<size_t>(nodes));
      for (int g = 0; g < made.groups; ++g) {
        const int type = made.group_type[g];
        ASSERT_TRUE(type >= -1 && type <= type_count);
        ASSERT_EQ(type >= 0, made.order[g * rows] >= 0) << "the first place of a group that is used is a row";
        for (int r = 0; r < rows; ++r) {
          const int row = made.order[g * rows + r];
          ASSERT_TRUE(row >= -1 && row < nodes);
          if (row < 0) continue;
          ++seen[row];
          const bool computed = (limit < 0 || row < limit) && types[row] >= 0 && types[row] < type_count;
          EXPECT_EQ(type, computed ? types[row] : type_count);
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
  }
}

/// `limit` of 23 rows are computed; with several types row 4 is of one that does not exist: its results are zero.
struct Case {
  static constexpr int kNodes = 23, kNoType = 4;
  unsigned seed = reference::fresh_seed();
  std::mt19937_64 random{seed};
  std::shared_ptr<const SymmetricProblem> problem;
  int limit, kinds;
  std::vector<int32_t> types;
  Values x, coefficients, grad_out, tangent_x, tangent_coefficients;

  explicit Case(const std::string& name, int limit_ = 19, int kinds_ = 3)
      : problem(std::make_shared<const SymmetricProblem>(named_symmetric_problem(name))),
        limit(limit_),
        kinds(kinds_),
        types(static_cast<size_t>(kNodes)) {
    for (int32_t& type : types) type = static_cast<int32_t>(random() % kinds);
    const size_t weights = kinds * problem->monomials.size() * problem->channels;
    x = reference::random_values(kNodes * problem->in.dim(), random);
    tangent_x = reference::random_values(x.size(), random);
    coefficients = reference::random_values(weights, random);
    tangent_coefficients = reference::random_values(weights, random);
    grad_out = reference::random_values(kNodes * problem->out.dim(), random);
  }

  SymmetricOutput zero_where_not_computed(SymmetricOutput result) const {
    result.out.resize(grad_out.size(), 0);
    result.grad_x.resize(x.size(), 0);
    std::fill(result.out.begin() + limit * problem->out.dim(), result.out.end(), 0);
    std::fill(result.grad_x.begin() + limit * problem->in.dim(), result.grad_x.end(), 0);
    if (kinds == 1) return result;
    std::fill_n(result.out.begin() + kNoType * problem->out.dim(), problem->out.dim(), 0);
    std::fill_n(result.grad_x.begin() + kNoType * problem->in.dim(), problem->in.dim(), 0);
    return result;
  }

  SymmetricOutput expected() const {
    return zero_where_not_computed(
        reference::symmetric_contraction(*problem, limit, kinds, x, coefficients, types, grad_out));
  }

  SymmetricOutput expected_change() const {
    SymmetricOutput result{Values(grad_out.size()), Values(x.size()), {}};
    const cpu::SymmetricInput<double> input{x.data(), coefficients.data(), types.data(), limit, kinds};
    cpu::symmetric_contraction_tangent<double>(*problem, input, tangent_x.data(), tangent_coefficients.data(),
                                               grad_out.data(), result.out.data(), result.grad_x.data(), nullptr, 1);
    return zero_where_not_computed(result);
  }

  template <typename T>
  SymmetricOutput run(bool change) const {
    const auto cast = [](const Values& values) { return std::vector<T>(values.begin(), values.end()); };
    const std::vector<T> xt = cast(x), ct = cast(coefficients), gt = cast(grad_out), dx = cast(tangent_x),
                         dc = cast(tangent_coefficients);
    std::vector<T> out(gt.size(), T(NAN)), grad(xt.size(), T(NAN));
    std::vector<int32_t> seen = types;
    if (kinds > 1) seen[kNoType] = 7;
    const auto kernels =
        cuda::SymmetricContraction::make(problem, sizeof(T) == 4 ? cuda::Scalar::f32 : cuda::Scalar::f64);
    const cuda::SymmetricOperands operands{xt.data(), ct.data(), seen.data(), &limit, kNodes, kinds};
    const auto workspace = [&](SymmetricPass pass) {
      return std::vector<char>(static_cast<size_t>(kernels->workspace(pass, operands)), 77);
    };
    if (change) {
      std::vector<char> scratch = workspace(SymmetricPass::tangent);
      kernels->tangent(operands, gt.data(), dx.data(), dc.data(), out.data(), grad.data(), scratch.data(), nullptr);
      std::vector<T> again(xt.size(), T(NAN));  // the output is not always wanted
      kernels->tangent(operands, gt.data(), dx.data(), dc.data(), nullptr, again.data(), scratch.data(), nullptr);
      EXPECT_EQ(grad, again);
    } else {
      std::vector<char> scratch = workspace(SymmetricPass::forward);
      kernels->forward(operands, out.data(), scratch.data(), nullptr);
      scratch = workspace(SymmetricPass::backward);
      kernels->backward(operands, gt.data(), grad.data(), scratch.data(), nullptr);
    }
    return {Values(out.begin(), out.end()), Values(grad.begin(), grad.end()), {}};
  }
};

void expect_close(const Values& got, const Values& expected, double tolerance, const char* what) {
  double scale = 1e-300;
  for (double v : expected) scale = std::max(scale, std::abs(v));
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance * scale) << what << " " << i;
}

template <typename T>
void check(const Case& test) {
  SCOPED_TRACE(test.seed);
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  const SymmetricOutput expected = test.expected(), got = test.run<T>(false);
  expect_close(got.out, expected.out, tolerance, "out");
  expect_close(got.grad_x, expected.grad_x, tolerance, "grad_x");
}

template <typename T>
void check_change(const Case& test) {
  SCOPED_TRACE(test.seed);
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  const SymmetricOutput change = test.expected_change(), got = test.run<T>(true);
  expect_close(got.out, change.out, tolerance, "change of out");
  expect_close(got.grad_x, change.grad_x, tolerance, "change of grad_x");
}

TEST(EmulatedSymmetric, UnevenChannels) {
  check<double>(Case("test-uneven"));
  check_change<double>(Case("test-uneven"));
}

TEST(EmulatedSymmetric, SinglePrecision) {
  check<float>(Case("test-uneven"));
  check_change<float>(Case("test-uneven"));
}

TEST(EmulatedSymmetric, CorrelationFour) {
  check<double>(Case("test-correlation-4"));
  check_change<double>(Case("test-correlation-4"));
}

TEST(EmulatedSymmetric, AllRowsOrNone) {
  check<float>(Case("test-linear", Case::kNodes));
  check<float>(Case("test-linear", 0));
}

TEST(EmulatedSymmetric, OneTypeWithoutGroups) {
  for (const int limit : {0, 1, 18, 19, 23}) {
    check<float>(Case("test-uneven", limit, 1));
    check_change<double>(Case("test-uneven", limit, 1));
  }
}

TEST(EmulatedSymmetric, MaceM) { check<float>(Case("mace-M")); }

}  // namespace
}  // namespace clebsch
