#pragma once
// Systems of atoms for the tests of lists: cells of every kind, and all pairs by brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "core/systems.h"

namespace clebsch::testing {

/// Systems with what their view points at.
struct Systems {
  std::vector<int32_t> starts{0}, types;
  std::vector<double> positions, cells;
  std::vector<uint8_t> periodic;

  /// Atoms at random in the cell, and beyond it by `stray` of its vectors.
  void add(int atoms, const std::array<double, 9>& cell, const std::array<uint8_t, 3>& pbc, std::mt19937_64& random,
           double stray = 0) {
    std::uniform_real_distribution<double> uniform(-stray, 1 + stray);
    double complete[9];
    complete_cell(cell.data(), pbc.data(), complete);
    for (int i = 0; i < atoms; ++i) {
      const double f[3] = {uniform(random), uniform(random), uniform(random)};
      // Open directions without a vector: five Angstrom.
      for (int d = 0; d < 3; ++d) {
        double x = 0;
        for (int k = 0; k < 3; ++k)
          x += f[k] * complete[3 * k + d] * (cell[3 * k] == 0 && cell[3 * k + 1] == 0 && cell[3 * k + 2] == 0 ? 5 : 1);
        positions.push_back(x);
      }
      types.push_back(static_cast<int32_t>(random() % 2));
    }
    starts.push_back(starts.back() + atoms);
    cells.insert(cells.end(), cell.begin(), cell.end());
    periodic.insert(periodic.end(), pbc.begin(), pbc.end());
  }
  SystemsView view() const {
    return {static_cast<int32_t>(starts.size()) - 1,
            starts.back(),
            starts.data(),
            types.data(),
            positions.data(),
            cells.data(),
            periodic.data()};
  }
};

/// Cells of every kind: cubic, triclinic, a slab, a wire, a molecule, one atom, none, cells smaller than a cutoff of 4.
inline Systems systems_of_all_kinds(std::mt19937_64& random, int scale = 1) {
  Systems all;
  const double far = 1.7;
  all.add(40 * scale, {9, 0, 0, 0, 9, 0, 0, 0, 9}, {1, 1, 1}, random, far);
  all.add(30, {8, 0, 0, 3.5, 7, 0, -2.5, 1.5, 9}, {1, 1, 1}, random, far);
  all.add(20, {6, 1, 0, 0, 7, 0, 0, 0, 12}, {1, 1, 0}, random);
  all.add(15, {5, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 0}, random);
  all.add(12, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0}, random);
  all.add(0, {3, 0, 0, 0, 3, 0, 0, 0, 3}, {1, 1, 1}, random);
  all.add(1, {2.5, 0, 0, 0, 2.1, 0.3, 0, 0, 2.7}, {1, 1, 1}, random, far);
  all.add(1, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0}, random);
  all.add(3, {2.23, 0, 0, 1.01, 2.42, 0, 0.4, 0.3, 3.07}, {1, 1, 1}, random, far);
  all.add(25, {30, 0, 0, 0, 3.1, 0, 0, 0, 4.3}, {0, 1, 1}, random);
  return all;
}

/// receiver, sender, shift of every pair nearer than the cutoff, of positions as they are in complete cells.
using PairSet = std::set<std::array<int32_t, 5>>;
inline PairSet all_pairs(const SystemsView& view, double cutoff) {
  PairSet pairs;
  for (int32_t s = 0; s < view.count; ++s) {
    const double* cell = view.cells + 9 * s;
    double inverse[9];
    invert_cell(cell, inverse);
    int reach[3];
    for (int k = 0; k < 3; ++k) {
      const double steep =
          std::sqrt(inverse[k] * inverse[k] + inverse[3 + k] * inverse[3 + k] + inverse[6 + k] * inverse[6 + k]);
      reach[k] = view.periodic[3 * s + k] ? static_cast<int>(std::ceil(cutoff * steep)) + 1 : 0;
    }
    for (int32_t i = view.starts[s]; i < view.starts[s + 1]; ++i)
      for (int32_t j = view.starts[s]; j < view.starts[s + 1]; ++j)
        for (int a = -reach[0]; a <= reach[0]; ++a)
          for (int b = -reach[1]; b <= reach[1]; ++b)
            for (int c = -reach[2]; c <= reach[2]; ++c) {
              double square = 0;
              for (int d = 0; d < 3; ++d) {
                const double v = view.positions[3 * j + d] + a * cell[d] + b * cell[3 + d] + c * cell[6 + d] -
                                 view.positions[3 * i + d];
                square += v * v;
              }
              if (square < cutoff * cutoff && (i != j || a || b || c)) pairs.insert({i, j, a, b, c});
            }
  }
  return pairs;
}

/// Equality, with the first pair of either set that the other lacks.
inline ::testing::AssertionResult same_pairs(const PairSet& got, const PairSet& expected) {
  if (got == expected) return ::testing::AssertionSuccess();
  auto result = ::testing::AssertionFailure() << got.size() << " pairs instead of " << expected.size();
  const auto name_first = [&](const PairSet& of, const PairSet& lacking, const char* what) {
    for (const auto& p : of) {
      if (lacking.count(p) > 0) continue;
      result << what << p[0] << " " << p[1] << ", shift " << p[2] << " " << p[3] << " " << p[4];
      break;
    }
  };
  name_first(got, expected, "; too many: ");
  name_first(expected, got, "; lacking: ");
  return result;
}

}  // namespace clebsch::testing
