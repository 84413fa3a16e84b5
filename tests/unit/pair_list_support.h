#pragma once
// Random neighbour lists with everything that a caller may hand over: several images of an atom, images as points of
// their own, rows and nodes beyond the owned ones, pairs beyond the cutoff.
#include <algorithm>
#include <random>
#include <vector>

#include "core/pair_list.h"

namespace clebsch::testing {

struct PairListShape {
  int32_t n_local = 20, n_rows = 23, n_nodes = 30, n_points = 45;
  int32_t most_pairs = 60;  ///< each row's number is uniform in 0 .. most_pairs
  bool shifts = false;
  int types = 2;
};

struct PairListCase {
  PairListShape shape;
  std::vector<int32_t> row_ptr{0}, neighbours, shifts, owners, types;
  std::vector<double> positions, cell{5.0, 0.3, -0.2, 0.1, 4.5, 0.4, -0.3, 0.2, 5.5}, cutoffs;

  PairListCase(const PairListShape& s, std::mt19937_64& random) : shape(s) {
    std::uniform_real_distribution<double> uniform(0, 6);
    const auto below = [&](int32_t count) { return static_cast<int32_t>(random() % static_cast<unsigned>(count)); };
    for (int32_t i = 0; i < s.n_rows; ++i) {
      const int32_t pairs = s.n_points == 0 ? 0 : below(s.most_pairs + 1);
      for (int32_t k = 0; k < pairs; ++k) {
        neighbours.push_back(below(s.n_points));
        for (int d = 0; s.shifts && d < 3; ++d) shifts.push_back(below(3) - 1);
      }
      row_ptr.push_back(static_cast<int32_t>(neighbours.size()));
    }
    for (int32_t i = s.n_nodes; i < s.n_points; ++i) owners.push_back(below(s.n_nodes));
    for (int32_t i = 0; i < s.n_nodes; ++i) types.push_back(below(s.types));
    for (int32_t i = 0; i < 3 * s.n_points; ++i) positions.push_back(uniform(random));
    for (int k = 0; k < s.types * s.types; ++k) cutoffs.push_back(5.0 - 2.0 * k / (s.types * s.types));
  }
  PairListView view() const {
    PairListView v;
    v.n_local = shape.n_local;
    v.n_rows = shape.n_rows;
    v.n_nodes = shape.n_nodes;
    v.n_points = shape.n_points;
    v.row_ptr = row_ptr.data();
    v.neighbours = neighbours.data();
    v.shifts = shape.shifts ? shifts.data() : nullptr;
    v.owners = owners.data();
    v.types = types.data();
    return v;
  }
  PointsView points() const { return {positions.data(), cell.data()}; }
};

inline std::vector<PairListShape> pair_list_shapes() {
  return {{},
          {20, 20, 20, 20, 90, true, 3},
          {1, 1, 1, 1, 5, true, 1},
          {5, 5, 5, 60, 200, false, 1},
          {0, 0, 0, 0, 3, false, 1},
          {0, 0, 4, 9, 3, true, 2},
          {1100, 1200, 1300, 1300, 7, true, 2}};
}

}  // namespace clebsch::testing
