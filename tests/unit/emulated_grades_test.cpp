// The kernels of grades of extrapolation with their launcher in the emulator, against loops in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/errors.h"
#include "cuda/nodes/grades.h"
#include "reference.h"

namespace clebsch::cuda {
namespace {

using reference::random_values;
using reference::Values;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Features (rows, stride) of which `depth` from `first` on count, and what their grades follow from.
template <typename Feature>
struct Case {
  int rows, depth, columns, type_count, stride, first;
  bool pooled, largest, squares = false;
  std::vector<Feature> x;
  Values transform, counts;
  std::vector<int> types;

  Case(int rows_, int depth_, int columns_, int type_count_, bool pooled_, bool largest_, std::mt19937_64& random)
      : rows(rows_),
        depth(depth_),
        columns(columns_),
        type_count(type_count_),
        stride(depth_ + 3),
        first(2),
        pooled(pooled_),
        largest(largest_) {
    const Values numbers = random_values(static_cast<size_t>(rows) * stride, random);
    x.assign(numbers.begin(), numbers.end());
    transform = random_values(static_cast<size_t>(pooled ? 1 : type_count) * depth * columns, random);
    for (int t = 0; t < type_count; ++t) counts.push_back(t == 1 ? 0 : 10 + t);
    // Also types that nobody has trained on, and two that there are not.
    for (int i = 0; i < rows; ++i) types.push_back(static_cast<int>(random() % (type_count + 1)) - (i % 17 == 0));
  }

  double expected(int row) const {
    const int type = types[row];
    if (type < 0 || type >= type_count || counts[type] == 0) return kInfinite;
    const double* w = transform.data() + (pooled ? 0 : static_cast<size_t>(type) * depth * columns);
    double grade = 0;
    for (int c = 0; c < columns; ++c) {
      double y = 0;
      for (int k = 0; k < depth; ++k)
        y += static_cast<double>(x[static_cast<size_t>(row) * stride + first + k]) * w[k * columns + c];
      grade = largest ? std::max(grade, std::abs(y)) : grade + y * y;
    }
    return grade;
  }

  Values run(bool tensor_cores) const {
    // What no row is written to stays.
    Values grades(static_cast<size_t>(rows) + 5, 7.0);
    GradeArguments a;
    a.x = x.data();
    a.transform = transform.data();
    a.counts = counts.data();
    a.types = types.data();
    a.grades = grades.data();
    a.stride = stride;
    a.first = first;
    a.depth = depth;
    a.columns = columns;
    a.rows = rows;
    a.type_count = type_count;
    a.largest = largest;
    a.squares = squares;
    std::vector<char> workspace(static_cast<size_t>(Grades::workspace(a, pooled)));
    const Scalar features = sizeof(Feature) == 4 ? Scalar::f32 : Scalar::f64;
    Grades::make(tensor_cores)->run(a, features, pooled, workspace.data(), nullptr);
    return grades;
  }
};

template <typename Feature>
void check(bool tensor_cores, int rows, int depth, int columns, int type_count, std::mt19937_64& random) {
  for (const bool pooled : {true, false}) {
    for (const bool largest : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << depth << " x " << columns << ", pooled " << pooled
                                      << ", largest " << largest);
      const Case<Feature> made(rows, depth, columns, type_count, pooled, largest, random);
      const Values got = made.run(tensor_cores);
      for (int i = 0; i < rows; ++i) {
        const double expected = made.expected(i);
        if (std::isinf(expected)) {
          ASSERT_EQ(got[i], expected) << i;
        } else {
          ASSERT_NEAR(got[i], expected, 1e-13 * depth * columns) << i;
        }
      }
      for (size_t i = rows; i < got.size(); ++i) ASSERT_EQ(got[i], 7.0);
      EXPECT_EQ(got, made.run(tensor_cores)) << "another run";
    }
  }
}

/// By the kernel for tensor cores, or the plain one.
class GradeKernels : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Both, GradeKernels, testing::Bool());

/// Below, at and above a tile's rows, features and columns, and not multiples of them.
TEST_P(GradeKernels, AsTheLoops) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  check<float>(GetParam(), 100, 64, 64, 3, random);
  check<double>(GetParam(), 33, 128, 128, 2, random);
  check<float>(GetParam(), 32, 16, 65, 1, random);
  check<double>(GetParam(), 1, 1, 1, 2, random);
  check<float>(GetParam(), 65, 33, 20, 4, random);
  check<double>(GetParam(), 0, 8, 8, 2, random);
  // More features than a block has in shared memory at a time, more columns than a pass.
  check<float>(GetParam(), 40, 150, 200, 2, random);
  check<double>(GetParam(), 17, 65, 67, 2, random);
}

/// Squares of features: below, at and above a tile's rows, features and columns.
template <typename Feature>
void check_squares(bool tensor_cores, int rows, int depth, int columns, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << depth << " x " << columns);
  Case<Feature> made(rows, depth, columns, 2, true, false, random);
  made.transform = random_values(static_cast<size_t>(3 * depth + 1) * columns, random);
  made.squares = true;
  const Values got = made.run(tensor_cores);
  const double* w = made.transform.data();
  for (int i = 0; i < rows; ++i) {
    if (made.expected(i) == kInfinite) {
      ASSERT_EQ(got[i], kInfinite) << i;
      continue;
    }
    Values y(depth, 0.0);
    for (int c = 0; c < depth; ++c) {
      for (int k = 0; k < depth; ++k)
        y[c] += static_cast<double>(made.x[static_cast<size_t>(i) * made.stride + made.first + k]) * w[k * columns + c];
    }
    double grade = 0;
    for (int c = 0; c < columns; ++c) {
      double u = w[depth * columns + c];
      for (int k = 0; k < depth; ++k)
        u += y[k] * w[(depth + 1 + k) * columns + c] + y[k] * y[k] * w[(2 * depth + 1 + k) * columns + c];
      grade += u * u;
    }
    ASSERT_NEAR(got[i], grade, 1e-13 * depth * columns * (1 + grade)) << i;
  }
  EXPECT_EQ(got, made.run(tensor_cores)) << "another run";
}

TEST_P(GradeKernels, Squares) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  check_squares<float>(GetParam(), 70, 64, 129, random);
  check_squares<double>(GetParam(), 33, 17, 35, random);
  check_squares<float>(GetParam(), 32, 1, 3, random);
  check_squares<double>(GetParam(), 5, 63, 63, random);
  check_squares<float>(GetParam(), 1, 7, 15, random);
  check_squares<double>(GetParam(), 31, 57, 115, random);
  // A few columns behind a whole tile, and more than a few.
  for (const int columns : {64, 66, 68, 69}) check_squares<double>(GetParam(), 40, 40, columns, random);
  Case<float> wide(4, 65, 131, 1, true, false, random);
  wide.transform = random_values(196 * 131, random);
  wide.squares = true;
  EXPECT_THROW(wide.run(GetParam()), Error);
}

/// A feature that is not a number shows, also behind larger columns.
TEST_P(GradeKernels, NotANumber) {
  std::mt19937_64 random(3);
  for (const bool largest : {false, true}) {
    Case<float> made(40, 20, 70, 1, true, largest, random);
    for (int& type : made.types) type = 0;
    made.x[5 * made.stride + made.first + 3] = std::nanf("");
    const Values got = made.run(GetParam());
    for (int i = 0; i < made.rows; ++i) EXPECT_EQ(std::isnan(got[i]), i == 5) << i;
  }
}

}  // namespace
}  // namespace clebsch::cuda
