#include "core/pair_list.h"

#include <algorithm>
#include <cmath>

#include "core/errors.h"

namespace clebsch {
namespace {

/// Calls take(sender, vector) for the edges of a row, until it returns false.
template <typename Take>
void visit_row(const PairListView& list, const PointsView& points, const double* cutoffs, int types, int32_t row,
               const Take& take) {
  const double* centre = points.positions + 3 * static_cast<int64_t>(row);
  const double* cell = points.cell + (list.systems != nullptr ? 9 * static_cast<int64_t>(list.systems[row]) : 0);
  const double* of_type = cutoffs + static_cast<int64_t>(list.types[row]) * types;
  for (int32_t p = list.row_ptr[row]; p < list.row_ptr[row + 1]; ++p) {
    const int32_t point = list.neighbours[p];
    const double* x = points.positions + 3 * static_cast<int64_t>(point);
    double v[3] = {x[0] - centre[0], x[1] - centre[1], x[2] - centre[2]};
    if (list.shifts != nullptr) {
      const int32_t* shift = list.shifts + 3 * static_cast<int64_t>(p);
      for (int d = 0; d < 3; ++d) {
        v[d] += shift[0] * cell[d] + shift[1] * cell[3 + d] + shift[2] * cell[6 + d];
      }
    }
    const int32_t sender = point < list.n_nodes ? point : list.owners[point - list.n_nodes];
    const double cutoff = of_type[list.types[sender]];
    if (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < cutoff * cutoff && !take(sender, v)) return;
  }
}

}  // namespace

void validate_pairs(const PairListView& list, int types_count) {
  require(
      0 <= list.n_local && list.n_local <= list.n_rows && list.n_rows <= list.n_nodes && list.n_nodes <= list.n_points,
      "pair list: expected 0 <= n_local <= n_rows <= n_nodes <= n_points, got {}, {}, {}, {}", list.n_local,
      list.n_rows, list.n_nodes, list.n_points);
  if (list.n_rows > 0) require(list.row_ptr[0] == 0, "pair list: expected row_ptr[0] = 0, got {}", list.row_ptr[0]);
  for (int32_t i = 0; i < list.n_rows; ++i) {
    if (list.row_ptr[i + 1] < list.row_ptr[i]) {
      fail("pair list: expected row_ptr not to fall, got {} after {} at {}", list.row_ptr[i + 1], list.row_ptr[i], i);
    }
  }
  const auto within = [](const int32_t* values, int64_t count, int32_t from, int32_t to, const char* what) {
    const int32_t* bad = std::find_if(values, values + count, [&](int32_t v) { return v < from || v >= to; });
    if (bad != values + count) {
      fail("pair list: expected {} of {} to {}, got {} at {}", what, from, to - 1, *bad, bad - values);
    }
  };
  within(list.neighbours, list.pairs(), 0, list.n_points, "a neighbor");
  if (list.shifts) within(list.shifts, 3 * list.pairs(), -kLargestShift, kLargestShift + 1, "a shift");
  within(list.owners, list.n_points - list.n_nodes, 0, list.n_nodes, "an owner");
  within(list.types, list.n_nodes, 0, types_count, "a type");
  if (list.systems) within(list.systems, list.n_nodes, 0, list.n_systems, "a system");
  int32_t last = list.n_rows;
  for (int32_t k = 0; list.layer_rows && k < list.n_layers; ++k) {
    require(list.layer_rows[k] <= last && list.layer_rows[k] >= list.n_local,
            "pair list: expected layer_rows[{}] between n_local = {} and {}, got {}", k, list.n_local, last,
            list.layer_rows[k]);
    last = list.layer_rows[k];
  }
}

void require_finite_points(const PairListView& list, const PointsView& points) {
  const int64_t count = 3 * int64_t{list.n_points};
  double probe[4] = {0, 0, 0, 0};  // four sums, so that additions overlap; 0 * infinity is not a number
  for (int64_t k = 0; k < count; ++k) probe[k & 3] += points.positions[k] * 0.0;
  const int64_t cells = list.shifts ? 9 * int64_t{list.n_systems} : 0;
  for (int64_t k = 0; k < cells; ++k) probe[k & 3] += points.cell[k] * 0.0;
  if (probe[0] + probe[1] + probe[2] + probe[3] == 0) return;
  for (int64_t k = 0; k < count; ++k) {
    if (!std::isfinite(points.positions[k]))
      fail("expected finite positions, got {} at point {}", points.positions[k], k / 3);
  }
  fail("expected a finite cell, got one with {}",
       *std::find_if(points.cell, points.cell + cells, [](double x) { return !std::isfinite(x); }));
}

int64_t count_edges(const PairListView& list, const PointsView& points, const double* cutoffs, int types,
                    int32_t* row_ptr, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int32_t row = 0; row < list.n_rows; ++row) {
    int32_t count = 0;
    visit_row(list, points, cutoffs, types, row, [&](int32_t, const double*) {
      ++count;
      return true;
    });
    row_ptr[row + 1] = count;
  }
  row_ptr[0] = 0;
  for (int32_t row = 0; row < list.n_rows; ++row) row_ptr[row + 1] += row_ptr[row];
  return row_ptr[list.n_rows];
}

void fill_edges(const PairListView& list, const PointsView& points, const double* cutoffs, int types,
                const int32_t* row_ptr, int32_t* senders, double* edge_vec, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int32_t row = 0; row < list.n_rows; ++row) {
    int64_t place = row_ptr[row];
    const int64_t end = row_ptr[row + 1];
    if (place == end) continue;
    visit_row(list, points, cutoffs, types, row, [&](int32_t sender, const double* v) {
      senders[place] = sender;
      std::copy_n(v, 3, edge_vec + 3 * place);
      return ++place < end;
    });
  }
}

}  // namespace clebsch
