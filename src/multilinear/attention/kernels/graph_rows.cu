// Graph attention, a receiver and a head at a time: outputs, and what backward needs of every edge. A group of lanes
// keeps the query and the sum of its receiver in registers and reads every neighbour's row once. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D, CLEBSCH_DV, CLEBSCH_VECTOR, CLEBSCH_NORMALISE and CLEBSCH_SHARED (values are the keys).
#include "multilinear/attention/kernels/graph_attention.h"
#include "multilinear/attention/kernels/graph_lanes.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kNormalise = CLEBSCH_NORMALISE;
constexpr bool kShared = CLEBSCH_SHARED;
static_assert(!kShared || kD == kDv, "values that are the keys have their size");
constexpr int kLanes = lanes_of(kD > kDv ? kD : kDv, kVector);
constexpr int kAtOnce = rows_at_once(Part<kD, kLanes>::kRegisters + (kShared ? 0 : Part<kDv, kLanes>::kRegisters));

/// A receiver's head, and its edges.
struct Place {
  int receiver, head, key_head, lane, begin, end, most;
  bool there;
};

__device__ __forceinline__ Place place_of(const GraphArguments& a) {
  Place at;
  const long long group = group_number<kLanes>();
  at.lane = threadIdx.x % kLanes;
  at.there = group < static_cast<long long>(a.rows.receivers) * a.heads;
  at.receiver = at.there ? static_cast<int>(group / a.heads) : 0;
  at.head = static_cast<int>(group % a.heads);
  at.key_head = at.head / (a.heads / a.key_heads);
  at.begin = at.there ? a.rows.row_ptr[at.receiver] : 0;
  at.end = at.there ? a.rows.row_ptr[at.receiver + 1] : 0;
  at.most = longest<kLanes>(at.end - at.begin);
  return at;
}

/// Keys and values of edges begin + from .. + kAtOnce - 1, and their senders' numbers one step ahead.
struct Neighbours {
  const number* k;
  const number* v;
  long long k_stride, v_stride;
  const int* senders;
  const real* envelope;
  int next[kAtOnce];
  Words<kD, kLanes> key[kAtOnce];
  Words<kDv, kLanes> value[kShared ? 1 : kAtOnce];
  real factor[kAtOnce];  ///< of the envelope; zero beyond the last edge

  __device__ __forceinline__ void begin(const GraphArguments& a, const Place& at) {
    k = static_cast<const number*>(a.k) + at.key_head * kD;
    v = static_cast<const number*>(a.v) + at.key_head * kDv;
    k_stride = static_cast<long long>(a.key_heads) * kD;
    v_stride = static_cast<long long>(a.key_heads) * kDv;
    senders = a.rows.senders;
    envelope = static_cast<const real*>(a.envelope);
    find(at, at.begin);
  }
  __device__ __forceinline__ void find(const Place& at, int edge) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) next[u] = edge + u < at.end ? __ldg(senders + edge + u) : -1;
  }
  __device__ __forceinline__ void load(const Place& at, int edge) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      factor[u] = 0;
      key[u].clear();
      if constexpr (!kShared) value[u].clear();
      if (next[u] >= 0) {
        key[u].load(k + next[u] * k_stride, at.lane);
        if constexpr (!kShared) value[u].load(v + next[u] * v_stride, at.lane);
        factor[u] = envelope ? __ldg(envelope + edge + u) : real(1);
      }
    }
    find(at, edge + kAtOnce);
  }
  __device__ __forceinline__ const Words<kDv, kLanes>& value_of(int u) const {
#if CLEBSCH_SHARED
    return key[u];
#else
    return value[u];
#endif
  }
};

/// out = sum of f s v, over its length, or sum of f exp(s) v over that of f exp(s) + eps; s = scale q.k.
extern "C" __global__ void __launch_bounds__(kGraphThreads) graph_rows(GraphArguments a) {
  const Place at = place_of(a);
  const long long row = static_cast<long long>(at.receiver) * a.heads + at.head;
  Reals<kD, kLanes> q;
  q.load(static_cast<const number*>(a.q) + row * kD, at.lane, at.there);
  q.scale(static_cast<real>(a.scale));
  Reals<kDv, kLanes> sum;
  sum.clear();
  real z = 0, shift = 0;  // of softmax: its sum and ours are divided by exp(shift), and shift is never below zero
  Neighbours near;
  near.begin(a, at);
  for (int from = 0; from < at.most; from += kAtOnce) {
    near.load(at, at.begin + from);
    real s[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) s[u] = group_sum<kLanes>(q.dot(near.key[u]));
    if constexpr (kNormalise == kSoftmax) {
      real most = shift;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        // The logarithm of zero is minus infinity, whose exponential is zero.
        if (a.envelope || near.factor[u] == 0) s[u] += log(near.factor[u]);
        most = max(most, s[u]);
      }
      const real shrink = exp(shift - most);
      shift = most;
      z *= shrink;
      sum.scale(shrink);
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        s[u] = exp(s[u] - shift);
        z += s[u];
      }
    } else {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        s[u] *= near.factor[u];
        if constexpr (kNormalise == kUnitLength) z += s[u] * s[u];
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) sum.add(s[u], near.value_of(u));
  }
  real norm = 0;
  if constexpr (kNormalise == kUnitLength) {
    norm = sqrt(z + static_cast<real>(a.eps));
    sum.scale(norm == 0 ? real(0) : 1 / norm);
  } else if constexpr (kNormalise == kSoftmax) {
    z += static_cast<real>(a.eps) * exp(-shift);
    sum.scale(z == 0 ? real(0) : 1 / z);
    norm = z == 0 ? -log(real(0)) : shift + log(z);  // of nothing: infinity, so that every weight is zero
  }
  if (!at.there) return;
  sum.store(static_cast<number*>(a.out) + row * kDv, at.lane);
  if (kNormalise != kPlain && at.lane == 0) static_cast<real*>(a.norm)[row] = norm;
}

/// With w the weight of an edge in out, t = grad.v and c = grad.out: the gradient of its score s is t (plain), (t - c
/// w) / norm times f, or w (t - c), and that of f is s / f or 1 / f times the same. Keys and values get theirs by
/// sender.
extern "C" __global__ void __launch_bounds__(kGraphThreads) graph_row_gradients(GraphArguments a) {
  const Place at = place_of(a);
  const long long row = static_cast<long long>(at.receiver) * a.heads + at.head;
  Reals<kD, kLanes> q, sum;
  q.load(static_cast<const number*>(a.q) + row * kD, at.lane, at.there);
  q.scale(static_cast<real>(a.scale));
  sum.clear();
  Reals<kDv, kLanes> grad;
  grad.load(static_cast<const number*>(a.grad) + row * kDv, at.lane, at.there);
  real c = 0, norm = 0, inverse = 1;
  if constexpr (kNormalise != kPlain) {
    Words<kDv, kLanes> out;
    out.clear();
    if (at.there) {
      out.load(static_cast<const number*>(a.out) + row * kDv, at.lane);
      norm = static_cast<const real*>(a.norm)[row];
    }
    c = group_sum<kLanes>(grad.dot(out));
    inverse = norm == 0 ? real(0) : 1 / norm;
  }
  Neighbours near;
  near.begin(a, at);
  for (int from = 0; from < at.most; from += kAtOnce) {
    near.load(at, at.begin + from);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const real s = group_sum<kLanes>(q.dot(near.key[u])), t = group_sum<kLanes>(grad.dot(near.value_of(u)));
      const real f = near.factor[u];
      real weight, slope, of_envelope;
      if constexpr (kNormalise == kSoftmax) {
        const real each = exp(s - norm);
        // An edge that the envelope all but hides may have a score far above the logarithm of the sum: exp overflows.
        weight = s - norm > 80 ? exp(s + log(f) - norm) : f * each;
        of_envelope = each * (t - c);
        slope = weight * (t - c);
      } else {
        weight = f * s * inverse;
        const real of_score = (t - c * weight) * inverse;
        of_envelope = s * of_score;
        slope = f * of_score;
      }
      sum.add(slope, near.key[u]);
      const int edge = at.begin + from + u;
      if (edge < at.end && at.lane == 0) {
        const long long to = static_cast<long long>(edge) * a.heads + at.head;
        static_cast<real*>(a.weights)[to] = weight;
        static_cast<real*>(a.slopes)[to] = static_cast<real>(a.scale) * slope;
        if (a.grad_envelope) static_cast<real*>(a.grad_envelope)[to] = of_envelope;
      }
    }
  }
  sum.scale(static_cast<real>(a.scale));
  if (at.there) sum.store(static_cast<number*>(a.grad_q) + row * kD, at.lane);
}
