// The kernels of readouts with their launcher in the emulator, against loops in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cuda/nodes/readout.h"
#include "reference.h"

namespace clebsch::cuda {
namespace {

using reference::random_values;
using reference::Values;

template <typename T>
struct Case {
  int rows, width, hidden_count, types_count;
  bool has_direct;
  std::vector<T> x, direct, hidden, last;
  Values scale, shift;
  std::vector<int> types;

  Case(int rows_, int width_, int hidden_count_, bool has_direct_, std::mt19937_64& random)
      : rows(rows_), width(width_), hidden_count(hidden_count_), types_count(3), has_direct(has_direct_) {
    const auto numbers = [&](int count, double size) {
      std::vector<T> made;
      for (const double v : random_values(static_cast<size_t>(count), random)) made.push_back(static_cast<T>(size * v));
      return made;
    };
    x = numbers(rows * width, 1);
    direct = numbers(width, 1);
    hidden = numbers(width * hidden_count, 2 / std::sqrt(width + 1.0));
    last = numbers(hidden_count, 1);
    scale = random_values(3, random);
    shift = random_values(3, random);
    for (int i = 0; i < rows; ++i) types.push_back(static_cast<int>(random() % 3));
  }

  /// Energy of a row, and its gradient into `gradient`.
  double expected(int row, Values& gradient) const {
    const T* const from = x.data() + static_cast<size_t>(row) * width;
    double sum = 0;
    gradient.assign(static_cast<size_t>(width), 0.0);
    for (int c = 0; c < width && has_direct; ++c) {
      sum += static_cast<double>(from[c]) * direct[c];
      gradient[c] = direct[c];
    }
    for (int j = 0; j < hidden_count; ++j) {
      double a = 0;
      for (int c = 0; c < width; ++c) a += static_cast<double>(from[c]) * hidden[c * hidden_count + j];
      const double s = 1 / (1 + std::exp(-a));
      sum += last[j] * a * s;
      for (int c = 0; c < width; ++c) gradient[c] += hidden[c * hidden_count + j] * last[j] * s * (1 + a * (1 - s));
    }
    for (double& g : gradient) g *= scale[types[row]];
    return shift[types[row]] + scale[types[row]] * sum;
  }

  ReadoutArguments arguments() const {
    ReadoutArguments a;
    a.x = x.data();
    a.direct = has_direct ? direct.data() : nullptr;
    a.hidden = hidden_count > 0 ? hidden.data() : nullptr;
    a.last = last.data();
    a.scale = scale.data();
    a.shift = shift.data();
    a.types = types.data();
    a.rows = rows;
    a.width = width;
    a.hidden_count = hidden_count;
    a.type_count = types_count;
    return a;
  }
};

template <typename T>
void check(int rows, int width, int hidden_count, bool has_direct, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << rows << " x " << width << ", " << hidden_count << " hidden, direct "
                                  << has_direct);
  const Scalar scalar = sizeof(T) == 4 ? Scalar::f32 : Scalar::f64;
  const double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-13;
  const Case<T> made(rows, width, hidden_count, has_direct, random);
  ReadoutArguments a = made.arguments();
  Values alone(static_cast<size_t>(rows) + 3, 7.0), energy = alone, grad_energy = random_values(rows, random);
  const size_t count = static_cast<size_t>(rows) * width;
  std::vector<T> gradient(count + 5, T(7)), grad_x = gradient;
  a.energy = alone.data();
  Readout::make()->forward(a, scalar, nullptr);
  a.energy = energy.data();
  a.gradient = gradient.data();
  Readout::make()->forward(a, scalar, nullptr);
  EXPECT_EQ(alone, energy);
  Readout::make()->backward({grad_energy.data(), gradient.data(), grad_x.data(), rows, width}, scalar, nullptr);
  Values slopes;
  for (int i = 0; i < rows; ++i) {
    const double expected = made.expected(i, slopes);
    ASSERT_NEAR(energy[i], expected, tolerance * std::sqrt(width)) << i;
    for (int c = 0; c < width; ++c) {
      const size_t k = static_cast<size_t>(i) * width + c;
      ASSERT_NEAR(gradient[k], slopes[c], 2 * tolerance) << i << " " << c;
      ASSERT_NEAR(grad_x[k], slopes[c] * grad_energy[i], 2 * tolerance) << i << " " << c;
    }
  }
  for (size_t i = rows; i < energy.size(); ++i) ASSERT_EQ(energy[i], 7.0);
  for (size_t k = count; k < gradient.size(); ++k) ASSERT_EQ(gradient[k], T(7));
  for (size_t k = count; k < grad_x.size(); ++k) ASSERT_EQ(grad_x[k], T(7));
}

/// Powers of two and none, weights that shared memory holds and not, one part alone.
TEST(EmulatedReadout, AsTheLoops) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const bool direct : {true, false}) {
    check<float>(9, 129, 16, direct, random);
    check<double>(6, 33, 8, direct, random);
    check<float>(5, 64, 1, direct, random);
    check<double>(3, 150, 33, direct, random);
    check<float>(2, 130, 64, direct, random);
    check<float>(3, 7, 5, direct, random);
  }
  check<float>(5, 129, 0, true, random);
  check<double>(1, 1, 0, true, random);
  check<double>(0, 8, 4, true, random);
}

/// A feature that is not a number shows in its row alone, a type out of range in the energy and the gradient.
TEST(EmulatedReadout, NotANumber) {
  std::mt19937_64 random(3);
  Case<float> made(8, 20, 6, true, random);
  made.x[3 * 20 + 4] = std::nanf("");
  made.types[6] = 9;
  Values energy(8);
  std::vector<float> gradient(8 * 20);
  ReadoutArguments a = made.arguments();
  a.energy = energy.data();
  a.gradient = gradient.data();
  Readout::make()->forward(a, Scalar::f32, nullptr);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(std::isnan(energy[i]), i == 3 || i == 6) << i;
    EXPECT_EQ(std::isnan(gradient[i * 20]), i == 3 || i == 6) << i;
  }
}

}  // namespace
}  // namespace clebsch::cuda
