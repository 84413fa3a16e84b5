#pragma once
// Shared by the core tests: random rotations, rotation matrices of harmonics, the golden file.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "core/math/harmonics.h"

namespace clebsch::test {

using Matrix3 = std::vector<double>;  // row-major 3x3

inline std::vector<double> random_unit(std::mt19937& rng) {
  std::normal_distribution<double> normal;
  for (;;) {
    std::vector<double> v = {normal(rng), normal(rng), normal(rng)};
    const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    if (r < 0.1) continue;
    for (double& a : v) a /= r;
    return v;
  }
}

/// A proper rotation from a random unit quaternion.
inline Matrix3 random_rotation(std::mt19937& rng) {
  std::normal_distribution<double> normal;
  double q[4], norm = 0;
  for (double& c : q) {
    c = normal(rng);
    norm += c * c;
  }
  for (double& c : q) c /= std::sqrt(norm);
  const double w = q[0], x = q[1], y = q[2], z = q[3];
  return {1 - 2 * (y * y + z * z), 2 * (x * y - w * z),     2 * (x * z + w * y),
          2 * (x * y + w * z),     1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
          2 * (x * z - w * y),     2 * (y * z + w * x),     1 - 2 * (x * x + y * y)};
}

inline std::vector<double> rotate(const Matrix3& R, const std::vector<double>& v) {
  std::vector<double> out(3, 0.0);
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) out[a] += R[3 * a + b] * v[b];
  }
  return out;
}

/// Harmonics 0..lmax of a unit vector.
inline std::vector<double> harmonics_at(int lmax, const std::vector<double>& v) {
  std::vector<double> Y(harmonics_count(lmax));
  spherical_harmonics(lmax, v[0], v[1], v[2], Y.data());
  return Y;
}

/// The (2l+1)x(2l+1) matrix with Y_l(R v) = D Y_l(v), by least squares over random directions.
inline std::vector<double> rotation_matrix(int l, const Matrix3& R) {
  const int d = 2 * l + 1;
  std::vector<double> left(d * d, 0.0), right(d * d, 0.0);  // D left = right
  std::mt19937 rng(11);
  for (int i = 0; i < 400; ++i) {
    const auto v = random_unit(rng);
    const auto Y = harmonics_at(l, v), YR = harmonics_at(l, rotate(R, v));
    for (int a = 0; a < d; ++a) {
      for (int b = 0; b < d; ++b) {
        left[a * d + b] += Y[l * l + a] * Y[l * l + b];
        right[a * d + b] += YR[l * l + a] * Y[l * l + b];
      }
    }
  }
  // Gauss-Jordan on the symmetric positive definite `left`; columns of `right` follow.
  for (int k = 0; k < d; ++k) {
    const double pivot = left[k * d + k];
    for (int a = 0; a < d; ++a) left[a * d + k] /= pivot;
    for (int a = 0; a < d; ++a) right[a * d + k] /= pivot;
    for (int c = 0; c < d; ++c) {
      if (c == k) continue;
      const double factor = left[k * d + c];
      for (int a = 0; a < d; ++a) left[a * d + c] -= factor * left[a * d + k];
      for (int a = 0; a < d; ++a) right[a * d + c] -= factor * right[a * d + k];
    }
  }
  return right;
}

/// tests/unit/data/e3nn_golden.json, written by tests/parity/make_e3nn_golden.py.
inline const nlohmann::json& golden() {
  static const nlohmann::json data = [] {
    std::ifstream file(CLEBSCH_TEST_DATA "/e3nn_golden.json");
    return nlohmann::json::parse(file);
  }();
  return data;
}

}  // namespace clebsch::test
