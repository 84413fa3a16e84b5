#pragma once
// SIMD vectors of the instruction set this file is compiled for (GCC/Clang vector extensions).
// Included only by kernels_isa.h, which defines CLEBSCH_REAL and CLEBSCH_VECTOR_BYTES.
// Everything sits in an anonymous namespace: see cpu/kernels.h for why.
#include <cstdint>

#include "cpu/kernels.h"

#define CLEBSCH_INLINE __attribute__((always_inline)) inline

namespace clebsch::cpu {
namespace {

using Real = CLEBSCH_REAL;
constexpr int kWidth = CLEBSCH_VECTOR_BYTES / static_cast<int>(sizeof(Real));
typedef Real Vector __attribute__((vector_size(CLEBSCH_VECTOR_BYTES)));
typedef Real UnalignedVector __attribute__((vector_size(CLEBSCH_VECTOR_BYTES), aligned(sizeof(Real)), may_alias));

CLEBSCH_INLINE Vector load(const Real* p) { return *reinterpret_cast<const UnalignedVector*>(p); }
CLEBSCH_INLINE void store(Real* p, Vector v) { *reinterpret_cast<UnalignedVector*>(p) = v; }

/// Block and lane of an edge (unsigned: the division is a shift).
CLEBSCH_INLINE int64_t block_of(int32_t e) { return static_cast<uint32_t>(e) / kWidth; }
CLEBSCH_INLINE int lane_of(int32_t e) { return static_cast<uint32_t>(e) % kWidth; }

/// The first n lanes, zero elsewhere; never reads beyond them.
CLEBSCH_INLINE Vector load_part(const Real* p, int n) {
  if (n == kWidth) return load(p);
  Real lanes[kWidth] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}

CLEBSCH_INLINE void store_part(Real* p, Vector v, int n) {
  if (n == kWidth) return store(p, v);
  Real lanes[kWidth];
  store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

/// A number as a type, so that loops unrolled at compile time can use it in constant expressions.
template <int I>
struct Index {
  static constexpr int value = I;
};

/// f(Index<0>{}), ..., f(Index<N-1>{}).
template <int N, int I = 0, typename F>
CLEBSCH_INLINE void unroll(const F& f) {
  if constexpr (I < N) {
    f(Index<I>{});
    unroll<N, I + 1>(f);
  }
}

/// Integer vector of constants, for shuffles.
template <int Bytes>
struct MaskInteger;
template <>
struct MaskInteger<4> {
  using type = int32_t;
};
template <>
struct MaskInteger<8> {
  using type = int64_t;
};
typedef MaskInteger<sizeof(Real)>::type Mask __attribute__((vector_size(CLEBSCH_VECTOR_BYTES)));

template <int... I>
struct Sequence {};
template <int N, int... I>
struct MakeSequence : MakeSequence<N - 1, N - 1, I...> {};
template <int... I>
struct MakeSequence<0, I...> {
  using type = Sequence<I...>;
};

/// Source lane (a: 0..W-1, b: W..2W-1) of lane i when vectors a and b are merged with runs of `unit` lanes inside
/// groups of `group` lanes: even-numbered runs come from a, odd ones from b; `upper` takes the other half of each.
/// With unit * 2 = group, merge(lower) + merge(upper) halves the lanes still to be summed.
constexpr int merge_lane(int i, int unit, int group, bool upper) {
  const int g = i / group, r = i % group;
  const bool from_b = (r / unit) % 2 == 1;
  const int half = group / 2;
  // Run k of the result (k counts pairs of runs) is run k of the lower or the upper half of the group.
  const int k = r / (2 * unit);
  return g * group + (upper ? half : 0) + k * unit + r % unit + (from_b ? kWidth : 0);
}

template <int Unit, int Group, int... I>
CLEBSCH_INLINE Vector merge(Vector a, Vector b, Sequence<I...>) {
  constexpr Mask lower = {merge_lane(I, Unit, Group, false)...};
  constexpr Mask upper = {merge_lane(I, Unit, Group, true)...};
  return __builtin_shuffle(a, b, lower) + __builtin_shuffle(a, b, upper);
}

/// Lane e of the result is the sum of the lanes of row e of the kWidth x kWidth matrix `rows`. Every row is summed in
/// the same order wherever it stands. Merges inside 128-bit lanes come first: those shuffles are the cheap ones.
constexpr int kLaneGroup = 16 / static_cast<int>(sizeof(Real));

template <int Count>
CLEBSCH_INLINE Vector reduce_rows(const Real* rows) {
  using Lanes = typename MakeSequence<kWidth>::type;
  if constexpr (Count == 1) {
    return load(rows);
  } else {
    const Vector a = reduce_rows<Count / 2>(rows);
    const Vector b = reduce_rows<Count / 2>(rows + (Count / 2) * kWidth);
    if constexpr (Count == 2 && kLaneGroup == 4) {
      return merge<1, 4>(a, b, Lanes{});  // a0+a2 b0+b2 a1+a3 b1+b3
    } else if constexpr (Count == 2) {
      return merge<1, 2>(a, b, Lanes{});
    } else if constexpr (Count == 4 && kLaneGroup == 4) {
      return merge<2, 4>(a, b, Lanes{});
    } else {
      return merge<Count / 2, kWidth>(a, b, Lanes{});
    }
  }
}

}  // namespace
}  // namespace clebsch::cpu
