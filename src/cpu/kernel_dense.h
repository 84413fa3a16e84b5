#pragma once
// Matrix products of small networks over a tile of edges, silu, dot products. Included only by allegro_kernels_isa.h.
#include "cpu/allegro_kernels.h"
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

/// Two vectors of columns by this many rows of accumulators fill the registers but for the operands.
constexpr int kDenseRows = CLEBSCH_VECTOR_BYTES == 64 ? 12 : 6;
constexpr int kPanel = 2 * kWidth;

template <int Rows>
CLEBSCH_INLINE void dense_block(const DenseArgs<Real>& args, int64_t row, int64_t column) {
  Vector sums[Rows][2] = {};
  const Real* w = args.weights + column * args.in;
  const Real* a = args.a + row * args.a_stride;
  for (int64_t i = 0; i < args.in; ++i, w += kPanel) {
    const Vector w0 = load(w), w1 = load(w + kWidth);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const Real x = a[r * args.a_stride + i];
      sums[r][0] += x * w0;
      sums[r][1] += x * w1;
    }
  }
  const int64_t left = args.out - column;
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    Real* c = args.c + (row + r) * args.c_stride + column;
    if (left >= kPanel) {
      store(c, args.accumulate ? load(c) + sums[r][0] : sums[r][0]);
      store(c + kWidth, args.accumulate ? load(c + kWidth) + sums[r][1] : sums[r][1]);
    } else {
      Real lanes[kPanel];
      store(lanes, sums[r][0]);
      store(lanes + kWidth, sums[r][1]);
      for (int64_t o = 0; o < left; ++o) c[o] = args.accumulate ? c[o] + lanes[o] : lanes[o];
    }
  }
}

void dense(const DenseArgs<Real>& args) {
  for (int64_t column = 0; column < args.out; column += kPanel) {
    int64_t row = 0;
    for (; row + kDenseRows <= args.rows; row += kDenseRows) dense_block<kDenseRows>(args, row, column);
    for (; row + 3 <= args.rows; row += 3) dense_block<3>(args, row, column);
    for (; row < args.rows; ++row) dense_block<1>(args, row, column);
  }
}

/// exp(x) to about one unit in the last place for |x| below the overflow limit, which larger ones are clamped to:
/// x = n ln 2 + r with n from the magic number that rounds, a Taylor series in r, and n added to the exponent's bits.
CLEBSCH_INLINE Vector exponential(Vector x) {
  constexpr bool kDouble = sizeof(Real) == 8;
  const Real limit = kDouble ? Real(700) : Real(87);
  const Vector high = limit - Vector{}, low = -limit - Vector{};
  x = x > high ? high : x;
  x = x < low ? low : x;
  const Real magic = kDouble ? Real(6755399441055744.0) : Real(12582912.0);  // 1.5 * 2^52, 1.5 * 2^23
  const Vector shifted = x * Real(1.44269504088896340736) + magic;
  const Vector n = shifted - magic;
  // ln 2 in two parts, the first with zeros at its end, so that n times it is exact.
  const Real ln2_high = kDouble ? Real(6.93147180369123816490e-01) : Real(0.693359375);
  const Real ln2_low = kDouble ? Real(1.90821492927058770002e-10) : Real(-2.12194440e-4);
  const Vector r = (x - n * ln2_high) - n * ln2_low;
  constexpr int kTerms = kDouble ? 13 : 7;
  Real inverse[kTerms + 1] = {1};
  for (int k = 1; k <= kTerms; ++k) inverse[k] = inverse[k - 1] / k;
  Vector p = inverse[kTerms] - Vector{};
#pragma GCC unroll 16
  for (int k = kTerms - 1; k >= 0; --k) p = p * r + inverse[k];
  const Mask exponent = (Mask)shifted << (kDouble ? 52 : 23);
  return (Vector)((Mask)p + exponent);
}

void silu(Real* x, Real* slope, int64_t count) {
  for (int64_t i = 0; i < count; i += kWidth) {
    const int n = count - i < kWidth ? static_cast<int>(count - i) : kWidth;
    const Vector v = load_part(x + i, n);
    const Vector s = Real(1) / (Real(1) + exponential(-v));
    store_part(x + i, v * s, n);
    if (slope != nullptr) store_part(slope + i, s * (Real(1) + v * (Real(1) - s)), n);
  }
}

void multiply(Real* __restrict x, const Real* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= y[i];
}

/// Sum of the lanes, always in the same order.
CLEBSCH_INLINE Real lane_total(Vector v) {
  Real lanes[kWidth];
  store(lanes, v);
  for (int step = kWidth / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

CLEBSCH_INLINE Real dot_product(const Real* x, const Real* y, int64_t count) {
  Vector sum = {};
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) sum += load(x + i) * load(y + i);
  if (i < count) sum += load_part(x + i, static_cast<int>(count - i)) * load_part(y + i, static_cast<int>(count - i));
  return lane_total(sum);
}

Real dot(const Real* x, const Real* y, int64_t count) { return dot_product(x, y, count); }

}  // namespace
}  // namespace clebsch::cpu
