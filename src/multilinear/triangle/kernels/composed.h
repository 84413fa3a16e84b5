#pragma once
// What the kernels of the composed passes (composed_*.cu, device_composed.cpp, device_backward.cpp) are given.
//
// They work on a chunk of lines: a line is n adjacent rows of x, those of one (batch, i). Tensors of a chunk begin at
// its first row; x, out, grad, mask and their gradients, left, right, o and their gradients are whole. `real` is double
// for kDouble, else float. Operands are what products take (operand_number); stored numbers likewise.
#include "multilinear/triangle/kernels/triangle.h"

namespace clebsch::triangle {

/// An operand of products; of kTf32x3 the two TF32 terms of a float, else `low` is null.
struct Operand {
  void* high = nullptr;
  void* low = nullptr;
};

/// Weights as kernels and products read them.
struct PackedWeights {
  Operand input;   ///< (4 hidden + gate, d): p_in, g_in, g_out
  Operand output;  ///< (out, hidden): p_out
  // real:
  void* norm_in = nullptr;   ///< weight (d), bias (d)
  void* bias_in = nullptr;   ///< (4 hidden + gate)
  void* norm_out = nullptr;  ///< weight (hidden), bias (hidden)
  void* bias_out = nullptr;  ///< (out)
};

struct PackArguments {
  Shape shape;
  Weights weights;
  int number = kFloat32;  ///< of the weights
  PackedWeights packed;
};

/// A block's sums over the rows that it took: `slots` holds (blocks, columns) of real, set in the first chunk and added
/// to in the others. Null: not wanted.
struct ColumnSums {
  void* slots = nullptr;
  bool first = true;
};

struct ComposedArguments {
  Shape shape;
  long long pitch = 0;                  ///< of left, right and o
  double eps_in = 0, eps_out = 0;       ///< of the norms of x and of o as it is stored
  double left_scale = 1;                ///< of left as it is stored
  long long first_line = 0, lines = 0;  ///< the chunk
  PackedWeights weights;
  const void* x = nullptr;
  const void* mask = nullptr;
  void *left = nullptr, *right = nullptr;
  const void* o = nullptr;
  void* out = nullptr;
  // Of the chunk:
  Operand xn;                   ///< (rows, d): the norm of x
  void* statistics = nullptr;   ///< (rows, 2) real: mean of x, 1 / deviation
  void* projections = nullptr;  ///< (rows, 4 hidden) stored: xn times p_in and g_in, without biases
  void* gates = nullptr;        ///< (rows, gate) stored: xn times g_out
  Operand on;                   ///< (rows, hidden): the norm of o, with gate_before times the gate
  void* projected = nullptr;    ///< (rows, out) stored: on times p_out
  // Backward:
  const void* grad = nullptr;
  const void* grad_scale = nullptr;  ///< two floats: what gradients are multiplied by, and its inverse; null: 1
  Operand grad_projected;            ///< (rows, out), of the product with p_out
  void* grad_on = nullptr;           ///< (rows, hidden) stored: of `on`
  Operand grad_gates;                ///< (all rows, gate)
  Operand grad_o;                    ///< as o
  const void *grad_left = nullptr, *grad_right = nullptr;  ///< as left and right, stored numbers
  Operand grad_projections;                                ///< (rows, 4 hidden)
  const void* grad_xn = nullptr;                           ///< (rows, d) stored
  void* grad_x = nullptr;
  void* grad_mask_parts = nullptr;  ///< (tiles of channels, rows) real
  void* grad_mask = nullptr;
  ColumnSums output_sums;    ///< (out + gate): of grad_projected, grad_gates; with gate_before (out)
  ColumnSums norm_out_sums;  ///< (2 hidden), with gate_before (3 hidden): weight and bias of the norm of o, grad_gates
  ColumnSums projection_sums;  ///< (4 hidden): of grad_projections
  ColumnSums norm_in_sums;     ///< (2 d)
};

/// parts (count, columns) real, summed over the parts in a fixed order, times *scale (null: 1).
struct SumTask {
  const void* parts = nullptr;
  long long count = 0, columns = 0;  ///< columns of a part
  long long first = 0;               ///< column of the first sum
  long long wanted = 0;              ///< sums to make
  const void* scale = nullptr;
  void* out = nullptr;        ///< (wanted)
  int number = kFloat32;      ///< type of out
  long long first_block = 0;  ///< of the launch; a block makes kSumsOfBlock sums
};
constexpr int kMostSums = 12, kSumsOfBlock = 32;

/// Sums of one launch.
struct SumArguments {
  SumTask tasks[kMostSums];
  int count = 0;
};

/// Floats (count) to their two TF32 terms.
struct SplitArguments {
  const void* from = nullptr;
  Operand to;
  long long count = 0;
};

/// The power of two that brings the largest of |grad| to 1 .. 2.
struct ScaleArguments {
  const void* grad = nullptr;
  long long count = 0;
  float* parts = nullptr;  ///< one a block
  int blocks = 0;
  float* scale = nullptr;  ///< the power and its inverse
};

constexpr int kComposedThreads = 256;
/// Adjacent rows of a line that a block turns to channels first at a time.
constexpr int kTurnedRows = 64;

}  // namespace clebsch::triangle
