#pragma once
// The uvw paths of a convolution: every edge brings its own matrix of weights [u][w] that mixes channels.
//
// With z[m3, u] = sum C[m1,m2,m3] x[m1, u] Y[m2] (as a uvu path without weights) and q[m3, u] = sum_w W[u, w] g[m3, w]:
//   out[m3, w]     += sum_u W[u, w] z[m3, u]          grad_W[u, w] += sum_m3 z[m3, u] g[m3, w]
//   grad_x[m1, u]  += sum C Y[m2] q[m3, u]            grad_Y[m2]   += sum C sum_u x[m1, u] q[m3, u]
// All functions add to their outputs. Arguments are those of cpu/tensor_product_conv.h.
#include "core/graph.h"
#include "core/problem/problem.h"

namespace clebsch::cpu {

/// Has the problem a uvw path?
bool has_mixing_paths(const Problem& problem);

template <typename T>
void mixing_paths_forward(const Problem& problem, const GraphView& graph, int32_t rows, const T* x, const T* harmonics,
                          const T* weights, T* out, int threads);

/// Gradients of the edges; each may be null.
template <typename T>
void mixing_paths_edges(const Problem& problem, const GraphView& graph, int32_t rows, const T* x, const T* harmonics,
                        const T* weights, const T* grad_out, T* grad_harmonics, T* grad_weights, int threads);

/// Gradient of the features; needs the transposed graph.
template <typename T>
void mixing_paths_features(const Problem& problem, const GraphView& graph, int32_t rows, const T* harmonics,
                           const T* weights, const T* grad_out, T* grad_x, int threads);

}  // namespace clebsch::cpu
