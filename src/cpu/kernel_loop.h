#pragma once
// The same sums as loops over lists of coupled components: any degree, any number of channels. The exact path and the
// rare shapes run through here. Included only by kernels_isa.h.
#include "cpu/kernel_edge.h"
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

constexpr int kMaxComponents = 15;  // 2 * kMaxDegree + 1

/// Matrices of a path for all edges of a tile; lanes are edges.
void couple_edges(const CoupleArgs<Real>& args) {
  for (int64_t block = 0; block * kWidth < args.edges; ++block) {
    const Real* y = args.harmonics + block * args.components * kWidth;
    Real* m = args.matrix + block * args.pairs * kWidth;
    int32_t k = 0;
    for (int32_t pair = 0; pair < args.pairs; ++pair) {
      Vector sum = {};
      for (; k < args.term_count && args.terms[k].pair == pair; ++k) {
        sum += static_cast<Real>(args.terms[k].value) * load(y + args.terms[k].other * kWidth);
      }
      store(m + pair * kWidth, sum);
    }
  }
}

/// Lanes of the vector that starts at `channel`.
CLEBSCH_INLINE int lanes_left(int64_t channels, int64_t channel) {
  return channels - channel < kWidth ? static_cast<int>(channels - channel) : kWidth;
}

void gather_loop(const GatherArgs<Real>& args) {
  const TileView<Real>& tile = args.tile;
  for (int64_t channel = 0; channel < args.channels; channel += kWidth) {
    const int lanes = lanes_left(args.channels, channel);
    for (int32_t i = 0; i < tile.nodes; ++i) {
      const int32_t begin = tile.first[i], end = tile.first[i + 1];
      Vector sum[kMaxComponents] = {};
      for (int32_t e = begin; e < end; ++e) {
        const Real* in = args.in + tile.far_row[e] + channel;
        const Real* m = args.matrix + block_of(e) * args.pairs * kWidth + lane_of(e);
        Vector w = Vector{} + Real(1), wx[kMaxComponents];
        if (args.weights != nullptr) w = load_part(args.weights + args.weight_rows[e] + channel, lanes);
        for (int a = 0; a < args.a_dim; ++a) wx[a] = w * load_part(in + a * args.in_stride, lanes);
        for (int32_t k = 0; k < args.pairs; ++k) sum[args.pair_list[k].b] += m[k * kWidth] * wx[args.pair_list[k].a];
      }
      Real* out = args.out + static_cast<int64_t>(tile.node + i) * args.out_row + channel;
      for (int b = 0; b < args.b_dim; ++b) {
        Real* p = out + b * args.out_stride;
        store_part(p, args.accumulate ? load_part(p, lanes) + sum[b] : sum[b], lanes);
      }
    }
  }
}

void edge_loop(const EdgeArgs<Real>& args) {
  const TileView<Real>& tile = args.tile;
  const int32_t edges = tile.first[tile.nodes];
  const int gradients = args.grad_harmonics != nullptr ? args.b_dim : 0;
  const bool reduced = gradients > 0 || args.slope != nullptr;
  Real* rows = args.reduce_scratch;
  for (int32_t i = 0; i < tile.nodes; ++i) {
    const int32_t begin = tile.first[i], end = tile.first[i + 1];
    if (begin == end) continue;
    contract_node(args, args.g + static_cast<int64_t>(tile.node + i) * args.g_row);
    for (int32_t e = begin; e < end; ++e) {
      const int64_t block = block_of(e);
      const int lane = lane_of(e);
      const Real* y = tile.harmonics + (block * tile.components + args.y_offset) * kWidth + lane;
      const Real* b_node = args.b_scratch;
      Vector sum[kMaxComponents] = {}, slope_sum = {};
      for (int64_t channel = 0; channel < args.channels; channel += kWidth, b_node += args.pairs * kWidth) {
        const int lanes = lanes_left(args.channels, channel);
        const int64_t weight = args.weights == nullptr ? 0 : args.weight_rows[e] + channel;
        const Real* x = args.x + tile.far_row[e] + channel;
        Vector w = Vector{} + Real(1), q[kMaxComponents] = {};
        if (args.weights != nullptr) w = load_part(args.weights + weight, lanes);
        for (int32_t k = 0; k < args.pairs; ++k) {
          const ComponentPair pair = args.pair_list[k];
          q[pair.b] += load_part(x + pair.a * args.x_stride, lanes) * load(b_node + k * kWidth);
        }
        Vector contracted = {};
        for (int b = 0; b < args.b_dim; ++b) {
          sum[b] += w * q[b];
          contracted += y[b * kWidth] * q[b];
        }
        if (args.slope != nullptr && args.weights != nullptr) {
          slope_sum += load_part(args.weights + args.slope_offset + weight, lanes) * contracted;
        }
        if (args.grad_weights != nullptr) {
          Real* p = args.grad_weights + weight;
          store_part(p, load_part(p, lanes) + contracted, lanes);
        }
      }
      if (!reduced) continue;
      for (int b = 0; b < gradients; ++b) store(rows + (b * kWidth + lane) * kWidth, sum[b]);
      store(rows + (gradients * kWidth + lane) * kWidth, slope_sum);
      if (lane == kWidth - 1 || e + 1 == edges) flush_edges(args, block, gradients);
    }
  }
}

}  // namespace
}  // namespace clebsch::cpu
