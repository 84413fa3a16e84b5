#pragma once
// What the triangle multiplicative update is made of: sizes, weights and number types, for the host and for kernels.
//
// With x (batch, n, n, d), M = batch n^2 rows, and norms over the last dimension (weight and bias, variance + eps):
//   xn = norm(x);   [left | right] = mask (xn p_in^T + b) sigmoid(xn g_in^T + b)     (rows of p_in and g_in: left
//   first) o[i, j, h] = sum_k left[i, k, h] right[j, k, h] (outgoing), sum_k left[k, i, h] right[k, j, h] (incoming)
//   gate = sigmoid(xn g_out^T + b)
//   out = (norm(o) p_out^T + b) gate    gate after the projection: AlphaFold, OpenFold, Boltz, cuEquivariance
//   out = (norm(o) gate) p_out^T + b    gate before the projection, of width hidden

#if defined(__CUDACC__)
#define CLEBSCH_BOTH __host__ __device__
#else
#define CLEBSCH_BOTH
#endif

namespace clebsch::triangle {

/// Number types of tensors.
constexpr int kFloat64 = 0, kFloat32 = 1, kFloat16 = 2, kBfloat16 = 3;

/// How products are computed, whatever the tensors' types: in double precision, in 32 bits, with operands rounded to
/// TF32, with operands as two TF32 terms, with operands rounded to 16 bits. Sums are in 32 bits or more.
constexpr int kDouble = 0, kIeee = 1, kTf32 = 2, kTf32x3 = 3, kHalf = 4, kBrain = 5;

/// What a mask is made of: no mask, bytes (0: masked), numbers (doubles for kDouble, else floats). An entry of 0
/// selects 0, whatever is behind it.
constexpr int kNoMask = 0, kByteMask = 1, kNumberMask = 2;

/// Type in which left, right and o are stored: what products take.
CLEBSCH_BOTH constexpr int operand_number(int precision) {
  return precision == kDouble ? kFloat64 : precision == kHalf ? kFloat16 : precision == kBrain ? kBfloat16 : kFloat32;
}

/// Elements from one row of left, right or o (batch, hidden, n, n) to the next: whole vectors of 16 bytes.
CLEBSCH_BOTH constexpr long long pitch_of(int precision, long long n) {
  const int number = operand_number(precision), vector = number == kFloat64 ? 2 : number == kFloat32 ? 4 : 8;
  return (n + vector - 1) / vector * vector;
}

/// Elements beyond right's last that may be read, whatever they are: lines from n up to the pitch.
CLEBSCH_BOTH constexpr long long slack_of(int precision, long long n) {
  const long long pitch = pitch_of(precision, n);
  return (pitch - n) * pitch;
}

/// Left, and o with it, is stored times 2^-left_exponent: ceil(log2(n) / 2) in fp16, whose sums over n would overflow,
/// else 0. The norm of o forgets it with eps 4^-left_exponent.
CLEBSCH_BOTH constexpr int left_exponent(int precision, long long n) {
  int exponent = 0;
  if (precision != kHalf) return exponent;
  for (long long square = 1; square < n; square *= 4) ++exponent;
  return exponent;
}

struct Shape {
  long long batch = 0, n = 0;
  int d = 0, hidden = 0, out = 0;  ///< widths of x, of left and right, of the result
  bool incoming = false;
  bool gate_before = false;  ///< of the projection; g_out has then `hidden` rows, else `out`
};

/// Contiguous matrices (rows, columns) and vectors; null biases are zeros, null norm weights ones.
struct Weights {
  const void* norm_in_weight = nullptr;   ///< (d)
  const void* norm_in_bias = nullptr;     ///< (d)
  const void* p_in_weight = nullptr;      ///< (2 hidden, d)
  const void* p_in_bias = nullptr;        ///< (2 hidden)
  const void* g_in_weight = nullptr;      ///< (2 hidden, d)
  const void* g_in_bias = nullptr;        ///< (2 hidden)
  const void* norm_out_weight = nullptr;  ///< (hidden)
  const void* norm_out_bias = nullptr;    ///< (hidden)
  const void* p_out_weight = nullptr;     ///< (out, hidden)
  const void* p_out_bias = nullptr;       ///< (out)
  const void* g_out_weight = nullptr;     ///< (out or hidden, d)
  const void* g_out_bias = nullptr;       ///< (out or hidden)
};

}  // namespace clebsch::triangle
