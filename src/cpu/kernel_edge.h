#pragma once
// Gradients of single edges, unrolled at compile time for small degrees. Included only by kernels_isa.h.
//
// Everything an edge needs from its receiver is the contraction B of the coupling with grad_out, made once a node.
// With q[b] = sum_a x[a] B[a, b] both results come from one product: W q is the gradient of the harmonics and
// dW/dt sum_b Y[b] q[b] that of the distance. Channel sums of an edge stay in vectors over the whole path and are
// reduced together for as many edges as a vector has lanes.
#include "cpu/selection.h"
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

/// B of one node, [slice of channels][pair][lane]; channels beyond the last are zero.
CLEBSCH_INLINE void contract_node(const EdgeArgs<Real>& args, const Real* g) {
  int64_t slice = 0;
  for (int64_t channel = 0; channel < args.channels; channel += kWidth, ++slice) {
    const int64_t left = args.channels - channel;
    const int lanes = left < kWidth ? static_cast<int>(left) : kWidth;
    Real* b = args.b_scratch + slice * args.pairs * kWidth;
    for (int32_t pair = 0; pair < args.pairs; ++pair) store(b + pair * kWidth, Vector{});
    for (int32_t k = 0; k < args.term_count; ++k) {
      const CouplingTerm& term = args.terms[k];
      Real* p = b + term.pair * kWidth;
      store(p, load(p) + static_cast<Real>(term.value) * load_part(g + term.other * args.g_stride + channel, lanes));
    }
  }
}

/// Adds the sums over lanes of the last edges' vectors to their gradients. `block` counts blocks of kWidth edges.
CLEBSCH_INLINE void flush_edges(const EdgeArgs<Real>& args, int64_t block, int components) {
  for (int b = 0; b < components; ++b) {
    Real* p = args.grad_harmonics + (block * args.tile.components + args.y_offset + b) * kWidth;
    store(p, load(p) + reduce_rows<kWidth>(args.reduce_scratch + b * kWidth * kWidth));
  }
  if (args.slope != nullptr) {
    Real* p = args.slope + block * kWidth;
    store(p, load(p) + reduce_rows<kWidth>(args.reduce_scratch + components * kWidth * kWidth));
  }
}

/// The harmonic of l2 = 0 is a constant, so it has no gradient.
template <int L1, int L2, int L3>
void edge_unrolled(const EdgeArgs<Real>& args) {
  constexpr int kA = 2 * L1 + 1, kB = 2 * L2 + 1, kPairs = pair_count(L1, L3, L2);
  constexpr int kGradients = L2 == 0 ? 0 : kB;
  const TileView<Real>& tile = args.tile;
  const int64_t slices = args.channels / kWidth, x_stride = args.x_stride;
  const int32_t edges = tile.first[tile.nodes];
  Real* rows = args.reduce_scratch;
  for (int32_t i = 0; i < tile.nodes; ++i) {
    const int32_t begin = tile.first[i], end = tile.first[i + 1];
    if (begin == end) continue;
    contract_node(args, args.g + static_cast<int64_t>(tile.node + i) * args.g_row);
    for (int32_t e = begin; e < end; ++e) {
      const int64_t block = block_of(e);
      const int lane = lane_of(e);
      const Real* y = tile.harmonics + (block * tile.components + args.y_offset) * kWidth + lane;
      const Real* weights = args.weights + args.weight_rows[e];
      const Real* x = args.x + tile.far_row[e];
      const Real* b_node = args.b_scratch;
      Vector sum[kB] = {}, slope_sum = {};
      for (int64_t s = 0; s < slices; ++s) {
        const Vector w = load(weights), slope = load(weights + args.slope_offset);
        if constexpr (L1 == 0) {
          const Vector x0 = load(x), wx = w * x0;
          Vector contracted = y[0] * load(b_node);
          unroll<kB>([&](auto b) __attribute__((always_inline)) {
            constexpr int kColumn = b.value;
            const Vector bv = load(b_node + kColumn * kWidth);
            if constexpr (L2 > 0) sum[kColumn] += wx * bv;
            if constexpr (kColumn > 0) contracted += y[kColumn * kWidth] * bv;
          });
          slope_sum += slope * x0 * contracted;
        } else {
          Vector q[kB] = {};
          unroll<kA>([&](auto a) __attribute__((always_inline)) {
            constexpr int kRow = a.value;
            const Vector xa = load(x + kRow * x_stride);
            unroll<kB>([&](auto b) __attribute__((always_inline)) {
              constexpr int kColumn = b.value;
              if constexpr (linked(L1, kRow, L3, L2, kColumn)) {
                constexpr int slot = pair_slot(L1, L3, L2, kRow, kColumn);
                q[kColumn] += xa * load(b_node + slot * kWidth);
              }
            });
          });
          Vector contracted = y[0] * q[0];
          unroll<kB>([&](auto b) __attribute__((always_inline)) {
            constexpr int kColumn = b.value;
            if constexpr (L2 > 0) sum[kColumn] += w * q[kColumn];
            if constexpr (kColumn > 0) contracted += y[kColumn * kWidth] * q[kColumn];
          });
          slope_sum += slope * contracted;
        }
        weights += kWidth;
        x += kWidth;
        b_node += kPairs * kWidth;
      }
      for (int b = 0; b < kGradients; ++b) store(rows + (b * kWidth + lane) * kWidth, sum[b]);
      store(rows + (kGradients * kWidth + lane) * kWidth, slope_sum);
      if (lane == kWidth - 1 || e + 1 == edges) flush_edges(args, block, kGradients);
    }
  }
}

}  // namespace
}  // namespace clebsch::cpu
