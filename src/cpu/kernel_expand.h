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
  for (int32_t g = 0; g < args.groups; ++g) {
    const Real* row = args.table + args.group_row[g] + channel;
    Vector c[kOrder][kVectors];
    for (int k = 0; k < kOrder; ++k) {
      for (int v = 0; v < kVectors; ++v) {
        const Real* p = row + k * args.stride + v * kWidth;
        c[k][v] = lanes == kWidth ? load(p) : load_part(p, lanes);
      }
    }
    const int32_t end = args.group_first[g + 1];
    for (int32_t i = args.group_first[g]; i < end; ++i) {
      const Real t = args.t[i];
      Real* out = args.out + args.order[i] * args.out_row + channel;
      for (int v = 0; v < kVectors; ++v) {
        Vector w = c[5][v] * t + c[4][v], slope = c[5][v];
        for (int k = 3; k >= 0; --k) {
          if constexpr (kSlope) slope = slope * t + w;
          w = w * t + c[k][v];
        }
        store(out + v * kWidth, w);
        if constexpr (kSlope) store(out + args.slope_offset + v * kWidth, slope);
      }
    }
  }
}

template <bool kSlope>
void expand_weights(const ExpandArgs<Real>& args) {
  constexpr int kWide = CLEBSCH_VECTOR_BYTES == 64 ? 2 : 1;
  int64_t channel = 0;
  for (; channel + kWide * kWidth <= args.channels; channel += kWide * kWidth) {
    expand_block<kWide, kSlope>(args, channel, kWidth);
  }
  for (; channel + kWidth <= args.channels; channel += kWidth) expand_block<1, kSlope>(args, channel, kWidth);
  if (channel < args.channels) expand_block<1, kSlope>(args, channel, static_cast<int>(args.channels - channel));
}

}  // namespace
}  // namespace clebsch::cpu
