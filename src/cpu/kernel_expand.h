#pragma once
// Radial functions of a tile's edges from their table. Included only by kernels_isa.h.
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

/// kVectors vectors of channels from `channel` on; a group's coefficients stay in registers over its edges.
/// `lanes` < kWidth means a last, partial vector (then kVectors = 1).
template <int kVectors, bool kSlope>
CLEBSCH_INLINE void expand_block(const ExpandArgs<Real>& args, int64_t channel, int lanes) {
  constexpr int kOrder = 6;
  // These copies help the compiler, which must assume that any store may change a field of args.
  const int64_t stride = args.stride, out_row = args.out_row, slope_offset = args.slope_offset;
  const int32_t groups = args.groups, *group_first = args.group_first;
  const int64_t* group_row = args.group_row;
  const Real *t = args.t, *table = args.table + channel;
  Real* out = args.out + channel;
  for (int32_t g = 0; g < groups; ++g) {
    const Real* row = table + group_row[g];
    // The rows of a group are strided and come from the second cache or from beyond it, so those of the group after the
    // next are fetched now.
    if (g + 2 < groups) {
      const Real* ahead = table + group_row[g + 2];
      for (int k = 0; k < kOrder; ++k) {
        for (int v = 0; v < kVectors; ++v) __builtin_prefetch(ahead + k * stride + v * kWidth);
      }
    }
    Vector c[kOrder][kVectors];
    for (int k = 0; k < kOrder; ++k) {
      for (int v = 0; v < kVectors; ++v) {
        const Real* p = row + k * stride + v * kWidth;
        c[k][v] = lanes == kWidth ? load(p) : load_part(p, lanes);
      }
    }
    for (int32_t count = group_first[g + 1] - group_first[g]; count > 0; --count) {
      const Real position = *t++;
      for (int v = 0; v < kVectors; ++v) {
        Vector w = c[5][v] * position + c[4][v], slope = c[5][v];
        for (int k = 3; k >= 0; --k) {
          if constexpr (kSlope) slope = slope * position + w;
          w = w * position + c[k][v];
        }
        store(out + v * kWidth, w);
        if constexpr (kSlope) store(out + slope_offset + v * kWidth, slope);
      }
      out += out_row;
    }
  }
}

template <bool kSlope>
void expand_weights(const ExpandArgs<Real>& args) {
  // Coefficients are six registers a vector.
  constexpr int kWide = CLEBSCH_VECTOR_BYTES == 64 ? 2 : 1;
  int64_t channel = 0;
  if constexpr (CLEBSCH_VECTOR_BYTES == 64 && !kSlope) {
    for (; channel + 4 * kWidth <= args.channels; channel += 4 * kWidth) {
      expand_block<4, kSlope>(args, channel, kWidth);
    }
  }
  for (; channel + kWide * kWidth <= args.channels; channel += kWide * kWidth) {
    expand_block<kWide, kSlope>(args, channel, kWidth);
  }
  for (; channel + kWidth <= args.channels; channel += kWidth) expand_block<1, kSlope>(args, channel, kWidth);
  if (channel < args.channels) expand_block<1, kSlope>(args, channel, static_cast<int>(args.channels - channel));
}

}  // namespace
}  // namespace clebsch::cpu
