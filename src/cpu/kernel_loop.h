#pragma once
// The same sums as loops over lists of coupled components: any degree, any number of channels, weights from a table,
// from an array or none. The exact path and the rare shapes run through here. Included only by kernels_isa.h.
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

/// W and, for tables, dW/dt of up to one vector of channels.
template <WeightSource kSource>
CLEBSCH_INLINE void part_weight(const Real* row, int64_t stride, Real t, int lanes, Vector& w, Vector& slope) {
  if constexpr (kSource == WeightSource::table) {
    w = load_part(row + 5 * stride, lanes);
    slope = Vector{};
    for (int k = 4; k >= 0; --k) {
      slope = slope * t + w;
      w = w * t + load_part(row + k * stride, lanes);
    }
  } else if constexpr (kSource == WeightSource::array) {
    w = load_part(row, lanes);
  } else {
    w = Vector{} + Real(1);
  }
}

template <WeightSource kSource>
void gather_loop(const GatherArgs<Real>& args) {
  const TileView<Real>& tile = args.tile;
  for (int64_t channel = 0; channel < args.channels; channel += kWidth) {
    const int64_t left = args.channels - channel;
    const int lanes = left < kWidth ? static_cast<int>(left) : kWidth;
    for (int32_t i = 0; i < tile.nodes; ++i) {
      const int32_t begin = tile.first[i], end = tile.first[i + 1];
      if (begin == end) continue;
      Vector sum[kMaxComponents] = {};
      for (int32_t e = begin; e < end; ++e) {
        Vector w = {}, slope = {};
        const Real* row = kSource == WeightSource::one ? nullptr : args.weights + tile.weights[e] + channel;
        part_weight<kSource>(row, args.weight_stride, kSource == WeightSource::table ? tile.t[e] : Real(0), lanes, w,
                             slope);
        const Real* in = args.in + tile.other[e] * args.in_row + channel;
        const Real* m = args.matrix + static_cast<int64_t>(e / kWidth) * args.pairs * kWidth + e % kWidth;
        Vector wx[kMaxComponents];
        for (int a = 0; a < args.a_dim; ++a) wx[a] = w * load_part(in + a * args.in_stride, lanes);
        for (int32_t k = 0; k < args.pairs; ++k) sum[args.pair_list[k].b] += m[k * kWidth] * wx[args.pair_list[k].a];
      }
      Real* out = args.out + static_cast<int64_t>(tile.node + i) * args.out_row + channel;
      for (int b = 0; b < args.b_dim; ++b) {
        Real* p = out + b * args.out_stride;
        store_part(p, load_part(p, lanes) + sum[b], lanes);
      }
    }
  }
}

template <WeightSource kSource>
void edge_loop(const EdgeArgs<Real>& args) {
  const TileView<Real>& tile = args.tile;
  const int32_t edges = tile.first[tile.nodes];
  const int gradients = args.grad_harmonics != nullptr ? args.b_dim : 0;
  Real* rows = args.reduce_scratch;
  for (int32_t i = 0; i < tile.nodes; ++i) {
    const int32_t begin = tile.first[i], end = tile.first[i + 1];
    if (begin == end) continue;
    contract_node(args, args.g + static_cast<int64_t>(tile.node + i) * args.g_row);
    for (int32_t e = begin; e < end; ++e) {
      const int64_t block = e / kWidth;
      const int lane = e % kWidth;
      const Real* y = tile.harmonics + (block * tile.components + args.y_offset) * kWidth + lane;
      const Real* b_node = args.b_scratch;
      Vector sum[kMaxComponents] = {}, slope_sum = {};
      for (int64_t channel = 0; channel < args.channels; channel += kWidth, b_node += args.pairs * kWidth) {
        const int64_t left = args.channels - channel;
        const int lanes = left < kWidth ? static_cast<int>(left) : kWidth;
        Vector w = {}, slope = {};
        const Real* row = kSource == WeightSource::one ? nullptr : args.weights + tile.weights[e] + channel;
        part_weight<kSource>(row, args.weight_stride, kSource == WeightSource::table ? tile.t[e] : Real(0), lanes, w,
                             slope);
        const Real* x = args.x + tile.other[e] * args.x_row + channel;
        Vector q[kMaxComponents] = {};
        for (int32_t k = 0; k < args.pairs; ++k) {
          const ComponentPair pair = args.pair_list[k];
          q[pair.b] += load_part(x + pair.a * args.x_stride, lanes) * load(b_node + k * kWidth);
        }
        Vector contracted = {};
        for (int b = 0; b < args.b_dim; ++b) {
          sum[b] += w * q[b];
          contracted += y[b * kWidth] * q[b];
        }
        if constexpr (kSource == WeightSource::table) slope_sum += slope * contracted;
        if constexpr (kSource == WeightSource::array) {
          if (args.grad_weights != nullptr) {
            Real* p = args.grad_weights + tile.weights[e] + channel;
            store_part(p, load_part(p, lanes) + contracted, lanes);
          }
        }
      }
      for (int b = 0; b < gradients; ++b) store(rows + (b * kWidth + lane) * kWidth, sum[b]);
      store(rows + (gradients * kWidth + lane) * kWidth, slope_sum);
      if (lane == kWidth - 1 || e + 1 == edges) flush_edges(args, block, gradients);
    }
  }
}

}  // namespace
}  // namespace clebsch::cpu
