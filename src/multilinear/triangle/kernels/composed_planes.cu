// Channels first and channels last, for the composed passes: left and right from their projections, rows of o, and the
// gradients of both. A block takes up to kTurnedRows adjacent rows of a line at a time and turns them in shared memory.
#include "multilinear/triangle/kernels/composed.cuh"

/// Numbers (kChannels, kRows) in shared memory, eight adjacent rows of a channel in their order; the blocks of eight
/// are permuted so that both ways through it are free of bank conflicts for 16-bit numbers.
template <typename T, int kChannels, int kRows>
struct Turned {
  static constexpr int kBlocks = kRows / 8;
  __device__ __forceinline__ static int place(int channel, int row) {
    return channel * kRows + ((row / 8 ^ channel / 8) & (kBlocks - 1)) * 8 + row % 8;
  }
};

constexpr int kTurnedChannels = 2 * kHidden % 64 == 0 ? 64 : 32;  // of left and right
/// Rows of o at a time, of which all channels are in shared memory.
CLEBSCH_BOTH constexpr int rows_of_o(int bytes, int rows = kTurnedRows) {
  return rows == 8 || rows * bytes * kHidden <= 32768 ? rows : rows_of_o(bytes, rows / 2);
}
constexpr int kRowsOfO = rows_of_o(sizeof(operand));

struct Place {
  long long line;   // of all lines
  long long batch;  // line = batch n + i
  long long i;
  long long first;  // j of the first row
  int rows;
  __device__ __forceinline__ Place(const ComposedArguments& a, long long tile, int tile_rows) {
    const long long tiles = (a.shape.n + tile_rows - 1) / tile_rows;
    line = a.first_line + tile / tiles;
    batch = line / a.shape.n;
    i = line % a.shape.n;
    first = tile % tiles * tile_rows;
    rows = static_cast<int>(min(static_cast<long long>(tile_rows), a.shape.n - first));
  }
  /// In a tensor of the chunk.
  __device__ __forceinline__ long long row(const ComposedArguments& a, int r) const {
    return (line - a.first_line) * a.shape.n + first + r;
  }
  /// In left, right, o: of the first row.
  __device__ __forceinline__ long long plane(const ComposedArguments& a, int channel) const {
    return ((batch * kHidden + channel) * a.shape.n + i) * a.pitch + first;
  }
};

/// Grid: tiles of rows x tiles of channels of left and right. Projections to left and right.
extern "C" __global__ void __launch_bounds__(kThreads) composed_gate(ComposedArguments a) {
  __shared__ __align__(16) operand shared[kTurnedChannels * kTurnedRows];
  using Tile = Turned<operand, kTurnedChannels, kTurnedRows>;
  constexpr int kVectors = kTurnedChannels / 8;
  const Place place(a, blockIdx.x, kTurnedRows);
  const int channels = blockIdx.y * kTurnedChannels;
  const real* bias = static_cast<const real*>(a.weights.bias_in);
  for (int at = threadIdx.x; at < kTurnedRows * kVectors; at += kThreads) {
    const int r = at / kVectors, channel = at % kVectors * 8, column = channels + channel;
    if (r >= place.rows) continue;
    const long long row = place.row(a, r);
    const operand* from = static_cast<const operand*>(a.projections) + row * 4 * kHidden + column;
    const real mask = mask_at(a.mask, place.line * a.shape.n + place.first + r);
    const real scale = column < kHidden ? mask * static_cast<real>(a.left_scale) : mask;
    real x[8], gate[8], x_bias[8], gate_bias[8];
    load8(from, x);
    load8(from + 2 * kHidden, gate);
    load8(bias + column, x_bias);
    load8(bias + 2 * kHidden + column, gate_bias);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const real value = (x[e] + x_bias[e]) * sigmoid(gate[e] + gate_bias[e]) * scale;
      from_real(shared[Tile::place(channel + e, r)], mask == 0 ? real(0) : value);
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < kTurnedChannels * (kTurnedRows / 8); at += kThreads) {
    const int channel = at / (kTurnedRows / 8), r = at % (kTurnedRows / 8) * 8, column = channels + channel;
    if (r >= place.rows) continue;
    operand* to = static_cast<operand*>(column < kHidden ? a.left : a.right) + place.plane(a, column % kHidden) + r;
    const operand* from = shared + Tile::place(channel, r);
    if (r + 8 <= place.rows) {
      real x[8];
      load8(from, x);
      store8(to, x);
    } else {
      for (int e = 0; e < place.rows - r; ++e) to[e] = from[e];
    }
  }
}

/// Rows of a tensor like o to shared memory. The last block of eight rows may go beyond the line: into padding or what
/// follows, never beyond the tensor.
template <typename T, int kChannels, int kRows>
__device__ __forceinline__ void load_planes(T* shared, const T* from, const Place& place, long long plane_size) {
  for (int at = threadIdx.x; at < kChannels * (kRows / 8); at += kThreads) {
    const int channel = at / (kRows / 8), r = at % (kRows / 8) * 8;
    if (r >= place.rows) continue;
    T* to = shared + Turned<T, kChannels, kRows>::place(channel, r);
    const T* source = from + channel * plane_size + r;
    if (r + 8 <= place.rows) {
      real x[8];
      load8(source, x);
      store8(to, x);
    } else {
      for (int e = 0; e < place.rows - r; ++e) to[e] = source[e];
    }
  }
}

constexpr int kLanesH = lanes_of(kHidden), kVectorsH = (kHidden / 8 + kLanesH - 1) / kLanesH;

/// A row of o in shared memory as the lanes of a group hold it: less its mean, and 1 / deviation. Zeros where it is not
/// `there`: another group may be writing that row.
struct RowOfO {
  real x[kVectorsH][8], inverse;
  __device__ __forceinline__ RowOfO(const ComposedArguments& a, const operand* shared, int r, bool there) {
    using Tile = Turned<operand, kHidden, kRowsOfO>;
    const int lane = threadIdx.x % kLanesH;
    real sum = 0, squares = 0;
#pragma unroll
    for (int v = 0; v < kVectorsH; ++v) {
      const int channel = 8 * (lane + kLanesH * v);
      if (channel >= kHidden) continue;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x[v][e] = there ? to_real(shared[Tile::place(channel + e, r)]) : real(0);
        sum += x[v][e];
      }
    }
    const real mean = sum_of_lanes<kLanesH>(sum) / kHidden;
#pragma unroll
    for (int v = 0; v < kVectorsH; ++v) {
      if (8 * (lane + kLanesH * v) >= kHidden) continue;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x[v][e] -= mean;
        squares += x[v][e] * x[v][e];
      }
    }
    inverse = rsqrt(sum_of_lanes<kLanesH>(squares) / kHidden + static_cast<real>(a.eps_out));
  }
};

/// Calls work(r, there) for a group's rows of a tile.
template <typename Work>
__device__ __forceinline__ void for_rows_of_o(const Place& place, const Work& work) {
  constexpr int kGroups = kThreads / kLanesH;
  for (int first = 0; first < kRowsOfO; first += kGroups) {
    const int r = first + threadIdx.x / kLanesH;
    // Groups beyond the tile take part in exchanges of their warp.
    work(r < place.rows ? r : place.rows - 1, r < place.rows);
  }
}

/// The norm of o, with the gate before: times the gate.
extern "C" __global__ void __launch_bounds__(kThreads) composed_norm_out(ComposedArguments a) {
  __shared__ __align__(16) operand shared[kHidden * kRowsOfO];
  const Place place(a, blockIdx.x, kRowsOfO);
  load_planes<operand, kHidden, kRowsOfO>(shared, static_cast<const operand*>(a.o) + place.plane(a, 0), place,
                                          a.shape.n * a.pitch);
  __syncthreads();
  const int lane = threadIdx.x % kLanesH;
  const real* weights = static_cast<const real*>(a.weights.norm_out);
  const real* gate_bias = static_cast<const real*>(a.weights.bias_in) + 4 * kHidden;
  for_rows_of_o(place, [&](int r, bool there) {
    RowOfO o(a, shared, r, there);
    if (!there) return;
    const long long row = place.row(a, r);
#pragma unroll
    for (int v = 0; v < kVectorsH; ++v) {
      const int channel = 8 * (lane + kLanesH * v);
      if (channel >= kHidden) continue;
      real weight[8], bias[8];
      load8(weights + channel, weight);
      load8(weights + kHidden + channel, bias);
#pragma unroll
      for (int e = 0; e < 8; ++e) o.x[v][e] = o.x[v][e] * o.inverse * weight[e] + bias[e];
      if constexpr (kGateBefore) {
        real gate[8];
        load8(static_cast<const operand*>(a.gates) + row * kGate + channel, gate);
        load8(gate_bias + channel, bias);
#pragma unroll
        for (int e = 0; e < 8; ++e) o.x[v][e] *= sigmoid(gate[e] + bias[e]);
      }
      store_operand(a.on, row * kHidden + channel, o.x[v]);
    }
  });
}

/// The gradient of `on` to those of o and, with the gate before, of the gate before its sigmoid; column sums for the
/// norm's weight and bias and, with the gate before, the gate's bias.
extern "C" __global__ void __launch_bounds__(kThreads) composed_norm_out_gradients(ComposedArguments a) {
  __shared__ __align__(16) operand shared[kHidden * kRowsOfO];
  __shared__ real sums[kThreads * 8];
  using Tile = Turned<operand, kHidden, kRowsOfO>;
  const long long tiles = a.lines * ((a.shape.n + kRowsOfO - 1) / kRowsOfO);
  const int lane = threadIdx.x % kLanesH;
  const real* weights = static_cast<const real*>(a.weights.norm_out);
  const real* gate_bias = static_cast<const real*>(a.weights.bias_in) + 4 * kHidden;
  real weight_sums[kVectorsH][8] = {}, bias_sums[kVectorsH][8] = {}, gate_sums[kVectorsH][8] = {};
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Place place(a, tile, kRowsOfO);
    load_planes<operand, kHidden, kRowsOfO>(shared, static_cast<const operand*>(a.o) + place.plane(a, 0), place,
                                            a.shape.n * a.pitch);
    __syncthreads();
    for_rows_of_o(place, [&](int r, bool there) {
      RowOfO o(a, shared, r, there);
      const long long row = place.row(a, r);
      real grad[kVectorsH][8], sum = 0, along = 0;
#pragma unroll
      for (int v = 0; v < kVectorsH; ++v) {
        const int channel = 8 * (lane + kLanesH * v);
        if (channel >= kHidden) continue;
        real weight[8], bias[8];
        load8(static_cast<const operand*>(a.grad_on) + row * kHidden + channel, grad[v]);
        load8(weights + channel, weight);
        if constexpr (kGateBefore) {
          real gate[8], grad_gate[8];
          load8(static_cast<const operand*>(a.gates) + row * kGate + channel, gate);
          load8(gate_bias + channel, bias);
#pragma unroll
          for (int e = 0; e < 8; ++e) gate[e] = sigmoid(gate[e] + bias[e]);
          load8(weights + kHidden + channel, bias);
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const real normed = o.x[v][e] * o.inverse * weight[e] + bias[e];
            grad_gate[e] = grad[v][e] == 0 ? real(0) : grad[v][e] * normed * gate[e] * (1 - gate[e]);
            grad[v][e] = grad[v][e] == 0 ? real(0) : grad[v][e] * gate[e];
            if (there) gate_sums[v][e] += grad_gate[e];
          }
          if (there) {
            store_operand(a.grad_gates, (place.line * a.shape.n + place.first + r) * kGate + channel, grad_gate);
          }
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          o.x[v][e] *= o.inverse;
          if (there) {
            weight_sums[v][e] += grad[v][e] * o.x[v][e];
            bias_sums[v][e] += grad[v][e];
          }
          grad[v][e] *= weight[e];
          sum += grad[v][e];
          along += grad[v][e] * o.x[v][e];
        }
      }
      sum = sum_of_lanes<kLanesH>(sum) / kHidden;
      along = sum_of_lanes<kLanesH>(along) / kHidden;
      if (!there) return;
        // In the place of o, which only this group reads.
#pragma unroll
      for (int v = 0; v < kVectorsH; ++v) {
        const int channel = 8 * (lane + kLanesH * v);
        if (channel >= kHidden) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          from_real(shared[Tile::place(channel + e, r)],
                    nearest_finite((grad[v][e] - sum - o.x[v][e] * along) * o.inverse));
        }
      }
    });
    __syncthreads();
    for (int at = threadIdx.x; at < kHidden * (kRowsOfO / 8); at += kThreads) {
      const int channel = at / (kRowsOfO / 8), r = at % (kRowsOfO / 8) * 8;
      const long long to = place.plane(a, channel) + r;
      real x[8];
      if (r + 8 <= place.rows) {
        load8(shared + Tile::place(channel, r), x);
        store_operand(a.grad_o, to, x);
      } else {
        for (int e = 0; e < place.rows - r; ++e)
          store_operand(a.grad_o, to + e, to_real(shared[Tile::place(channel, r + e)]));
      }
    }
    __syncthreads();
  }
  constexpr int kWidth = kGateBefore ? 3 * kHidden : 2 * kHidden;
  add_columns<kHidden, kLanesH>(a.norm_out_sums, kWidth, 0, weight_sums, sums);
  add_columns<kHidden, kLanesH>(a.norm_out_sums, kWidth, kHidden, bias_sums, sums);
  if constexpr (kGateBefore) add_columns<kHidden, kLanesH>(a.norm_out_sums, kWidth, 2 * kHidden, gate_sums, sums);
}

/// Grid: blocks x tiles of channels of left and right. The gradients of left and right to those of their projections,
/// parts of the mask's, and column sums for the biases.
extern "C" __global__ void __launch_bounds__(kThreads) composed_gate_gradients(ComposedArguments a) {
  __shared__ __align__(16) operand shared[kTurnedChannels * kTurnedRows];
  __shared__ real sums[kThreads * 8];
  using Tile = Turned<operand, kTurnedChannels, kTurnedRows>;
  constexpr int kVectors = kTurnedChannels / 8;
  const int channels = blockIdx.y * kTurnedChannels;
  const real* bias = static_cast<const real*>(a.weights.bias_in);
  const long long tiles = a.lines * ((a.shape.n + kTurnedRows - 1) / kTurnedRows), rows = a.lines * a.shape.n;
  const int channel = threadIdx.x % kVectors * 8, column = channels + channel;
  const real scale = column < kHidden ? static_cast<real>(a.left_scale) : real(1);
  real x_sums[1][8] = {}, gate_sums[1][8] = {}, x_bias[8], gate_bias[8];
  load8(bias + column, x_bias);
  load8(bias + 2 * kHidden + column, gate_bias);
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Place place(a, tile, kTurnedRows);
    for (int at = threadIdx.x; at < kTurnedChannels * (kTurnedRows / 8); at += kThreads) {
      const int c = at / (kTurnedRows / 8), r = at % (kTurnedRows / 8) * 8;
      if (r >= place.rows) continue;
      const operand* from = static_cast<const operand*>(channels + c < kHidden ? a.grad_left : a.grad_right) +
                            place.plane(a, (channels + c) % kHidden) + r;
      operand* to = shared + Tile::place(c, r);
      if (r + 8 <= place.rows) {
        real x[8];
        load8(from, x);
        store8(to, x);
      } else {
        for (int e = 0; e < place.rows - r; ++e) to[e] = from[e];
      }
    }
    __syncthreads();
    for (int first = 0; first < kTurnedRows; first += kThreads / kVectors) {
      const int r = first + threadIdx.x / kVectors;
      const bool there = r < place.rows;
      real of_mask = 0;
      if (there) {
        const long long row = place.row(a, r), from = row * 4 * kHidden + column;
        const real mask = mask_at(a.mask, place.line * a.shape.n + place.first + r);
        real x[8], gate[8];
        load8(static_cast<const operand*>(a.projections) + from, x);
        load8(static_cast<const operand*>(a.projections) + from + 2 * kHidden, gate);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const real grad = to_real(shared[Tile::place(channel + e, r)]) * scale;
          const real open = sigmoid(gate[e] + gate_bias[e]), value = x[e] + x_bias[e];
          const real grad_x = grad * open, grad_gate = grad_x * value * (1 - open);
          of_mask += grad_x * value;
          x[e] = mask == 0 ? real(0) : mask * grad_x;
          gate[e] = mask == 0 ? real(0) : mask * grad_gate;
          x_sums[0][e] += x[e];
          gate_sums[0][e] += gate[e];
        }
        store_operand(a.grad_projections, from, x);
        store_operand(a.grad_projections, from + 2 * kHidden, gate);
      }
      if (a.grad_mask_parts) {
        of_mask = sum_of_lanes<kVectors>(of_mask);
        if (there && channel == 0) {
          static_cast<real*>(a.grad_mask_parts)[blockIdx.y * rows + place.row(a, r)] = of_mask;
        }
      }
    }
    __syncthreads();
  }
  add_columns<kTurnedChannels, kVectors>(a.projection_sums, 4 * kHidden, channels, x_sums, sums);
  add_columns<kTurnedChannels, kVectors>(a.projection_sums, 4 * kHidden, 2 * kHidden + channels, gate_sums, sums);
}

/// The parts of the mask's gradient, one number a thread.
extern "C" __global__ void __launch_bounds__(kThreads) composed_mask_gradients(ComposedArguments a) {
  const long long rows = a.lines * a.shape.n, row = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  const real scale = a.grad_scale ? static_cast<real>(static_cast<const float*>(a.grad_scale)[1]) : real(1);
  real sum = 0;
  for (int part = 0; part < 2 * kHidden / kTurnedChannels; ++part) {
    sum += static_cast<const real*>(a.grad_mask_parts)[part * rows + row];
  }
  static_cast<real*>(a.grad_mask)[a.first_line * a.shape.n + row] = sum * scale;
}
