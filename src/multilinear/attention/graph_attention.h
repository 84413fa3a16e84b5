#pragma once
// Attention over the edges of a graph on the CPU, for doubles and floats: a receiver attends to the senders of its
// edges.
//
// s = scale q_r.k_s, f an edge's envelope:  out_r = sum f s v_s                                (kPlain),
//                                           out_r = sum f s v_s / sqrt(sum (f s)^2 + eps)      (kUnitLength),
//                                           out_r = sum f exp(s) v_s / (sum f exp(s) + eps)    (kSoftmax).
#include <cstdint>

#include "multilinear/attention/kernels/graph_attention.h"

namespace clebsch::attention {

/// Number type (kFloat64 or kFloat32 of attention.h), head sizes and what divides the sums.
struct GraphKind {
  int number = 1, d = 0, dv = 0, normalise = kPlain;
};

/// Writes out and norm. The bits do not depend on the number of threads.
void host_graph_attention(const GraphKind& kind, const GraphArguments& arguments);
/// From q, k, v, envelope, out, norm and grad to grad_q, weights, slopes and grad_envelope.
void host_graph_row_gradients(const GraphKind& kind, const GraphArguments& arguments);
/// The sums and products of kernels/graph_attention.h; number as GraphKind's.
void host_edge_sums(int number, int columns, const EdgeSumArguments& arguments);
void host_edge_dots(int number, int columns, const EdgeDotArguments& arguments);

}  // namespace clebsch::attention
