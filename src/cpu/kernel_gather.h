#pragma once
// The sum over a node's edges, unrolled at compile time for small degrees. Included only by kernels_isa.h.
#include "cpu/selection.h"
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

/// W of `kVectors` vectors of channels: a quintic in t by Horner's rule.
template <int kVectors>
CLEBSCH_INLINE void table_value(const Real* row, int64_t stride, Real t, Vector (&w)[kVectors]) {
  for (int v = 0; v < kVectors; ++v) w[v] = load(row + 5 * stride + v * kWidth);
  for (int k = 4; k >= 0; --k) {
    for (int v = 0; v < kVectors; ++v) w[v] = w[v] * t + load(row + k * stride + v * kWidth);
  }
}

/// One block of kVectors vectors of channels of all nodes of the tile: the accumulators stay in registers over a
/// node's edges. A path joins few inputs to many outputs or the reverse; W multiplies the fewer.
template <int LA, int L2, int LB, int kVectors>
CLEBSCH_INLINE void gather_block(const GatherArgs<Real>& args, int64_t channel) {
  constexpr int kA = 2 * LA + 1, kB = 2 * LB + 1, kPairs = pair_count(LA, L2, LB);
  const TileView<Real>& tile = args.tile;
  const Real* weights = args.weights + channel;
  const int64_t stride = args.weight_stride, in_row = args.in_row, in_stride = args.in_stride;
  const Real* in_rows = args.in + channel;
  for (int32_t i = 0; i < tile.nodes; ++i) {
    const int32_t begin = tile.first[i], end = tile.first[i + 1];
    if (begin == end) continue;
    Vector sum[kB][kVectors] = {};
    for (int32_t e = begin; e < end; ++e) {
      Vector w[kVectors];
      table_value(weights + tile.weights[e], stride, tile.t[e], w);
      const Real* in = in_rows + tile.other[e] * in_row;
      if constexpr (L2 == 0) {
        unroll<kB>([&](auto b) __attribute__((always_inline)) {
          constexpr int kColumn = b.value;
          for (int v = 0; v < kVectors; ++v) sum[kColumn][v] += w[v] * load(in + kColumn * in_stride + v * kWidth);
        });
      } else {
        const Real* m = args.matrix + static_cast<int64_t>(e / kWidth) * (kPairs * kWidth) + e % kWidth;
        if constexpr (kA <= kB) {
          unroll<kA>([&](auto a) __attribute__((always_inline)) {
            constexpr int kRow = a.value;
            Vector wx[kVectors];
            for (int v = 0; v < kVectors; ++v) wx[v] = w[v] * load(in + kRow * in_stride + v * kWidth);
            unroll<kB>([&](auto b) __attribute__((always_inline)) {
              constexpr int kColumn = b.value;
              if constexpr (linked(LA, kRow, L2, LB, kColumn)) {
                constexpr int slot = pair_slot(LA, L2, LB, kRow, kColumn);
                for (int v = 0; v < kVectors; ++v) sum[kColumn][v] += m[slot * kWidth] * wx[v];
              }
            });
          });
        } else {
          Vector part[kB][kVectors] = {};
          unroll<kA>([&](auto a) __attribute__((always_inline)) {
            constexpr int kRow = a.value;
            Vector x[kVectors];
            for (int v = 0; v < kVectors; ++v) x[v] = load(in + kRow * in_stride + v * kWidth);
            unroll<kB>([&](auto b) __attribute__((always_inline)) {
              constexpr int kColumn = b.value;
              if constexpr (linked(LA, kRow, L2, LB, kColumn)) {
                constexpr int slot = pair_slot(LA, L2, LB, kRow, kColumn);
                for (int v = 0; v < kVectors; ++v) part[kColumn][v] += m[slot * kWidth] * x[v];
              }
            });
          });
          for (int b = 0; b < kB; ++b) {
            for (int v = 0; v < kVectors; ++v) sum[b][v] += w[v] * part[b][v];
          }
        }
      }
    }
    Real* out = args.out + static_cast<int64_t>(tile.node + i) * args.out_row + channel;
    for (int b = 0; b < kB; ++b) {
      for (int v = 0; v < kVectors; ++v) {
        Real* p = out + b * args.out_stride + v * kWidth;
        store(p, load(p) + (L2 == 0 ? args.scale * sum[b][v] : sum[b][v]));
      }
    }
  }
}

/// Vectors of channels done at once: as many as keep the accumulators in the registers there are.
constexpr int gather_vectors(int lb) {
  const int registers = CLEBSCH_VECTOR_BYTES == 64 ? 32 : 16;
  return 2 * (2 * lb + 1) + 6 <= registers ? 2 : 1;
}

template <int LA, int L2, int LB>
void gather_unrolled(const GatherArgs<Real>& args) {
  constexpr int kWide = gather_vectors(LB);
  int64_t channel = 0;
  for (; channel + kWide * kWidth <= args.channels; channel += kWide * kWidth) {
    gather_block<LA, L2, LB, kWide>(args, channel);
  }
  if constexpr (kWide > 1) {
    for (; channel < args.channels; channel += kWidth) gather_block<LA, L2, LB, 1>(args, channel);
  }
}

}  // namespace
}  // namespace clebsch::cpu
