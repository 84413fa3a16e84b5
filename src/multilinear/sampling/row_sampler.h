#pragma once
// Draws rows of a matrix with probability proportional to a quadratic form, in logarithmic time, on the CPU.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "multilinear/sampling/factor.h"

namespace clebsch::sampling {

/// For a matrix U (rows, columns) and a positive semidefinite Y (columns, columns): draws row i with probability
/// proportional to u_i' (h h' * Y) u_i, * entry by entry, for any h. Lemma 3.3.2 of V. Bharadwaj's dissertation
/// (Berkeley, 2025; Bharadwaj et al., NeurIPS 2023, arXiv 2301.12584): a binary tree over runs of rows holds the Gram
/// matrices of its left halves, and a draw goes down from the root.
///
/// Build: O(rows columns^2). A draw: O(columns^2 log(rows / leaf_rows) + leaf_rows columns), with a Y O(leaf_rows
/// columns^2) at the leaf. Results are the same bits for any number of threads. Numbers may be as large as 1e150 and as
/// small as 1e-150. The matrix stays the caller's.
class RowSampler {
 public:
  /// leaf_rows 0: default_leaf_rows(); sparse matrices have leaves of their own. `y` (columns, columns), symmetric, or
  /// null for ones; it is copied. Throws Error for a number that is not finite, with its place; `name` begins messages.
  explicit RowSampler(const Factor& u, int64_t leaf_rows = 0, const double* y = nullptr,
                      std::string name = "RowSampler");

  /// index (count): a row for every h (count, columns) and uniform number in [0, 1). An h for which all rows have
  /// probability zero gives some row. row_of (count), if given: sample s has row row_of[s] of h (any, columns); where
  /// samples share rows they share work, and the result is the same.
  void draw(const double* h, const double* uniforms, int64_t count, int64_t* index,
            const int64_t* row_of = nullptr) const;
  /// The probabilities q (rows) that the tree gives the rows for one h, by going down to every leaf.
  void law(const double* h, double* q) const;

  /// Writes an entry of U, in the caller's memory, and mends the tree in O(columns log(rows)). Throws Error for a place
  /// outside of U, for an entry of a sparse matrix that is not stored and for a number that is not finite.
  void set(int64_t row, int column, double value);
  /// Builds the tree anew, after U was written or after so many set() that rounding adds up.
  void rebuild();

  /// Euclidean norms of U's columns.
  std::vector<double> column_norms() const;
  /// (columns, columns): products of U's columns divided by their norms; zero for columns of zeros. Not with a Y.
  std::vector<double> unit_gram() const;
  /// Memory of the tree beside U.
  int64_t bytes() const;
  const TreeShape& shape() const { return shape_; }
  const Factor& factor() const { return u_; }

 private:
  struct Descent;
  struct Scratch;
  void build();
  void gram_of_leaf(int64_t leaf, double* rows, double* full, double* packed) const;
  void build_subtree(int64_t first, int64_t last, int base, double* carry);
  int64_t leaf_begin(int64_t leaf) const;
  int64_t leaf_end(int64_t leaf) const { return leaf_begin(leaf + 1); }
  const double* left_matrix(int level, int64_t parent) const {
    return nodes_.get() + (shape_.offset[level] + parent) * packed_;
  }
  /// Probabilities, not divided by their sum, of a leaf's rows. `scratch` (columns).
  void leaf_masses(int64_t leaf, const double* h, double* q, double* scratch) const;
  void law_below(int level, int64_t node, double share, const Way& way, const double* products, const double* h,
                 double* q) const;

  Factor u_;
  std::string name_;
  std::vector<double> y_;
  std::vector<int64_t> begins_;  ///< of leaves of sparse matrices
  TreeShape shape_;
  int64_t packed_ = 0, longest_leaf_ = 0;
  double slack_ = 0;
  /// What columns were multiplied with in the tree, powers of two; empty: one.
  std::vector<double> scale_;
  std::unique_ptr<double, void (*)(void*)> nodes_{nullptr, std::free};
  int64_t stored_ = 0;
  std::vector<double> root_;
};

}  // namespace clebsch::sampling
