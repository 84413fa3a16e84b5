#pragma once
// Arguments of the fused 16-bit kernels of the backward pass, for the host and for kernels; gradients.cuh says how they
// see rows and weights.
#include "multilinear/triangle/kernels/triangle.h"

namespace clebsch::triangle {

constexpr int kGradientWarps = 8, kGradientThreads = 32 * kGradientWarps;
/// Rows of a warp's tile.
constexpr int kGradientRows = 16;
/// Groups of 32 channels of a tile that are on their way at once (input_gradients.cu).
constexpr int kGradientRing = 4;

constexpr int kMostOfHopper = 227 * 1024;  ///< bytes of shared memory that a block can have, of what warpgroups need

/// Bytes of shared memory of a block of output_gradients: images of g_out and p_out, two tiles of o a warp, sums; for
/// warpgroups also a tile of x and one of the gradient a warp (`ahead`), where they fit beside the others.
CLEBSCH_BOTH constexpr int output_gradients_bytes(int d, int hidden, int out, bool ahead) {
  const int images = out * (d + hidden) * 2, planes = 2 * hidden * kGradientRows * 2, sums = 2 * out * 4;
  return 1024 + images + kGradientWarps * (planes + sums + (ahead ? kGradientRows * (d + out) * 2 : 0));
}
CLEBSCH_BOTH constexpr bool output_takes_rows_ahead(int d, int hidden, int out, int bytes_of_x) {
  return bytes_of_x == 2 && output_gradients_bytes(d, hidden, out, true) <= kMostOfHopper;
}

/// The same of input_gradients: the image of p_in, g_in and g_out, groups of 32 channels on their way, sums; `ahead`: a
/// tile of x a warp, and fewer groups.
CLEBSCH_BOTH constexpr int groups_on_their_way(int hidden, bool ahead) {
  return ahead ? 2 : 2 * hidden / 32 < kGradientRing ? 2 * hidden / 32 : kGradientRing;
}
CLEBSCH_BOTH constexpr int input_gradients_bytes(int d, int hidden, int out, bool ahead) {
  const int image = (4 * hidden + out) * d * 2, ring = groups_on_their_way(hidden, ahead) * 32 * kGradientRows * 2;
  return 1024 + image + kGradientWarps * (ring + 4 * hidden * 4 + (ahead ? kGradientRows * d * 2 : 0));
}
CLEBSCH_BOTH constexpr bool input_takes_rows_ahead(int d, int hidden, int out, int bytes_of_x) {
  return bytes_of_x == 2 && input_gradients_bytes(d, hidden, out, true) <= kMostOfHopper;
}

/// Kernels for d, hidden and out of 128 by three warpgroups, 64 rows each at a time, with their shared memory in bytes.
constexpr int kThreeGroups = 3, kThreeThreads = 128 * kThreeGroups, kThreeWarps = 4 * kThreeGroups;
/// Of input_gradients_three.cu: the image, of every warpgroup 64 rows of 5 times 32 channels, biases.
constexpr int kInputThreeBytes = 1024 + 640 * 128 * 2 + kThreeGroups * 5 * 32 * 64 * 2 + 384 * 4;
/// Of output_gradients_three.cu: three warpgroups make gradients, a fourth sums. Images of g_out and p_out, of every
/// warpgroup a tile of o, of x and of the gradient, ones, biases, a few numbers of every row.
constexpr int kOutputThreads = kThreeThreads + 128;
constexpr int kOutputThreeBytes =
    1024 + 2 * 128 * 128 * 2 + kThreeGroups * 3 * 64 * 128 * 2 + 1024 + 2 * 128 * 4 + kThreeWarps * (64 + 64);
/// Of weight_gradients_three.cu: three warpgroups a block, which has all channels of left or right; 26 blocks of 64
/// rows and columns, barriers.
constexpr int kWeightThreads = 384, kWeightThreeBytes = 1024 + 26 * 64 * 64 * 2 + 256;
static_assert(kInputThreeBytes <= kMostOfHopper && kOutputThreeBytes <= kMostOfHopper &&
                  kWeightThreeBytes <= kMostOfHopper,
              "weights and what is on its way");

struct GradientArguments {
  Shape shape;
  Weights weights;
  int weights_number = kFloat32;
  float eps = 0, eps_of_o = 0;        ///< of the norms of x and of o as it is stored
  float left_scale = 1;               ///< of left as it is stored
  long long first_row = 0, rows = 0;  ///< the chunk: multiples of kGradientRows
  const void* x = nullptr;
  const void* mask = nullptr;
  const void* o = nullptr;  ///< (batch, hidden, n, n), as the next three: n is a multiple of 8
  void* grad_o = nullptr;
  const void *left = nullptr, *right = nullptr;  ///< (batch, hidden, n, n) as the forward pass has stored them
  const void *grad_left = nullptr, *grad_right = nullptr;
  const void* grad = nullptr;
  const float* grad_scale = nullptr;  ///< what gradients are multiplied by, and its inverse; null: 1
  void* grad_gates = nullptr;         ///< (all rows, out)
  // What output_gradients_three.cu stores of x; else null.
  void* x_rows = nullptr;      ///< (all rows, d): (x - mean) / deviation
  float* x_inverse = nullptr;  ///< (all rows): 1 / deviation
  void* grad_x = nullptr;
  float* grad_mask = nullptr;
  /// Sums over rows of gradients beside normalised rows of x, parts as RowProduct has them: (parts, 4 hidden, d), one a
  /// group of blocks, and (parts, out, d), two a block of what is stored, with neighbouring columns swapped; the same
  /// beside rows of o, (parts, out, hidden), one a block of output_gradients_three.cu.
  float *input_parts = nullptr, *gate_parts = nullptr, *output_parts = nullptr;
  // Of the chunk, with neighbouring columns swapped (store_eight); null for kernels by three warpgroups:
  void* x_normal = nullptr;          ///< (rows, d): (x - mean) / deviation
  void* o_normal = nullptr;          ///< (rows, hidden)
  void* grad_projected = nullptr;    ///< (rows, out)
  void* grad_projections = nullptr;  ///< (rows, 4 hidden)
  // Weights as the kernels have them in shared memory, with the weights of the norms in them, and their biases.
  void* input_image = nullptr;   ///< (4 hidden + out, d): p_in, g_in, g_out
  void* output_image = nullptr;  ///< (out, hidden): p_out
  float* input_bias = nullptr;   ///< (4 hidden + out)
  float* output_bias = nullptr;  ///< (out)
  // Sums over rows, a slot a block, set by the first chunk.
  float* output_slots = nullptr;     ///< (blocks, 2 out): of grad_projected, grad_gates
  float* projected_slots = nullptr;  ///< the same, of output_gradients_three.cu, of which the first half is set
  float* input_slots = nullptr;      ///< (blocks, 4 hidden): of grad_projections
  int weight_groups = 0;             ///< of weight_gradients_three.cu: blocks of left, and of right
  bool first = true;
};

/// Blocks of fold_matrices: of the input's matrices 32 columns of a row a warp of kGradientWarps, of p_out a block.
CLEBSCH_BOTH constexpr int fold_blocks_of_input(int d, int hidden, int out) {
  return (4 * hidden + out) * d / 32 / kGradientWarps;
}
/// Columns of a block of fold_norms: few, since what it waits for are its rows.
constexpr int kFoldColumns = 8;

/// Sums over `count` parts, one after the other.
struct PartsOfSum {
  const float* parts = nullptr;
  int count = 0;
};

/// Sums over rows, of gradients beside normalised rows, to gradients of the weights that the norms' weights are part
/// of.
struct FoldArguments {
  Shape shape;
  Weights weights;
  int weights_number = kFloat32;
  const float* scale = nullptr;       ///< of the results; null: 1
  PartsOfSum input_products;          ///< (4 hidden, d)
  PartsOfSum gate_products;           ///< (out, d)
  PartsOfSum output_products;         ///< (out, hidden)
  PartsOfSum input_sums;              ///< (4 hidden)
  PartsOfSum output_sums, gate_sums;  ///< (2 out): of what is projected; of the gates, the second half
  // What fold_matrices leaves to fold_norms: products and sums of the rows of p_in, g_in, g_out (d columns), then p_out
  // (hidden columns).
  float *products = nullptr, *sums = nullptr;
  bool beside = false;              ///< fold_norms runs beside input_gradients_three.cu
  int gradients_number = kFloat32;  ///< type of what follows, null where not wanted
  void *norm_in_weight = nullptr, *norm_in_bias = nullptr, *p_in_weight = nullptr, *p_in_bias = nullptr,
       *g_in_weight = nullptr, *g_in_bias = nullptr, *norm_out_weight = nullptr, *norm_out_bias = nullptr,
       *p_out_weight = nullptr, *p_out_bias = nullptr, *g_out_weight = nullptr, *g_out_bias = nullptr;
};

}  // namespace clebsch::triangle
