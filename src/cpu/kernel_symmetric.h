#pragma once
// Symmetric contraction: lanes are channels, kSymmetricRows atoms of one type at a time. Included only by
// kernels_isa.h.
//
// Everything is written for a number type N: a vector of channels, or a dual number whose second part is the change
// along a direction of x and of the coefficients. The dual form of the gradient is what a second derivative needs.
#include "cpu/vector.h"

namespace clebsch::cpu {
namespace {

constexpr int kRows = kSymmetricRows;

struct Dual {
  Vector v, d;
};

CLEBSCH_INLINE Dual operator+(Dual a, Dual b) { return {a.v + b.v, a.d + b.d}; }
CLEBSCH_INLINE Dual operator*(Dual a, Dual b) { return {a.v * b.v, a.v * b.d + a.d * b.v}; }
CLEBSCH_INLINE Dual operator*(Vector a, Dual b) { return {a * b.v, a * b.d}; }

template <typename N>
constexpr int kParts = static_cast<int>(sizeof(N) / sizeof(Vector));

CLEBSCH_INLINE void put(Real* p, Vector v) { store(p, v); }
CLEBSCH_INLINE void put(Real* p, Dual v) {
  store(p, v.v);
  store(p + kWidth, v.d);
}
template <typename N>
CLEBSCH_INLINE N get(const Real* p) {
  if constexpr (kParts<N> == 1) {
    return load(p);
  } else {
    return {load(p), load(p + kWidth)};
  }
}
/// A value that does not change.
template <typename N>
CLEBSCH_INLINE N constant(Vector v) {
  if constexpr (kParts<N> == 1) {
    return v;
  } else {
    return {v, Vector{}};
  }
}
/// What is written to the caller's arrays: the value, or the change.
CLEBSCH_INLINE Vector result(Vector v) { return v; }
CLEBSCH_INLINE Vector result(Dual v) { return v.d; }

/// Reads `n` lanes of a value and, for dual numbers, of its change.
template <typename N>
CLEBSCH_INLINE N read(const Real* value, const Real* change, int64_t at, int n) {
  if constexpr (kParts<N> == 1) {
    return load_part(value + at, n);
  } else {
    return {load_part(value + at, n), load_part(change + at, n)};
  }
}

/// The scratch arrays of one vector of channels, and the rows at hand.
template <typename N>
struct SymmetricState {
  static constexpr int64_t kOne = kParts<N> * kWidth, kAll = kOne * kRows;
  const SymmetricArgs<Real>& args;
  int64_t channel;
  int lanes;
  Real *features, *grads, *coefficients, *coefficient_grads;
  int64_t row[kRows];
  int live;

  SymmetricState(const SymmetricArgs<Real>& a, int64_t c) : args(a), channel(c) {
    lanes = a.last - c < kWidth ? static_cast<int>(a.last - c) : kWidth;
    const int64_t count = a.components + a.pair_count;
    features = a.scratch;
    grads = features + count * kAll;
    coefficients = grads + count * kAll;
    coefficient_grads = coefficients + a.leaf_count * kOne;
    // In the order of the leaves: read from front to back, once for kRows atoms.
    for (int32_t l = 0; l < a.leaf_count; ++l) {
      put(coefficients + l * kOne,
          read<N>(a.coefficients, a.tangent_coefficients, a.leaf_coefficient[l] * a.channels + c, lanes));
    }
  }

  /// Features of rows [i, i + kRows); places beyond the last row repeat it and are not written back.
  void load_rows(int64_t i) {
    live = args.count - i < kRows ? static_cast<int>(args.count - i) : kRows;
    for (int r = 0; r < kRows; ++r) row[r] = args.rows[i + (r < live ? r : live - 1)];
    for (int32_t a = 0; a < args.components; ++a) {
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = (row[r] * args.components + a) * args.channels + channel;
        put(features + a * kAll + r * kOne, read<N>(args.x, args.tangent_x, at, lanes));
      }
    }
    Real* to = features + args.components * kAll;
    for (int32_t p = 0; p < args.pair_count; ++p, to += kAll) {
      const Real *a = features + args.pairs[p][0] * kAll, *b = features + args.pairs[p][1] * kAll;
      for (int r = 0; r < kRows; ++r) put(to + r * kOne, get<N>(a + r * kOne) * get<N>(b + r * kOne));
    }
  }

  void write_rows(Real* target, int32_t stride, int32_t component, const N* values) const {
    for (int r = 0; r < live; ++r) {
      store_part(target + (row[r] * stride + component) * args.channels + channel, result(values[r]), lanes);
    }
  }
};

/// sum over the group's leaves of coefficient * tail, times the head; added to total.
template <typename N>
CLEBSCH_INLINE void add_group(const SymmetricState<N>& s, const SymmetricGroup& group, N* total) {
  constexpr int64_t kOne = SymmetricState<N>::kOne, kAll = SymmetricState<N>::kAll;
  // Two sums an atom, so that one multiply-add need not wait for the last.
  N even[kRows] = {}, odd[kRows] = {};
  const Real *c = s.coefficients + group.begin * kOne, *features = s.features;
  const int32_t* leaf = s.args.leaf_feature;
  int32_t l = group.begin;
  for (; l + 1 < group.end; l += 2, c += 2 * kOne) {
    const Real* x = features + leaf[l] * kAll;
    const Real* y = features + leaf[l + 1] * kAll;
    const N first = get<N>(c), second = get<N>(c + kOne);
    for (int r = 0; r < kRows; ++r) {
      even[r] = even[r] + first * get<N>(x + r * kOne);
      odd[r] = odd[r] + second * get<N>(y + r * kOne);
    }
  }
  if (l < group.end) {
    const Real* x = features + leaf[l] * kAll;
    for (int r = 0; r < kRows; ++r) even[r] = even[r] + get<N>(c) * get<N>(x + r * kOne);
  }
  for (int r = 0; r < kRows; ++r) {
    const N sum = even[r] + odd[r];
    total[r] = total[r] + (group.head < 0 ? sum : get<N>(s.features + group.head * kAll + r * kOne) * sum);
  }
}

void symmetric_forward(const SymmetricArgs<Real>& args) {
  for (int64_t channel = args.first; channel < args.last; channel += kWidth) {
    SymmetricState<Vector> s(args, channel);
    for (int64_t i = 0; i < args.count; i += kRows) {
      s.load_rows(i);
      const SymmetricGroup* group = args.groups;
      for (int32_t w = 0; w < args.outs; ++w) {
        Vector total[kRows] = {};
        for (; group != args.groups + args.group_count && group->out == w; ++group) add_group(s, *group, total);
        s.write_rows(args.out, args.outs, w, total);
      }
    }
  }
}

/// Leaves of one group: the sum as above, gradients of tails and of coefficients.
///   sum[r] += c X[tail],  grad X[tail] += c h,  grad c += sum over atoms of h X[tail],   h = grad_out[w] X[head]
template <typename N, bool X, bool C>
CLEBSCH_INLINE void walk_leaves(const SymmetricState<N>& s, const SymmetricGroup& group, const N* h, N* sum) {
  constexpr int64_t kOne = SymmetricState<N>::kOne, kAll = SymmetricState<N>::kAll;
  // These copies help the compiler, which must assume that any store may change a field of s.
  const Real *features = s.features, *coefficients = s.coefficients;
  Real *grads = s.grads, *coefficient_grads = s.coefficient_grads;
  const int32_t *leaf = s.args.leaf_feature, end = group.end;
  for (int32_t l = group.begin; l < end; ++l) {
    const int64_t at = leaf[l] * kAll;
    const N c = get<N>(coefficients + l * kOne);
    N grad = {};
    for (int r = 0; r < kRows; ++r) {
      const N tail = get<N>(features + at + r * kOne);
      if constexpr (X) {
        sum[r] = sum[r] + c * tail;
        Real* g = grads + at + r * kOne;
        put(g, get<N>(g) + c * h[r]);
      }
      if constexpr (C) grad = grad + h[r] * tail;
    }
    if constexpr (C) {
      Real* g = coefficient_grads + l * kOne;
      put(g, get<N>(g) + grad);
    }
  }
}

/// Gradients of the features of the rows at hand, from those of all outputs; of the output itself for dual numbers.
template <typename N, bool X, bool C>
CLEBSCH_INLINE void backward_rows(const SymmetricState<N>& s) {
  constexpr int64_t kOne = SymmetricState<N>::kOne, kAll = SymmetricState<N>::kAll;
  const SymmetricArgs<Real>& args = s.args;
  const SymmetricGroup* group = args.groups;
  for (int32_t w = 0; w < args.outs; ++w) {
    Vector g[kRows] = {};
    N total[kRows] = {};
    for (int r = 0; r < s.live; ++r) {
      g[r] = load_part(args.grad_out + (s.row[r] * args.outs + w) * args.channels + s.channel, s.lanes);
    }
    for (; group != args.groups + args.group_count && group->out == w; ++group) {
      N h[kRows], sum[kRows] = {};
      for (int r = 0; r < kRows; ++r) {
        if (group->head < 0) {
          h[r] = constant<N>(g[r]);
        } else {
          h[r] = g[r] * get<N>(s.features + group->head * kAll + r * kOne);
        }
      }
      walk_leaves<N, X, C>(s, *group, h, sum);
      if constexpr (X) {
        for (int r = 0; r < kRows; ++r) {
          const int64_t head = group->head * kAll + r * kOne;
          if (group->head >= 0) put(s.grads + head, get<N>(s.grads + head) + g[r] * sum[r]);
          if constexpr (kParts<N> == 2) {
            total[r] = total[r] + (group->head < 0 ? sum[r] : get<N>(s.features + head) * sum[r]);
          }
        }
      }
    }
    if constexpr (kParts<N> == 2) {
      if (args.out != nullptr) s.write_rows(args.out, args.outs, w, total);
    }
  }
}

/// From gradients of pair products to those of components, and to the caller's array.
template <typename N>
CLEBSCH_INLINE void finish_rows(const SymmetricState<N>& s) {
  constexpr int64_t kOne = SymmetricState<N>::kOne, kAll = SymmetricState<N>::kAll;
  const SymmetricArgs<Real>& args = s.args;
  const Real* from = s.grads + args.components * kAll;
  for (int32_t p = 0; p < args.pair_count; ++p, from += kAll) {
    const int64_t a = args.pairs[p][0] * kAll, b = args.pairs[p][1] * kAll;
    for (int r = 0; r < kRows; ++r) {
      const N grad = get<N>(from + r * kOne);
      const N xa = get<N>(s.features + a + r * kOne), xb = get<N>(s.features + b + r * kOne);
      put(s.grads + a + r * kOne, get<N>(s.grads + a + r * kOne) + grad * xb);
      put(s.grads + b + r * kOne, get<N>(s.grads + b + r * kOne) + grad * xa);
    }
  }
  for (int32_t a = 0; a < args.components; ++a) {
    N values[kRows];
    for (int r = 0; r < kRows; ++r) values[r] = get<N>(s.grads + a * kAll + r * kOne);
    s.write_rows(args.grad_x, args.components, a, values);
  }
}

template <typename N, bool X, bool C>
void differentiate(const SymmetricArgs<Real>& args) {
  constexpr int64_t kOne = SymmetricState<N>::kOne, kAll = SymmetricState<N>::kAll;
  for (int64_t channel = args.first; channel < args.last; channel += kWidth) {
    SymmetricState<N> s(args, channel);
    for (int64_t k = 0; C && k < args.leaf_count * kOne; k += kWidth) store(s.coefficient_grads + k, Vector{});
    for (int64_t i = 0; i < args.count; i += kRows) {
      s.load_rows(i);
      for (int64_t k = 0; X && k < (args.components + args.pair_count) * kAll; k += kWidth)
        store(s.grads + k, Vector{});
      backward_rows<N, X, C>(s);
      if (X && args.grad_x != nullptr) finish_rows(s);
    }
    for (int32_t l = 0; C && l < args.leaf_count; ++l) {
      store_part(args.grad_coefficients + args.leaf_coefficient[l] * args.channels + channel,
                 result(get<N>(s.coefficient_grads + l * kOne)), s.lanes);
    }
  }
}

void symmetric_backward(const SymmetricArgs<Real>& args) {
  if (args.grad_coefficients == nullptr) return differentiate<Vector, true, false>(args);
  if (args.grad_x == nullptr) return differentiate<Vector, false, true>(args);
  differentiate<Vector, true, true>(args);
}

void symmetric_tangent(const SymmetricArgs<Real>& args) {
  args.grad_coefficients == nullptr ? differentiate<Dual, true, false>(args) : differentiate<Dual, true, true>(args);
}

}  // namespace
}  // namespace clebsch::cpu
