#pragma once
// A factor of a Khatri-Rao product in the memory of the host.
#include <cstdint>
#include <string>
#include <vector>

#include "multilinear/sampling/kernels/tree_shape.h"

namespace clebsch::sampling {

/// A matrix (rows, columns) of doubles: dense, row after row, or compressed sparse rows with ascending columns. The
/// memory belongs to the caller and outlives whatever is made of it.
struct Factor {
  int64_t rows = 0;
  int columns = 0;
  double* dense = nullptr;           ///< (rows, columns), or null
  const int64_t* row_ptr = nullptr;  ///< (rows + 1), sparse
  const int64_t* column = nullptr;   ///< (row_ptr[rows]), sparse
  double* values = nullptr;          ///< (row_ptr[rows]), sparse

  bool sparse() const { return dense == nullptr; }
  /// Writes a row into `to` (columns).
  void copy_row(int64_t row, double* to) const;
  /// The place of an entry; null for an entry of a sparse matrix that is not stored.
  double* entry(int64_t row, int column) const;
};

/// Throws Error for sizes without sense and, sparse, for offsets or columns that are none. `name` begins the message.
void check_factor(const Factor& factor, const std::string& name);

/// Powers of two that bring the largest number of each column to [0.5, 1), 1 for columns of zeros. Throws Error for the
/// first number that is not finite, with its place.
std::vector<double> column_scales(const Factor& factor, const std::string& name);

/// Default rows of a leaf: the next multiple of 8 above `columns`, at which the tree takes about 4 bytes an entry.
int64_t default_leaf_rows(int columns);

/// The tree over `rows` rows with runs of `leaf_rows`.
TreeShape tree_shape(int64_t rows, int columns, int64_t leaf_rows);
/// The tree over a given number of leaves that are not runs of equal length.
TreeShape tree_shape_of_leaves(int64_t rows, int columns, int64_t leaves);
/// First rows of leaves with at most columns^2 stored numbers each (more where a row alone has more), and `rows` at the
/// end: section 3.6.6 of Bharadwaj's dissertation.
std::vector<int64_t> sparse_leaves(const Factor& factor);

}  // namespace clebsch::sampling
