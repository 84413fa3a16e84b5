#pragma once
// Comparison of two results of a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/model.h"

namespace clebsch::testing {

/// Within 1e-11 of the largest of b.
inline void expect_same(const std::vector<double>& a, const std::vector<double>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 1e-300;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-11 * largest) << what << " " << i;
}

/// Everything that a Result has.
inline void expect_same(const Result& a, const Result& b) {
  EXPECT_NEAR(a.energy, b.energy, 1e-11 * std::abs(b.energy));
  expect_same(a.atomic_energy, b.atomic_energy, "atomic_energy");
  expect_same(a.forces, b.forces, "forces");
  expect_same({a.virial, a.virial + 9}, {b.virial, b.virial + 9}, "virial");
  expect_same(a.atom_virial, b.atom_virial, "atom_virial");
  expect_same(a.centroid_virial, b.centroid_virial, "centroid_virial");
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (std::size_t k = 0; k < a.outputs.size(); ++k) {
    EXPECT_EQ(a.outputs[k].shape, b.outputs[k].shape);
    expect_same(a.outputs[k].values, b.outputs[k].values, "outputs");
  }
}

}  // namespace clebsch::testing
