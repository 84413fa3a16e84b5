#pragma once
// The sum over a node's edges, unrolled at compile time for small degrees. Included only by kernels_isa.h.
#include "cpu/selection.h"
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

/// One block of kVectors vectors of channels of all nodes of the tile: the accumulators stay in registers over a
/// node's edges. A path joins few inputs to many outputs or the reverse; W multiplies the fewer.
template <int LA, int L2, int LB, int kVectors>
CLEBSCH_INLINE void gather_block(const GatherArgs<Real>& args, int64_t channel) {
  constexpr int kA = 2 * LA + 1, kB = 2 * LB + 1, kPairs = pair_count(LA, L2, LB);
  const TileView<Real>& tile = args.tile;
  const Real* weights = args.weights + channel;
  const int64_t in_stride = args.in_stride;
  const Real* in_rows = args.in + channel;
  for (int32_t i = 0; i < tile.nodes; ++i) {
    const int32_t begin = tile.first[i], end = tile.first[i + 1];
    Vector sum[kB][kVectors] = {};
    for (int32_t e = begin; e < end; ++e) {
      Vector w[kVectors];
      const Real* row = weights + args.weight_rows[e];
      for (int v = 0; v < kVectors; ++v) w[v] = load(row + v * kWidth);
      const Real* in = in_rows + tile.far_row[e];
      if constexpr (L2 == 0) {
        unroll<kB>([&](auto b) __attribute__((always_inline)) {
          constexpr int kColumn = b.value;
          for (int v = 0; v < kVectors; ++v) sum[kColumn][v] += w[v] * load(in + kColumn * in_stride + v * kWidth);
        });
      } else {
        const Real* m = args.matrix + block_of(e) * (kPairs * kWidth) + lane_of(e);
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
        const Vector result = L2 == 0 ? args.scale * sum[b][v] : sum[b][v];
        store(p, args.accumulate ? load(p) + result : result);
      }
    }
  }
}

/// Vectors of channels done at once: as many as keep the accumulators in the registers there are.
constexpr int gather_vectors(int la, int lb) {
  const int a = 2 * la + 1, b = 2 * lb + 1, sums = a <= b ? b : 2 * b;
  if (CLEBSCH_VECTOR_BYTES == 64) return sums <= 5 ? 4 : (sums <= 13 ? 2 : 1);
  return sums <= 5 ? 2 : 1;
}

template <int LA, int L2, int LB>
void gather_unrolled(const GatherArgs<Real>& args) {
  constexpr int kMost = gather_vectors(LA, LB);
  int64_t channel = 0;
  if constexpr (kMost >= 4) {
    for (; channel + 4 * kWidth <= args.channels; channel += 4 * kWidth) gather_block<LA, L2, LB, 4>(args, channel);
  }
  if constexpr (kMost >= 2) {
    for (; channel + 2 * kWidth <= args.channels; channel += 2 * kWidth) gather_block<LA, L2, LB, 2>(args, channel);
  }
  for (; channel < args.channels; channel += kWidth) gather_block<LA, L2, LB, 1>(args, channel);
}

}  // namespace
}  // namespace clebsch::cpu
