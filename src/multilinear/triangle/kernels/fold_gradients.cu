// Before and after the fused backward kernels: images of weights, and gradients of weights from products with
// normalised rows. With xn = x' w + b (x' normalised) a projection is x' (W diag(w))^T + (W b + bias): the kernels
// multiply by the former, less its rows' means: rows of x' have a mean of 0. What is multiplied with it the other way,
// the gradient of x', has no mean then either, which the norm's gradient would take off. With P = dz^T x' and s = the
// sums of dz over rows, dW = P diag(w) + s b^T, dw = the sums over rows of W and P's products, db = W^T s.
#include "cuda/kernels/early_start.cuh"
#include "multilinear/triangle/kernels/gradients.cuh"

/// A row of p_in, g_in or g_out, and its bias.
struct InputRow {
  const void *matrix, *bias;
  int row;
  __device__ __forceinline__ InputRow(const Weights& weights, int of_all) {
    matrix = of_all < 2 * kHidden   ? weights.p_in_weight
             : of_all < 4 * kHidden ? weights.g_in_weight
                                    : weights.g_out_weight;
    bias = of_all < 2 * kHidden ? weights.p_in_bias : of_all < 4 * kHidden ? weights.g_in_bias : weights.g_out_bias;
    row = of_all < 2 * kHidden ? of_all : of_all < 4 * kHidden ? of_all - 2 * kHidden : of_all - 4 * kHidden;
  }
};

/// A row of an image by a warp, of weights of one type: reads of an unknown type would come one after the other.
template <typename T>
__device__ __forceinline__ void pack_row(const GradientArguments& a, int row, bool of_input) {
  const int lane = threadIdx.x % 32, channel = column_of(row), columns = of_input ? kD : kHidden;
  const InputRow input(a.weights, of_input ? channel : 0);
  const int of_matrix = of_input ? input.row : channel;
  const T* matrix = static_cast<const T*>(of_input ? input.matrix : a.weights.p_out_weight) + of_matrix * columns;
  const T* norm = static_cast<const T*>(of_input ? a.weights.norm_in_weight : a.weights.norm_out_weight);
  const T* norm_bias = static_cast<const T*>(of_input ? a.weights.norm_in_bias : a.weights.norm_out_bias);
  const T* bias = static_cast<const T*>(of_input ? input.bias : a.weights.p_out_bias);
  operand* image = static_cast<operand*>(of_input ? a.input_image : a.output_image);
  constexpr int kMost = (kD > kHidden ? kD : kHidden) / 32;
  float weights[kMost], factors[kMost], biases[kMost];
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const int column = lane + 32 * k;
    const bool there = column < columns;
    weights[k] = there ? to_real(matrix[column]) : 0.0f;
    factors[k] = there && norm ? to_real(norm[column]) : 1.0f;
    biases[k] = there && norm_bias ? to_real(norm_bias[column]) : 0.0f;
  }
  const float own = bias ? to_real(bias[of_matrix]) : 0.0f;
  float sum = 0, mean = 0;
#pragma unroll
  for (int k = 0; k < kMost; ++k) mean += weights[k] * factors[k];
  mean = sum_of_lanes<32>(mean) / static_cast<float>(columns);
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const int column = lane + 32 * k, place = place_of(column);
    if (column >= columns) break;
    const int vector = of_input ? image_vector<kGradientWidths>(row, place / 8) : image_vector<kOut>(row, place / 8);
    from_real(image[vector * 8 + place % 8], weights[k] * factors[k] - mean);
    sum += weights[k] * biases[k];
  }
  sum = sum_of_lanes<32>(sum);
  if (lane == 0) (of_input ? a.input_bias : a.output_bias)[channel] = sum + own;
}

/// Images, a warp a row.
extern "C" __global__ void __launch_bounds__(kThreads) pack_images(GradientArguments a) {
  start_early();
  int row = static_cast<int>(blockIdx.x) * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const bool of_input = row < kGradientWidths;
  if (!of_input) row -= kGradientWidths;
  if (row >= (of_input ? kGradientWidths : kOut)) return;
  if (a.weights_number == kFloat32) {
    pack_row<float>(a, row, of_input);
  } else if (a.weights_number == kFloat16) {
    pack_row<Half>(a, row, of_input);
  } else {
    pack_row<Brain>(a, row, of_input);
  }
}

/// Of parts first, first + step, ...
__device__ __forceinline__ float sum_of_parts(const PartsOfSum& of, int width, int at, int first = 0, int step = 1) {
  float sum = 0;
#pragma unroll 16
  for (int part = first; part < of.count; part += step) sum += of.parts[static_cast<long long>(part) * width + at];
  return sum;
}
/// The same of one number, by a warp.
__device__ __forceinline__ float sum_of_parts_by_warp(const PartsOfSum& of, int width, int at) {
  float sum = 0;
  for (int part = threadIdx.x % 32; part < of.count; part += 32) {
    sum += of.parts[static_cast<long long>(part) * width + at];
  }
  return sum_of_lanes<32>(sum);
}

/// Sums of parts; gradients of matrices and of their biases: 32 columns of a row a warp, of p_out a block, since there
/// every block of a kernel may have left a part.
extern "C" __global__ void __launch_bounds__(kThreads) fold_matrices(FoldArguments a) {
  constexpr int kWarps = kThreads / 32, kOfInput = fold_blocks_of_input(kD, kHidden, kOut);
  __shared__ float of_warps[kWarps][32];
  const int of_block = threadIdx.x / 32, lane = threadIdx.x % 32, type = a.weights_number;
  const bool of_input = blockIdx.x < kOfInput;
  const int warp =
      of_input ? static_cast<int>(blockIdx.x) * kWarps + of_block : static_cast<int>(blockIdx.x) - kOfInput;
  const int columns = of_input ? kD : kHidden, row = warp / (columns / 32), column = warp % (columns / 32) * 32 + lane;
  const bool of_gates = of_input && row >= 4 * kHidden;
  const InputRow input(a.weights, of_input ? row : 0);
  const int of_matrix = of_input ? input.row : row;
  const void* norm = of_input ? a.weights.norm_in_weight : a.weights.norm_out_weight;
  const void* norm_bias = of_input ? a.weights.norm_in_bias : a.weights.norm_out_bias;
  void* to = !of_input ? a.p_out_weight : of_gates ? a.g_out_weight : row < 2 * kHidden ? a.p_in_weight : a.g_in_weight;
  void* bias = !of_input ? a.p_out_bias : of_gates ? a.g_out_bias : row < 2 * kHidden ? a.p_in_bias : a.g_in_bias;
  const float weight = number_at(norm, type, column, 1), plain = number_at(norm_bias, type, column, 0);
  start_early();  // what is read before are weights
  const float scale = a.scale ? *a.scale : 1.0f;
  // Products of what store_eight<true> wrote have neighbours in each other's place.
  float product =
      !of_input  ? sum_of_parts(a.output_products, kOut * kHidden, (row ^ 1) * kHidden + (column ^ 1), of_block, kWarps)
      : of_gates ? sum_of_parts(a.gate_products, kOut * kD, of_matrix * kD + (column ^ 1))
                 : sum_of_parts(a.input_products, 4 * kHidden * kD, (row ^ 1) * kD + (column ^ 1));
  const float sum = !of_input  ? sum_of_parts_by_warp(a.output_sums, 2 * kOut, row)
                    : of_gates ? sum_of_parts_by_warp(a.gate_sums, 2 * kOut, kOut + of_matrix)
                               : sum_of_parts_by_warp(a.input_sums, 4 * kHidden, row);
  if (!of_input) {
    of_warps[of_block][lane] = product;
    __syncthreads();
    if (of_block > 0) return;
    product = 0;
    for (int other = 0; other < kWarps; ++other) product += of_warps[other][lane];
  }
  const int of_all = of_input ? row : kGradientWidths + row;
  a.products[(of_input ? 0 : kGradientWidths * kD) + row * columns + column] = product;
  if (column == 0) {
    a.sums[of_all] = sum;
    if (bias) set_number(bias, a.gradients_number, of_matrix, scale * sum);
  }
  if (to) set_number(to, a.gradients_number, of_matrix * columns + column, scale * (product * weight + sum * plain));
}

/// Gradients of the norms, of weights of one type.
template <typename T>
__device__ __forceinline__ void fold_columns(const FoldArguments& a, float (&shared)[2][kThreads]) {
  const int lane = threadIdx.x % kFoldColumns, group = threadIdx.x / kFoldColumns;
  const bool of_input = blockIdx.x < kD / kFoldColumns;
  const int column = kFoldColumns * (of_input ? blockIdx.x : blockIdx.x - kD / kFoldColumns) + lane;
  const int rows = of_input ? kGradientWidths : kOut, columns = of_input ? kD : kHidden;
  const float* products = a.products + (of_input ? 0 : kGradientWidths * kD);
  const float* sums = a.sums + (of_input ? 0 : kGradientWidths);
  constexpr int kGroups = kThreads / kFoldColumns,
                kMost = ((kGradientWidths > kOut ? kGradientWidths : kOut) + kGroups - 1) / kGroups;
  float weights[kMost], along = 0, plain = 0;
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const int row = group + k * kGroups;
    if (row >= rows) break;
    const InputRow input(a.weights, of_input ? row : 0);
    const T* matrix = static_cast<const T*>(of_input ? input.matrix : a.weights.p_out_weight);
    weights[k] = to_real(matrix[(of_input ? input.row : row) * columns + column]);
  }
  if (!a.beside) start_early();  // what is read before are weights
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const int row = group + k * kGroups;
    if (row >= rows) break;
    along += weights[k] * products[row * columns + column];
    plain += weights[k] * sums[row];
  }
  shared[0][threadIdx.x] = along;
  shared[1][threadIdx.x] = plain;
  __syncthreads();
  if (group != 0) return;
  for (int other = 1; other < kThreads / kFoldColumns; ++other) {
    along += shared[0][other * kFoldColumns + lane];
    plain += shared[1][other * kFoldColumns + lane];
  }
  const float scale = a.scale ? *a.scale : 1.0f;
  void* weight = of_input ? a.norm_in_weight : a.norm_out_weight;
  void* bias = of_input ? a.norm_in_bias : a.norm_out_bias;
  if (weight) set_number(weight, a.gradients_number, column, scale * along);
  if (bias) set_number(bias, a.gradients_number, column, scale * plain);
}

/// Gradients of the norms: kFoldColumns columns a block, of d and then of hidden; groups of as many lanes take rows in
/// turn. Beside input_gradients_three.cu, which lets it begin when fold_matrices is done, it runs on multiprocessors
/// that were left free, and writes what that kernel neither reads nor writes. Its first block then ends no earlier than
/// that kernel, for whose end nobody else waits.
extern "C" __global__ void __launch_bounds__(kThreads) fold_norms(FoldArguments a) {
  __shared__ float shared[2][kThreads];
  if (a.weights_number == kFloat32) {
    fold_columns<float>(a, shared);
  } else if (a.weights_number == kFloat16) {
    fold_columns<Half>(a, shared);
  } else {
    fold_columns<Brain>(a, shared);
  }
  if (a.beside && blockIdx.x == 0) await_kernel_before();
}
