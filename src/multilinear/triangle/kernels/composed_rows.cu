// Rows of the composed passes, i.e. channels last: the norm of x and its gradient, the gate of the output and its
// gradient. A block takes rows that lie a grid apart; groups of kLanes lanes take a row, eight adjacent columns a lane
// at a time.
#include "multilinear/triangle/kernels/composed.cuh"

constexpr int kLanesD = lanes_of(kD), kVectorsD = (kD / 8 + kLanesD - 1) / kLanesD;
constexpr int kLanesOut = lanes_of(kOut), kVectorsOut = (kOut / 8 + kLanesOut - 1) / kLanesOut;

/// Calls work(row of the chunk) for a group's rows; all lanes of a warp take part to the end, with `there` false beyond
/// it.
template <int kLanes, typename Work>
__device__ __forceinline__ void for_rows(const ComposedArguments& a, const Work& work) {
  constexpr int kRows = kThreads / kLanes;
  const long long rows = a.lines * a.shape.n;
  for (long long first = static_cast<long long>(blockIdx.x) * kRows; first < rows;
       first += static_cast<long long>(gridDim.x) * kRows) {
    const long long row = first + threadIdx.x / kLanes;
    work(row < rows ? row : rows - 1, row < rows);
  }
}

/// x to xn and its statistics. In a backward pass a masked row that has no norm counts as zeros.
extern "C" __global__ void __launch_bounds__(kThreads) composed_normalise(ComposedArguments a) {
  const int lane = threadIdx.x % kLanesD;
  const real* weights = static_cast<const real*>(a.weights.norm_in);
  for_rows<kLanesD>(a, [&](long long row, bool there) {
    const long long place = a.first_line * a.shape.n + row;
    const number* from = static_cast<const number*>(a.x) + place * kD;
    real x[kVectorsD][8], sum = 0, squares = 0;
#pragma unroll
    for (int v = 0; v < kVectorsD; ++v) {
      const int column = 8 * (lane + kLanesD * v);
      if (column >= kD) continue;
      load8(from + column, x[v]);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += x[v][e];
    }
    const real mean = sum_of_lanes<kLanesD>(sum) / kD;
#pragma unroll
    for (int v = 0; v < kVectorsD; ++v) {
      if (8 * (lane + kLanesD * v) >= kD) continue;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x[v][e] -= mean;
        squares += x[v][e] * x[v][e];
      }
    }
    const real inverse = rsqrt(sum_of_lanes<kLanesD>(squares) / kD + static_cast<real>(a.eps_in));
    const bool none = a.grad && !has_norm(mean, inverse) && mask_at(a.mask, place) == 0;
    if (!there) return;
    if (lane == 0) {
      real* statistics = static_cast<real*>(a.statistics) + 2 * row;
      statistics[0] = none ? real(0) : mean;
      statistics[1] = none ? real(0) : inverse;
    }
#pragma unroll
    for (int v = 0; v < kVectorsD; ++v) {
      const int column = 8 * (lane + kLanesD * v);
      if (column >= kD) continue;
      real weight[8], bias[8], normed[8];
      load8(weights + column, weight);
      load8(weights + kD + column, bias);
#pragma unroll
      for (int e = 0; e < 8; ++e) normed[e] = none ? real(0) : x[v][e] * inverse * weight[e] + bias[e];
      store_operand(a.xn, row * kD + column, normed);
    }
  });
}

/// The gradient of xn to that of x, and column sums for the norm's weight and bias.
extern "C" __global__ void __launch_bounds__(kThreads) composed_normalise_gradients(ComposedArguments a) {
  __shared__ real shared[kThreads * 8];
  const int lane = threadIdx.x % kLanesD;
  const real* weights = static_cast<const real*>(a.weights.norm_in);
  const real scale = a.grad_scale ? static_cast<real>(static_cast<const float*>(a.grad_scale)[1]) : real(1);
  real weight_sums[kVectorsD][8] = {}, bias_sums[kVectorsD][8] = {};
  for_rows<kLanesD>(a, [&](long long row, bool there) {
    const long long place = a.first_line * a.shape.n + row;
    const number* from = static_cast<const number*>(a.x) + place * kD;
    const real mean = static_cast<const real*>(a.statistics)[2 * row];
    const real inverse = static_cast<const real*>(a.statistics)[2 * row + 1];
    real x[kVectorsD][8], grad[kVectorsD][8], sum = 0, along = 0, size = 0;
#pragma unroll
    for (int v = 0; v < kVectorsD; ++v) {
      const int column = 8 * (lane + kLanesD * v);
      if (column >= kD) continue;
      real weight[8];
      load8(from + column, x[v]);
      load8(static_cast<const operand*>(a.grad_xn) + row * kD + column, grad[v]);
      load8(weights + column, weight);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x[v][e] = inverse == 0 ? real(0) : (x[v][e] - mean) * inverse;
        if (there) {
          weight_sums[v][e] += grad[v][e] * x[v][e];
          bias_sums[v][e] += grad[v][e];
        }
        size += fabs(grad[v][e]);
        grad[v][e] *= weight[e];
        sum += grad[v][e];
        along += grad[v][e] * x[v][e];
      }
    }
    sum = sum_of_lanes<kLanesD>(sum) / kD;
    along = sum_of_lanes<kLanesD>(along) / kD;
    size = sum_of_lanes<kLanesD>(size);
    if (!there || !a.grad_x) return;
#pragma unroll
    for (int v = 0; v < kVectorsD; ++v) {
      const int column = 8 * (lane + kLanesD * v);
      if (column >= kD) continue;
        // No gradient stays none where x has no norm.
#pragma unroll
      for (int e = 0; e < 8; ++e)
        grad[v][e] = size == 0 ? real(0) : (grad[v][e] - sum - x[v][e] * along) * inverse * scale;
      store8(static_cast<number*>(a.grad_x) + place * kD + column, grad[v]);
    }
  });
  add_columns<kD, kLanesD>(a.norm_in_sums, 2 * kD, 0, weight_sums, shared);
  add_columns<kD, kLanesD>(a.norm_in_sums, 2 * kD, kD, bias_sums, shared);
}

/// What is projected, with its bias and, unless the gate was before, the gate.
extern "C" __global__ void __launch_bounds__(kThreads) composed_output(ComposedArguments a) {
  const int lane = threadIdx.x % kLanesOut;
  const real* bias = static_cast<const real*>(a.weights.bias_out);
  const real* gate_bias = static_cast<const real*>(a.weights.bias_in) + 4 * kHidden;
  for_rows<kLanesOut>(a, [&](long long row, bool there) {
    if (!there) return;
#pragma unroll
    for (int v = 0; v < kVectorsOut; ++v) {
      const int column = 8 * (lane + kLanesOut * v);
      if (column >= kOut) continue;
      real y[8], more[8];
      load8(static_cast<const operand*>(a.projected) + row * kOut + column, y);
      load8(bias + column, more);
#pragma unroll
      for (int e = 0; e < 8; ++e) y[e] += more[e];
      if constexpr (!kGateBefore) {
        real gate[8];
        load8(static_cast<const operand*>(a.gates) + row * kGate + column, gate);
        load8(gate_bias + column, more);
#pragma unroll
        for (int e = 0; e < 8; ++e) y[e] *= sigmoid(gate[e] + more[e]);
      }
      store8(static_cast<number*>(a.out) + (a.first_line * a.shape.n + row) * kOut + column, y);
    }
  });
}

/// The gradient of out to those of what is projected and, unless the gate was before, of the gate before its sigmoid;
/// and column sums for both biases. A gradient of 0 stays 0, whatever it is multiplied by.
extern "C" __global__ void __launch_bounds__(kThreads) composed_output_gradients(ComposedArguments a) {
  __shared__ real shared[kThreads * 8];
  const int lane = threadIdx.x % kLanesOut;
  const real* bias = static_cast<const real*>(a.weights.bias_out);
  const real* gate_bias = static_cast<const real*>(a.weights.bias_in) + 4 * kHidden;
  const real scale = a.grad_scale ? static_cast<real>(static_cast<const float*>(a.grad_scale)[0]) : real(1);
  real sums[kVectorsOut][8] = {}, gate_sums[kVectorsOut][8] = {};
  for_rows<kLanesOut>(a, [&](long long row, bool there) {
    if (!there) return;
    const long long place = a.first_line * a.shape.n + row;
#pragma unroll
    for (int v = 0; v < kVectorsOut; ++v) {
      const int column = 8 * (lane + kLanesOut * v);
      if (column >= kOut) continue;
      real grad[8];
      load8(static_cast<const number*>(a.grad) + place * kOut + column, grad);
#pragma unroll
      for (int e = 0; e < 8; ++e) grad[e] *= scale;
      if constexpr (!kGateBefore) {
        real y[8], gate[8], more[8], grad_gate[8];
        load8(static_cast<const operand*>(a.projected) + row * kOut + column, y);
        load8(bias + column, more);
#pragma unroll
        for (int e = 0; e < 8; ++e) y[e] += more[e];
        load8(static_cast<const operand*>(a.gates) + row * kGate + column, gate);
        load8(gate_bias + column, more);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const real open = sigmoid(gate[e] + more[e]);
          grad_gate[e] = grad[e] == 0 ? real(0) : grad[e] * y[e] * open * (1 - open);
          grad[e] = grad[e] == 0 ? real(0) : grad[e] * open;
          gate_sums[v][e] += grad_gate[e];
        }
        store_operand(a.grad_gates, place * kGate + column, grad_gate);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[v][e] += grad[e];
      store_operand(a.grad_projected, row * kOut + column, grad);
    }
  });
  constexpr int kWidth = kGateBefore ? kOut : 2 * kOut;
  add_columns<kOut, kLanesOut>(a.output_sums, kWidth, 0, sums, shared);
  if constexpr (!kGateBefore) add_columns<kOut, kLanesOut>(a.output_sums, kWidth, kOut, gate_sums, shared);
}
