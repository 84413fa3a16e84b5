#pragma once
// Eigenvalues, ranks and factorisations of symmetric positive semidefinite matrices, a few hundred columns at most.
#include <vector>

namespace clebsch::sampling {

/// Of a symmetric matrix, as far as it has a rank.
struct Spectrum {
  int rank = 0;
  double largest = 0;             ///< eigenvalue
  double smallest = 0;            ///< eigenvalue that counts
  std::vector<double> whitening;  ///< (rank, columns): eigenvectors divided by the roots of their eigenvalues
};

/// Eigenvalues count above 8 columns eps of the largest: what rounding makes of zero lies below. |whitening x|^2 is
/// x' G^+ x, never negative. Throws Error when LAPACK fails.
Spectrum spectrum(const std::vector<double>& matrix, int columns);

/// (columns, columns): the pseudo-inverse whitening' whitening.
std::vector<double> pseudo_inverse(const Spectrum& spectrum, int columns);

/// (count, columns), row after row: vectors b with sum b b' = matrix, by Cholesky with pivots. The pivot is the first
/// diagonal number that is at least half of the largest: as accurate within a factor of two, and rounding does not
/// change the order where several are equal. Ends when all are below 4 columns eps of the largest at the beginning.
std::vector<double> square_root_rows(std::vector<double> matrix, int columns);

}  // namespace clebsch::sampling
