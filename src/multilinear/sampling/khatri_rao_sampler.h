#pragma once
// Draws rows of a Khatri-Rao product by their leverage without forming the product, on the CPU.
#include <cstdint>
#include <memory>
#include <vector>

#include "multilinear/sampling/mixture.h"
#include "multilinear/sampling/row_sampler.h"

namespace clebsch::sampling {

/// A = U_1 (.) ... (.) U_N, whose rows are the entrywise products of one row of every factor U_k (rows_k, columns). Row
/// a has leverage a (A'A)^+ a', the leverages sum to rank(A), and a row is drawn with probability leverage / rank:
/// exactly the law, by sections 3.3 and 3.6 of V. Bharadwaj's dissertation (arXiv 2301.12584). A row is named by its
/// tuple of indices. The factors stay the caller's and must not change but by set_factor and set.
///
/// Build: O(sum rows_k columns^2). A draw of J rows: O(N columns^3 + J sum columns^2 log max(rows_k, columns)). Results
/// follow from the seed and the place of the sample, whatever the number of threads. Not for several threads at once.
class KhatriRaoSampler {
 public:
  /// Throws Error for no factors, columns that differ, and as RowSampler does.
  explicit KhatriRaoSampler(const std::vector<Factor>& factors, int64_t leaf_rows = 0);

  int factors() const { return static_cast<int>(trees_.size()); }
  int columns() const { return columns_; }
  const RowSampler& tree(int factor) const { return *trees_[static_cast<size_t>(factor)]; }

  /// Draws `count` > 0 rows with replacement. exclude: a factor that is left out of the product, or -1. Writes indices
  /// (count, N), -1 for the excluded factor; rows (count, columns), rows of A; weights (count), 1 / (count p), so that
  /// the sum over samples of weight * a' a is A'A on the average. Returns rank(A).
  int draw(int64_t count, int exclude, uint64_t seed, int64_t* indices, double* rows, double* weights);
  /// scores (count): leverages of the rows with these indices (count, N). Returns rank(A), their sum over all rows.
  int scores(const int64_t* indices, int64_t count, int exclude, double* scores);
  /// The probability that draw() gives every tuple, first index slowest, by going down to every leaf for every
  /// component: for small products and tests. `probabilities` has the product of the rows of the factors drawn.
  void law(int exclude, double* probabilities);

  /// Puts another matrix in a factor's place; its rows may be more or fewer.
  void set_factor(int factor, const Factor& u);
  /// RowSampler::set of a factor.
  void set(int factor, int64_t row, int column, double value);
  /// Memory beside the factors.
  int64_t bytes() const;

 private:
  struct Plan;
  const Plan& plan(int exclude);
  void check_exclude(int exclude) const;
  /// Leverages from rows whose columns were divided by the norms of the factors' columns.
  void leverages(const Mixture& mixture, const double* scaled_rows, int64_t count, double* scores) const;

  int columns_ = 0;
  int64_t leaf_rows_ = 0;
  std::vector<std::unique_ptr<RowSampler>> trees_;
  std::vector<std::vector<double>> inverse_norms_;  ///< (factors, columns); 0 for columns of zeros
  std::shared_ptr<const Plan> plan_;
  int planned_exclude_ = -2;
};

}  // namespace clebsch::sampling
