#pragma once
// What the forward and backward passes of the triangle multiplicative update are given, on the CPU and on a device.
#include "multilinear/triangle/kernels/triangle.h"

namespace clebsch::triangle {

/// Where gradients go. Null: not wanted. Those of weights are laid out as in Weights: on the CPU doubles for kDouble,
/// else floats, whatever the tensors' type; on a device of the type that Arguments says.
struct Gradients {
  void* x = nullptr;     ///< as x
  void* mask = nullptr;  ///< (batch, n, n) for masks of numbers, as the mask
  void* norm_in_weight = nullptr;
  void* norm_in_bias = nullptr;
  void* p_in_weight = nullptr;
  void* p_in_bias = nullptr;
  void* g_in_weight = nullptr;
  void* g_in_bias = nullptr;
  void* norm_out_weight = nullptr;
  void* norm_out_bias = nullptr;
  void* p_out_weight = nullptr;
  void* p_out_bias = nullptr;
  void* g_out_weight = nullptr;
  void* g_out_bias = nullptr;
};

/// Tensors of a call, all contiguous; batch, n and widths are 1 or more. batch n^2 times a width may pass 2^31.
struct Arguments {
  Shape shape;
  Weights weights;
  int weights_number = kFloat32;  ///< type of all of them
  int number = kFloat32;          ///< type of x, out, grad and the gradient of x
  int precision = kIeee;          ///< kDouble with kFloat64, and only there
  double eps = 1e-5;              ///< of both norms
  const void* x = nullptr;        ///< (batch, n, n, d)
  int mask_kind = kNoMask;
  const void* mask = nullptr;  ///< (batch, n, n)
  void* out = nullptr;         ///< (batch, n, n, out); forward
  /// Kept for the backward pass: (batch, hidden, n, pitch_of(precision, n)) of the precision's operand type; nobody
  /// reads columns from n on. left and o are scaled (left_exponent).
  /// A forward pass that keeps nothing has `keep` false. A null pointer is then memory that device_forward allocates,
  /// and left (right too, where there is room) may be the memory of `out`: device_forward writes out after it has read
  /// them for the last time.
  bool keep = false;
  void* left = nullptr;
  void* right = nullptr;  ///< followed by slack_of() numbers
  void* o = nullptr;
  // Backward:
  const void* grad = nullptr;  ///< of out
  Gradients gradients;
  int gradients_number = kFloat32;  ///< type of those of weights on a device; kDouble has kFloat64 alone
};

}  // namespace clebsch::triangle
