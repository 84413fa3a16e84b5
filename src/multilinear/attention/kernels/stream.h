#pragma once
// Attention that streams over keys: arguments of its kernels, for the device and for the launchers, and how a score
// becomes a weight and a gradient, for them and for the CPU.
#include "multilinear/attention/kernels/attention.h"

namespace clebsch::attention {

/// How weights are normalised: by their L2 norm, or softmax.
constexpr int kL2 = 0, kSoftmax = 1;
/// Types of a mask: none, bytes of 0 and 1, numbers as q.
constexpr int kNoMask = 0, kBoolMask = 1, kNumberMask = 2;

/// A number for every pair (sequence, head, query, key); strides in numbers, 0 where it is the same for all. With
/// offsets there is one sequence, and rows count the whole tensor.
struct Pairs {
  const void* data = nullptr;
  long long of_sequence = 0, of_head = 0, of_query = 0, of_key = 0;
};

/// A gradient of a bias: contiguous (sequences, heads, queries, keys), where `sizes` are 1 or those of all pairs.
struct PairGradient {
  void* data = nullptr;
  long long sizes[4] = {};
};

struct StreamArguments {
  Shape shape;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* multiplicity = nullptr;  ///< (sequences, keys), or with offsets (keys); null: ones
  Pairs mask, bias;
  double eps = 0;
  double scale = 1;      ///< of scores
  void* out = nullptr;   ///< (sequences, heads, queries, dv)
  void* norm = nullptr;  ///< (sequences, heads, queries), double for doubles, else float: PairRow's
  // Backward:
  const void* grad = nullptr;       ///< of out
  const void* grad_norm = nullptr;  ///< as norm; null: zeros
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  void* grad_multiplicity = nullptr;  ///< as norm, a key head's part, (key rows); null: not wanted
  PairGradient grad_bias;             ///< as the numbers; null: not wanted
  // On a device:
  double* coefficients = nullptr;  ///< (query rows, 2): PairRow, in double precision
  float* half_rows = nullptr;      ///< (query rows, 4): PairRow, 1 / norm or 1, bound of its gradients of scores
  unsigned* bounds = nullptr;      ///< (sequences, key heads, 4): bits of the largest |m k|, |v|, |m| and bound of rows
  const float* largest = nullptr;  ///< (2): largest |mask| and |bias|; null: 1 and 0
  int parts = 1;                   ///< blocks of a head
  int vectors = 0;  ///< 1: eight keys of a mask and of a bias are read at once: contiguous, aligned, in or out
                    ///< together; 2: sixteen of a mask of bytes
};

/// What the gradients of a row of weights need: L2: c = 1 / norm, b = h norm - g.out, with gradients g of out and h of
/// norm, both 0 where the norm is 0; softmax: c = norm, the logarithm of the sum of exponentials, b = h - g.out.
template <typename Real>
struct PairRow {
  Real c, b;

  static CLEBSCH_BOTH inline PairRow of(int normalise, Real norm, Real of_norm, Real of_out) {
    // Without a key that is seen the logarithm is -infinity; exp(x - c) is then 0.
    if (normalise == kSoftmax) return {norm < Real(-3e38) ? Real(3e38) : norm, of_norm - of_out};
    if (norm == Real(0)) return {Real(0), Real(0)};
    return {Real(1) / norm, of_norm * norm - of_out};
  }
};

/// Of a pair with x = scale m q.k + bias: the weight u that multiplies v in out, and the gradient of x, without the
/// factor c of L2 norms, from t = g.v and f = x (L2) or exp(x - c) (softmax):
///   L2: u = mask x c, dx = c mask (t + b u);   softmax: u = f where the mask is, dx = u (t + b).
template <typename Real>
struct PairGradients {
  Real u, dx;

  static CLEBSCH_BOTH inline PairGradients of(int normalise, PairRow<Real> row, Real f, Real mask, Real t) {
    if (normalise == kSoftmax) {
      const Real u = mask == Real(0) ? Real(0) : f;
      return {u, u * (t + row.b)};
    }
    const Real u = mask * f * row.c;
    return {u, mask * (t + row.b * u)};
  }
};

/// The factor that PairGradients leaves out.
template <typename Real>
CLEBSCH_BOTH inline Real row_factor(int normalise, PairRow<Real> row) {
  return normalise == kSoftmax ? Real(1) : row.c;
}

}  // namespace clebsch::attention
