#pragma once
// Environment sums and tensor products of one receiver's edges. Included only by allegro_kernels_isa.h.
#include "cpu/kernel_dense.h"

namespace clebsch::cpu {
namespace {

void expand_row(const ExpandRowArgs<Real>& args) {
  const Real t = args.t, scale = args.dt_dr;
  const int64_t n = args.columns;
  const Real *c0 = args.row, *c1 = c0 + n, *c2 = c1 + n, *c3 = c2 + n, *c4 = c3 + n, *c5 = c4 + n;
  Real* __restrict value = args.value;
  Real* __restrict slope = args.slope;
  for (int64_t c = 0; c < n; ++c) {
    value[c] = ((((c5[c] * t + c4[c]) * t + c3[c]) * t + c2[c]) * t + c1[c]) * t + c0[c];
  }
  if (slope == nullptr) return;
  const Real two = 2, three = 3, four = 4, five = 5;
  for (int64_t c = 0; c < n; ++c) {
    slope[c] = scale * ((((five * c5[c] * t + four * c4[c]) * t + three * c3[c]) * t + two * c2[c]) * t + c1[c]);
  }
}

CLEBSCH_INLINE void add_scaled(Real* __restrict out, const Real* __restrict x, Real factor, int64_t count) {
  for (int64_t u = 0; u < count; ++u) out[u] += factor * x[u];
}

CLEBSCH_INLINE void add_product(Real* __restrict out, const Real* __restrict x, const Real* __restrict y,
                                int64_t count) {
  for (int64_t u = 0; u < count; ++u) out[u] += x[u] * y[u];
}

void environment(const EnvironmentArgs<Real>& args) {
  const int components = (args.lmax + 1) * (args.lmax + 1);
  const int64_t channels = args.channels;
  for (int64_t e = 0; e < args.edges; ++e) {
    const Real* y = args.harmonics + e * components;
    const Real* w = args.weights + e * args.w_stride;
    Real* t = args.tensor + e * args.t_stride;
    for (int l = 0, m = 0; l <= args.lmax; ++l, w += channels) {
      for (; m < (l + 1) * (l + 1); ++m) {
        if (args.t_stride > 0) {
          const Real factor = args.scale * y[m];
          Real* __restrict row = t + m * channels;
          for (int64_t u = 0; u < channels; ++u) row[u] = factor * w[u];
        } else {
          add_scaled(t + m * channels, w, args.scale * y[m], channels);
        }
      }
    }
  }
}

void environment_backward(const EnvironmentArgs<Real>& args) {
  const int components = (args.lmax + 1) * (args.lmax + 1);
  const int64_t channels = args.channels;
  for (int64_t e = 0; e < args.edges; ++e) {
    const Real* y = args.harmonics + e * components;
    const Real* w = args.weights + e * args.w_stride;
    const Real* t = args.tensor + e * args.t_stride;
    Real* grad_w = args.grad_weights + e * args.g_stride;
    Real* grad_y = args.grad_harmonics + e * components;
    for (int l = 0, m = 0; l <= args.lmax; ++l, w += channels, grad_w += channels) {
      for (int64_t u = 0; u < channels; ++u) grad_w[u] = 0;
      for (; m < (l + 1) * (l + 1); ++m) {
        add_scaled(grad_w, t + m * channels, args.scale * y[m], channels);
        grad_y[m] += args.scale * dot_product(t + m * channels, w, channels);
      }
    }
  }
}

void couple(const ProductArgs<Real>& args) {
  const int64_t channels = args.channels;
  for (int64_t u = 0; u < args.pair_count * channels; ++u) args.matrix[u] = 0;
  for (int32_t n = 0; n < args.term_count; ++n) {
    const ProductTerm<Real> term = args.terms[n];
    const Real* w = args.path_weights + term.path * channels;
    const Real* a = args.environment + term.other * channels;
    Real* __restrict b = args.matrix + term.pair * channels;
    for (int64_t u = 0; u < channels; ++u) b[u] += term.value * w[u] * a[u];
  }
}

void couple_backward(const ProductArgs<Real>& args) {
  const int64_t channels = args.channels;
  for (int32_t n = 0; n < args.term_count; ++n) {
    const ProductTerm<Real> term = args.terms[n];
    const Real* w = args.path_weights + term.path * channels;
    const Real* b = args.grad_matrix + term.pair * channels;
    Real* __restrict a = args.environment + term.other * channels;
    for (int64_t u = 0; u < channels; ++u) a[u] += term.value * w[u] * b[u];
  }
}

void apply(const ProductArgs<Real>& args) {
  const int64_t channels = args.channels;
  for (int64_t e = 0; e < args.edges; ++e) {
    const Real* in = args.in + e * args.in_dim * channels;
    Real* out = args.out + e * args.out_dim * channels;
    for (int64_t u = 0; u < args.out_dim * channels; ++u) out[u] = 0;
    for (int32_t p = 0; p < args.pair_count; ++p) {
      add_product(out + args.pairs[p][1] * channels, args.matrix + p * channels, in + args.pairs[p][0] * channels,
                  channels);
    }
  }
}

void apply_backward(const ProductArgs<Real>& args) {
  const int64_t channels = args.channels;
  for (int64_t e = 0; e < args.edges; ++e) {
    const Real* in = args.in + e * args.in_dim * channels;
    const Real* grad_out = args.grad_out + e * args.out_dim * channels;
    Real* grad_in = args.grad_in + e * args.in_dim * channels;
    for (int64_t u = 0; u < args.in_dim * channels; ++u) grad_in[u] = 0;
    for (int32_t p = 0; p < args.pair_count; ++p) {
      const int64_t i = args.pairs[p][0] * channels;
      const Real* g = grad_out + args.pairs[p][1] * channels;
      add_product(grad_in + i, args.matrix + p * channels, g, channels);
      add_product(args.grad_matrix + p * channels, in + i, g, channels);
    }
  }
}

}  // namespace
}  // namespace clebsch::cpu
