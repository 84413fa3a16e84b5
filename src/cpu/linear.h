#pragma once
// The products of clebsch::linear and clebsch::species_linear on the CPU. They are not BLAS's: torch's goes through a
// library that other code of the process may have replaced or set to a lower precision.
#include <cstdint>

#include "core/problem/node_problem.h"

namespace clebsch::cpu {

/// Writes out (rows, out.dim()) = x (rows, in.dim()) W, with W of weight_count numbers (LinearProblem); when transposed
/// out (rows, in.dim()) = x (rows, out.dim()) W^T. Every number is a sum in one order: bitwise the same for any number
/// of threads and for a row among any others.
template <typename T>
void linear(const LinearProblem& problem, bool transposed, int64_t rows, const T* x, const T* weight, T* out,
            int threads);

}  // namespace clebsch::cpu
