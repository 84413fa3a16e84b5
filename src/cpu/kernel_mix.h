#pragma once
// Small dense products of one edge's uvw path. Included only by kernels_isa.h.
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

constexpr int kMixComponents = 15;  // 2 * kMaxDegree + 1

CLEBSCH_INLINE int mix_lanes(int64_t columns, int64_t column) {
  return columns - column < kWidth ? static_cast<int>(columns - column) : kWidth;
}

/// out[c, w] += sum_u z[c, u] W[u, w]
void mix_channels(const MixArgs<Real>& args) {
  for (int64_t w = 0; w < args.out_channels; w += kWidth) {
    const int lanes = mix_lanes(args.out_channels, w);
    Vector sum[kMixComponents] = {};
    for (int64_t u = 0; u < args.in_channels; ++u) {
      const Vector weight = load_part(args.weights + u * args.out_channels + w, lanes);
      for (int c = 0; c < args.components; ++c) sum[c] += args.z[c * args.z_stride + u] * weight;
    }
    for (int c = 0; c < args.components; ++c) {
      Real* p = args.out + c * args.out_stride + w;
      store_part(p, load_part(p, lanes) + sum[c], lanes);
    }
  }
}

/// z[c, u] = sum_w out[c, w] W[u, w]
void mix_transposed(const MixArgs<Real>& args) {
  for (int64_t u = 0; u < args.in_channels; ++u) {
    Vector sum[kMixComponents] = {};
    for (int64_t w = 0; w < args.out_channels; w += kWidth) {
      const int lanes = mix_lanes(args.out_channels, w);
      const Vector weight = load_part(args.weights + u * args.out_channels + w, lanes);
      for (int c = 0; c < args.components; ++c) {
        sum[c] += weight * load_part(args.out + c * args.out_stride + w, lanes);
      }
    }
    for (int c = 0; c < args.components; ++c) {
      Real total = 0;
      for (int lane = 0; lane < kWidth; ++lane) total += sum[c][lane];
      args.z[c * args.z_stride + u] = total;
    }
  }
}

/// grad_weights[u, w] += sum_c z[c, u] out[c, w]
void mix_outer(const MixArgs<Real>& args) {
  for (int64_t u = 0; u < args.in_channels; ++u) {
    for (int64_t w = 0; w < args.out_channels; w += kWidth) {
      const int lanes = mix_lanes(args.out_channels, w);
      Real* p = args.grad_weights + u * args.out_channels + w;
      Vector sum = load_part(p, lanes);
      for (int c = 0; c < args.components; ++c) {
        sum += args.z[c * args.z_stride + u] * load_part(args.out + c * args.out_stride + w, lanes);
      }
      store_part(p, sum, lanes);
    }
  }
}

}  // namespace
}  // namespace clebsch::cpu
