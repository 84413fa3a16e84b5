#include "multilinear/sampling/factor.h"

#include <algorithm>
#include <cmath>

#include "core/errors.h"

namespace clebsch::sampling {

void Factor::copy_row(int64_t row, double* to) const {
  if (!sparse()) {
    std::copy_n(dense + row * columns, columns, to);
    return;
  }
  std::fill_n(to, columns, 0.0);
  for (int64_t k = row_ptr[row]; k < row_ptr[row + 1]; ++k) to[column[k]] = values[k];
}

double* Factor::entry(int64_t row, int at) const {
  if (!sparse()) return dense + row * columns + at;
  const int64_t *begin = column + row_ptr[row], *end = column + row_ptr[row + 1];
  const int64_t* found = std::lower_bound(begin, end, int64_t{at});
  return found != end && *found == at ? values + (found - column) : nullptr;
}

void check_factor(const Factor& factor, const std::string& name) {
  require(factor.rows > 0 && factor.columns > 0, "{}: expected at least one row and one column, got {} x {}", name,
          factor.rows, factor.columns);
  require(factor.columns <= 4096, "{}: expected at most 4096 columns, got {}", name, factor.columns);
  if (!factor.sparse()) return;
  require(factor.row_ptr[0] == 0, "{}: expected row offsets that begin with 0, got {}", name, factor.row_ptr[0]);
  for (int64_t i = 0; i < factor.rows; ++i) {
    require(factor.row_ptr[i + 1] >= factor.row_ptr[i], "{}: expected row offsets that do not fall, got {} after {}",
            name, factor.row_ptr[i + 1], factor.row_ptr[i]);
    for (int64_t k = factor.row_ptr[i]; k < factor.row_ptr[i + 1]; ++k) {
      const int64_t before = k > factor.row_ptr[i] ? factor.column[k - 1] : -1;
      require(factor.column[k] > before && factor.column[k] < factor.columns,
              "{}: expected ascending columns below {} in row {}, got {} after {}", name, factor.columns, i,
              factor.column[k], before);
    }
  }
}

std::vector<double> column_scales(const Factor& factor, const std::string& name) {
  std::vector<double> largest(static_cast<size_t>(factor.columns), 0.0);
  std::vector<double> row(largest.size());
  for (int64_t i = 0; i < factor.rows; ++i) {
    factor.copy_row(i, row.data());
    for (size_t c = 0; c < row.size(); ++c) {
      require(std::isfinite(row[c]), "{}: expected finite numbers, got {} in row {}, column {}", name, row[c], i, c);
      largest[c] = std::max(largest[c], std::fabs(row[c]));
    }
  }
  for (double& value : largest) {
    int exponent = 0;
    if (value > 0) std::frexp(value, &exponent);
    value = std::ldexp(1.0, -exponent);
  }
  return largest;
}

int64_t default_leaf_rows(int columns) { return columns / 8 * 8 + 8; }

TreeShape tree_shape_of_leaves(int64_t rows, int columns, int64_t leaves) {
  TreeShape shape;
  shape.rows = rows;
  shape.columns = columns;
  shape.leaves = leaves;
  while ((int64_t{1} << shape.depth) < leaves) ++shape.depth;
  require(shape.depth <= kMostLevels, "a tree of {} leaves is too large", leaves);
  long long stored = 0;
  for (int level = 1; level <= shape.depth; ++level) {
    const int64_t width = int64_t{1} << (shape.depth - level);
    shape.pairs[level] = (leaves + width - 1) / width / 2;
    shape.offset[level] = stored;
    stored += shape.pairs[level];
  }
  return shape;
}

TreeShape tree_shape(int64_t rows, int columns, int64_t leaf_rows) {
  TreeShape shape = tree_shape_of_leaves(rows, columns, (rows + leaf_rows - 1) / leaf_rows);
  shape.leaf_rows = leaf_rows;
  return shape;
}

std::vector<int64_t> sparse_leaves(const Factor& factor) {
  const int64_t most = int64_t{factor.columns} * factor.columns;
  std::vector<int64_t> begin{0};
  for (int64_t i = 1; i < factor.rows; ++i) {
    if (factor.row_ptr[i + 1] - factor.row_ptr[begin.back()] > most) begin.push_back(i);
  }
  begin.push_back(factor.rows);
  return begin;
}

}  // namespace clebsch::sampling
