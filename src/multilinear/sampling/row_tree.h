#pragma once
// Small arithmetic that the samplers of the CPU and of a device share.
#include <vector>

#include "multilinear/sampling/kernels/tree_shape.h"

namespace clebsch::sampling {

/// The part of a node's mass below which a child's mass is rounding (take_left).
double rounding_slack(int columns);

/// (columns, columns) from a packed Gram matrix: rows and columns divided by the square roots of the diagonal, whose
/// entries become 1; zero for columns of zeros.
std::vector<double> unit_gram_of(const double* root, int columns);

/// products (packed_size): h_i h_j, in the order of a packed matrix.
inline void multiply_pairs(const double* h, int columns, double* products) {
  for (int i = 0; i < columns; ++i) {
    for (int j = 0; j <= i; ++j) products[packed_row(i) + j] = h[i] * h[j];
  }
}

}  // namespace clebsch::sampling
