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

}  // namespace clebsch::sampling
