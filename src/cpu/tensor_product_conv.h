#pragma once
// clebsch::tensor_product_conv and clebsch::edge_embedding on the CPU: the exact path.
#include "core/graph.h"
#include "core/problem/problem.h"

namespace clebsch::cpu {

/// Harmonics (E, (lmax+1)^2) and radial basis times cutoff (E, basis_size) of every edge of rows < rows; geometry in
/// fp64, then cast to T. Rows of other edges are zero. cutoffs (types, types) [centre][neighbour].
template <typename T>
void edge_embedding_forward(const Problem& problem, const GraphView& graph, const double* cutoffs, const double* basis,
                            int types, int32_t rows, T* harmonics, T* radial_basis, int threads);

/// grad_edge_vec (E,3), overwritten.
template <typename T>
void edge_embedding_backward(const Problem& problem, const GraphView& graph, const double* cutoffs, const double* basis,
                             int types, int32_t rows, const T* grad_harmonics, const T* grad_radial_basis,
                             double* grad_edge_vec, int threads);

/// The derivatives of sum(from_edge_vec * grad_edge_vec), the backward pass's result, by grad_harmonics,
/// grad_radial_basis and edge_vec, in arrays of their shapes, overwritten. from_edge_vec (E,3).
template <typename T>
void edge_embedding_double_backward(const Problem& problem, const GraphView& graph, const double* cutoffs,
                                    const double* basis, int types, int32_t rows, const T* grad_harmonics,
                                    const T* grad_radial_basis, const double* from_edge_vec, T* harmonics,
                                    T* radial_basis, double* grad_edge_vec, int threads);

/// out[receiver] = sum over its edges of the tensor product of x[sender], harmonics[e], weights[e].
/// weights (E, problem.weight_count). Only rows < rows are written. uvu paths (weighted or
/// not) and uvw paths; the second operand of a path has one channel.
template <typename T>
void tensor_product_conv_forward(const Problem& problem, const GraphView& graph, int32_t rows, const T* x,
                                 const T* harmonics, const T* weights, T* out, int threads);

/// Overwrites grad_x (M,d1; needs the transpose), grad_harmonics (E,d2), grad_weights (E,w); each may be null.
template <typename T>
void tensor_product_conv_backward(const Problem& problem, const GraphView& graph, int32_t rows, const T* x,
                                  const T* harmonics, const T* weights, const T* grad_out, T* grad_x, T* grad_harmonics,
                                  T* grad_weights, int threads);

}  // namespace clebsch::cpu
