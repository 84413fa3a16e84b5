// The loops of graph_loops.h for one instruction set: CLEBSCH_VECTOR_BYTES and CLEBSCH_LOOPS, the table's name, are
// defined by the file that includes this one. Nothing here may be shared with what is compiled for another set: all of
// it is in an anonymous namespace, and no template of the standard library is used.
#include <math.h>

#include "multilinear/attention/graph_loops.h"

namespace clebsch::attention {
namespace {

template <typename T>
struct Wide {
  static constexpr int kLanes = CLEBSCH_VECTOR_BYTES / static_cast<int>(sizeof(T));
  typedef T Vector __attribute__((vector_size(CLEBSCH_VECTOR_BYTES)));
  typedef T AnyVector __attribute__((vector_size(CLEBSCH_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
  static Vector load(const T* from) { return *reinterpret_cast<const AnyVector*>(from); }
  static void store(T* to, Vector value) { *reinterpret_cast<AnyVector*>(to) = value; }
};

/// Four sums at a time, so that additions do not wait for each other.
template <typename T>
T dot(const T* x, const T* y, int count) {
  using W = Wide<T>;
  typename W::Vector sums[4] = {};
  int at = 0;
  for (; at + 4 * W::kLanes <= count; at += 4 * W::kLanes) {
    for (int i = 0; i < 4; ++i) sums[i] += W::load(x + at + i * W::kLanes) * W::load(y + at + i * W::kLanes);
  }
  for (; at + W::kLanes <= count; at += W::kLanes) sums[0] += W::load(x + at) * W::load(y + at);
  const typename W::Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  T total = 0;
  for (int lane = 0; lane < W::kLanes; ++lane) total += all[lane];
  for (; at < count; ++at) total += x[at] * y[at];
  return total;
}

/// to += factor from.
template <typename T>
void add(T* to, T factor, const T* from, int count) {
  using W = Wide<T>;
  int at = 0;
  for (; at + W::kLanes <= count; at += W::kLanes) W::store(to + at, W::load(to + at) + factor * W::load(from + at));
  for (; at < count; ++at) to[at] += factor * from[at];
}

template <typename T>
void multiply(T* to, T factor, int count) {
  for (int at = 0; at < count; ++at) to[at] *= factor;
}

/// The next rows are asked for while one is worked on.
template <typename T>
void fetch(const T* row, int count) {
  for (int at = 0; at < count; at += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(row + at);
}

inline float exponential(float x) { return expf(x); }
inline double exponential(double x) { return exp(x); }
inline float logarithm(float x) { return logf(x); }
inline double logarithm(double x) { return log(x); }
inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

constexpr int kAhead = 3;

/// Tensors of a call as their type.
template <typename T>
struct Call {
  const GraphArguments& a;
  int d, dv;
  const T* q = static_cast<const T*>(a.q);
  const T* k = static_cast<const T*>(a.k);
  const T* v = static_cast<const T*>(a.v);
  const T* envelope = static_cast<const T*>(a.envelope);
  const T scale = static_cast<T>(a.scale), eps = static_cast<T>(a.eps);

  const T* key(int edge, int key_head) const {
    return k + (static_cast<int64_t>(a.rows.senders[edge]) * a.key_heads + key_head) * d;
  }
  const T* value(int edge, int key_head) const {
    return v + (static_cast<int64_t>(a.rows.senders[edge]) * a.key_heads + key_head) * dv;
  }
  void fetch_ahead(int edge, int end, int key_head) const {
    if (edge + kAhead >= end) return;
    fetch(key(edge + kAhead, key_head), d);
    if (a.k != a.v) fetch(value(edge + kAhead, key_head), dv);
  }
};

/// out = sum of f s v, over its length, or sum of f exp(s) v over that of f exp(s) + eps; s = scale q.k.
template <typename T>
void rows(const GraphArguments& a, int d, int dv, int normalise, int begin, int end) {
  const Call<T> call{a, d, dv};
  for (int receiver = begin; receiver < end; ++receiver) {
    const int first = a.rows.row_ptr[receiver], last = a.rows.row_ptr[receiver + 1];
    for (int head = 0; head < a.heads; ++head) {
      const int key_head = head / (a.heads / a.key_heads);
      const int64_t row = static_cast<int64_t>(receiver) * a.heads + head;
      const T* q = call.q + row * d;
      T* out = static_cast<T*>(a.out) + row * dv;
      for (int c = 0; c < dv; ++c) out[c] = 0;
      T z = 0, shift = 0;  // of softmax: its sum and out are divided by exp(shift), and shift is never below zero
      for (int edge = first; edge < last; ++edge) {
        call.fetch_ahead(edge, last, key_head);
        const T f = call.envelope ? call.envelope[edge] : T(1);
        T s = call.scale * dot(q, call.key(edge, key_head), d);
        if (normalise == kSoftmax) {
          if (call.envelope) s += logarithm(f);  // of zero: minus infinity, whose exponential is zero
          if (s > shift) {
            const T shrink = exponential(shift - s);
            shift = s;
            z *= shrink;
            multiply(out, shrink, dv);
          }
          s = exponential(s - shift);
          z += s;
        } else {
          s *= f;
          z += s * s;
        }
        add(out, s, call.value(edge, key_head), dv);
      }
      if (normalise == kPlain) continue;
      T norm, inverse;
      if (normalise == kUnitLength) {
        norm = root(z + call.eps);
        inverse = norm == 0 ? T(0) : 1 / norm;
      } else {
        z += call.eps * exponential(-shift);
        inverse = z == 0 ? T(0) : 1 / z;
        norm = z == 0 ? -logarithm(T(0)) : shift + logarithm(z);  // of nothing: infinity, every weight is then zero
      }
      multiply(out, inverse, dv);
      static_cast<T*>(a.norm)[row] = norm;
    }
  }
}

/// As the kernel of this name in kernels/graph_rows.cu.
template <typename T>
void row_gradients(const GraphArguments& a, int d, int dv, int normalise, int begin, int end) {
  const Call<T> call{a, d, dv};
  for (int receiver = begin; receiver < end; ++receiver) {
    const int first = a.rows.row_ptr[receiver], last = a.rows.row_ptr[receiver + 1];
    for (int head = 0; head < a.heads; ++head) {
      const int key_head = head / (a.heads / a.key_heads);
      const int64_t row = static_cast<int64_t>(receiver) * a.heads + head;
      const T* q = call.q + row * d;
      const T* grad = static_cast<const T*>(a.grad) + row * dv;
      T* grad_q = static_cast<T*>(a.grad_q) + row * d;
      for (int i = 0; i < d; ++i) grad_q[i] = 0;
      T c = 0, norm = 0, inverse = 1;
      if (normalise != kPlain) {
        c = dot(grad, static_cast<const T*>(a.out) + row * dv, dv);
        norm = static_cast<const T*>(a.norm)[row];
        inverse = norm == 0 ? T(0) : 1 / norm;
      }
      for (int edge = first; edge < last; ++edge) {
        call.fetch_ahead(edge, last, key_head);
        const T f = call.envelope ? call.envelope[edge] : T(1);
        const T s = call.scale * dot(q, call.key(edge, key_head), d), t = dot(grad, call.value(edge, key_head), dv);
        T weight, slope, of_envelope;
        if (normalise == kSoftmax) {
          const T each = exponential(s - norm);
          // An edge that the envelope all but hides may have a score far above the logarithm of the sum: exp overflows.
          weight = s - norm > 80 ? exponential(s + logarithm(f) - norm) : f * each;
          of_envelope = each * (t - c);
          slope = weight * (t - c);
        } else {
          weight = f * s * inverse;
          const T of_score = (t - c * weight) * inverse;
          of_envelope = s * of_score;
          slope = f * of_score;
        }
        add(grad_q, call.scale * slope, call.key(edge, key_head), d);
        const int64_t to = static_cast<int64_t>(edge) * a.heads + head;
        static_cast<T*>(a.weights)[to] = weight;
        static_cast<T*>(a.slopes)[to] = call.scale * slope;
        if (a.grad_envelope) static_cast<T*>(a.grad_envelope)[to] = of_envelope;
      }
    }
  }
}

template <typename T>
void dots(const EdgeDotArguments& a, int columns, int begin, int end) {
  const T *x = static_cast<const T*>(a.a), *y = static_cast<const T*>(a.b);
  for (int receiver = begin; receiver < end; ++receiver) {
    for (int edge = a.rows.row_ptr[receiver]; edge < a.rows.row_ptr[receiver + 1]; ++edge) {
      const T* row = y + static_cast<int64_t>(a.rows.senders[edge]) * a.key_heads * columns;
      for (int head = 0; head < a.heads; ++head) {
        static_cast<T*>(a.dots)[static_cast<int64_t>(edge) * a.heads + head] =
            dot(x + (static_cast<int64_t>(receiver) * a.heads + head) * columns,
                row + head / (a.heads / a.key_heads) * columns, columns);
      }
    }
  }
}

template <typename T>
void sums(const EdgeSumArguments& a, int columns, int begin, int end) {
  const T *x = static_cast<const T*>(a.x), *y = static_cast<const T*>(a.y);
  const T *first = static_cast<const T*>(a.a), *second = static_cast<const T*>(a.b);
  const int weight_heads = a.heads > a.source_heads ? a.heads : a.source_heads, shared = weight_heads / a.heads;
  for (int list = begin; list < end; ++list) {
    T* out = static_cast<T*>(a.out) + static_cast<int64_t>(list) * a.heads * columns;
    for (int64_t at = 0; at < static_cast<int64_t>(a.heads) * columns; ++at) out[at] = 0;
    for (int entry = a.ptr[list]; entry < a.ptr[list + 1]; ++entry) {
      const int64_t edge = a.edges ? a.edges[entry] : entry;
      const int64_t row = static_cast<int64_t>(a.nodes[entry]) * a.source_heads;
      for (int head = 0; head < weight_heads; ++head) {
        const int64_t source = (row + head / (weight_heads / a.source_heads)) * columns;
        T* to = out + head / shared * columns;
        add(to, first[edge * weight_heads + head], x + source, columns);
        if (second) add(to, second[edge * weight_heads + head], y + source, columns);
      }
    }
  }
}

}  // namespace

extern const AllGraphLoops CLEBSCH_LOOPS;
const AllGraphLoops CLEBSCH_LOOPS{{rows<float>, row_gradients<float>, dots<float>, sums<float>},
                                  {rows<double>, row_gradients<double>, dots<double>, sums<double>}};

}  // namespace clebsch::attention
