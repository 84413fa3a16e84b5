#pragma once
// clebsch::symmetric_contraction on the CPU (core/problem/symmetric_problem.h): values, gradients, and the change of
// both along a direction, which is what second derivatives are made of.
#include "core/problem/symmetric_problem.h"

namespace clebsch::cpu {

/// x (>= rows, D, C), coefficients (type_count, K, C), types (>= rows) in [0, type_count).
template <typename T>
struct SymmetricInput {
  const T* x;
  const T* coefficients;
  const int32_t* types;
  int64_t rows, type_count;
};

/// Writes rows [0, rows) of out (rows, W, C). Bitwise the same for any number of threads.
template <typename T>
void symmetric_contraction_forward(const SymmetricProblem& problem, const SymmetricInput<T>& input, T* out,
                                   int threads);

/// Gradients of sum(grad_out * out): rows [0, rows) of grad_x (rows, D, C), all of grad_coefficients (type_count, K,
/// C); either may be null. Bitwise the same for any number of threads.
template <typename T>
void symmetric_contraction_backward(const SymmetricProblem& problem, const SymmetricInput<T>& input, const T* grad_out,
                                    T* grad_x, T* grad_coefficients, int threads);

/// The change of out, grad_x and grad_coefficients, to first order, when x and the coefficients change by tangent_x and
/// tangent_coefficients (shapes as theirs) and grad_out stays. Each result may be null.
template <typename T>
void symmetric_contraction_tangent(const SymmetricProblem& problem, const SymmetricInput<T>& input, const T* tangent_x,
                                   const T* tangent_coefficients, const T* grad_out, T* out, T* grad_x,
                                   T* grad_coefficients, int threads);

}  // namespace clebsch::cpu
