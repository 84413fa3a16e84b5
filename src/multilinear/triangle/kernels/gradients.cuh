#pragma once
// Parts of the fused 16-bit kernels of the backward pass, compiled as composed.cuh says; d and hidden are 64 or 128,
// out is a multiple of 32, the gate comes after the projection.
//
// Places. A lane (g = lane / 4, t = lane % 4) of a warp has eight adjacent columns 32 u + 8 t .. + 7 of rows g and g +
// 8 of its tile of 16. Tensor cores want of it columns 2 t and 2 t + 1 of each 8: so place 8 j + 2 t + e (j = 0 .. 3)
// of 32 places is column 8 t + 2 j + e, for inner indices and for columns of sums alike. Then sums of one product are
// operands of the next without moving, and rows are read and written in vectors of 16 bytes.
//
// Images. A matrix (rows, columns) of weights lies in shared memory with rows and columns in the order of their places,
// 64 columns after the other, a row of them in 128 bytes; the vectors of 16 bytes of a row are exchanged as wgmma wants
// it, so that eight rows of ldmatrix lie in different banks. It serves as the second operand of x W^T (rows are columns
// of sums) and of dz W (rows are inner indices).
#include "multilinear/triangle/kernels/composed.cuh"
#include "multilinear/triangle/kernels/gradients.h"

constexpr int kGradientWidths = 4 * kHidden + kOut;

/// The column of a place and the place of a column.
__device__ __forceinline__ int column_of(int place) {
  return place / 32 * 32 + place % 8 / 2 * 8 + place % 32 / 8 * 2 + place % 2;
}
__device__ __forceinline__ int place_of(int column) {
  return column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
}

/// The vector `chunk` (8 places) of a row of an image of kRows.
template <int kRows>
__device__ __forceinline__ int image_vector(int row, int chunk) {
  return (chunk / 8 * kRows + row) * 8 + (chunk % 8 ^ row % 8);
}

// Kernels that are launched early (early_start.cuh) wait when they need what the one before them wrote. What is older
// is there: that one waited before it let this one begin.
__device__ __forceinline__ void await_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// The kernel after this one may begin.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// c (16, 8) += a (16, 16) b (16, 8): PTX ISA, mma.m16n8k16.
__device__ __forceinline__ void multiply16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if CLEBSCH_PRECISION == 4
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Four tiles of 8 x 8 numbers from shared memory: lane 8 i + r says where row r of tile i begins, and gets numbers (g,
/// 2 t) and (g, 2 t + 1) of every tile.
__device__ __forceinline__ void load_rows(unsigned (&to)[4], const void* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}
/// The same, transposed: it gets numbers (2 t, g) and (2 t + 1, g).
__device__ __forceinline__ void load_turned(unsigned (&to)[4], const unsigned short* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}

/// Sixteen bytes to shared memory, asynchronously.
__device__ __forceinline__ void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kOpen>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

/// One instruction of the special function unit, to 2^-11.
__device__ __forceinline__ float tanh_near(float x) {
  float y;
  asm volatile("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float sigmoid_near(float z) { return 0.5f + 0.5f * tanh_near(0.5f * z); }

__device__ __forceinline__ unsigned pack2(float x, float y) { return pack(x, y, operand{}); }
__device__ __forceinline__ float low2(unsigned pair) {
  return to_real(operand{static_cast<unsigned short>(pair & 0xffffu)});
}
__device__ __forceinline__ float high2(unsigned pair) {
  return to_real(operand{static_cast<unsigned short>(pair >> 16)});
}

__device__ __forceinline__ float of_quad(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Of a row of operands, g + 8 `h` of the warp's tile: 1 / deviation, and the mean; one after the other, since the mean
/// of squares less the mean's square cancels.
template <int kSteps>
__device__ __forceinline__ float norm_of_row(const unsigned (&rows)[kSteps][4], int h, float eps, float& mean) {
  float sum = 0, squares = 0;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    sum += low2(rows[s][h]) + high2(rows[s][h]) + low2(rows[s][2 + h]) + high2(rows[s][2 + h]);
  }
  mean = of_quad(sum) * (1.0f / (16 * kSteps));
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int p = h; p < 4; p += 2) {
      const float low = low2(rows[s][p]) - mean, high = high2(rows[s][p]) - mean;
      squares += low * low + high * high;
    }
  }
  return rsqrtf(of_quad(squares) * (1.0f / (16 * kSteps)) + eps);
}

/// Rows g and g + 8 as first operands: [step of 16 places][register].
template <int kColumns>
using RowsOf = unsigned[kColumns / 16][4];

/// Columns 32 u + 8 t + 2 j and the next of row g + 8 h.
template <int kSteps>
__device__ __forceinline__ unsigned& pair_of(unsigned (&rows)[kSteps][4], int u, int j, int h) {
  return rows[2 * u + j / 2][2 * (j % 2) + h];
}

/// Eight adjacent columns to memory; with `kSwapped` every other one in its neighbour's place. What is an operand here
/// and of a product over rows later is stored so: registers of an operand lie in fours of two rows, and vectors of one
/// row out of the same registers would cost moves at every use. Pairs in the other order are other registers.
/// fold_gradients.cu puts the product's columns right.
template <bool kSwapped>
__device__ __forceinline__ void store_eight(operand* to, const float (&x)[8]) {
  constexpr int kFirst = kSwapped ? 1 : 0, kSecond = 1 - kFirst;
  uint4 all;
  all.x = pack2(x[kFirst], x[kSecond]);
  all.y = pack2(x[2 + kFirst], x[2 + kSecond]);
  all.z = pack2(x[4 + kFirst], x[4 + kSecond]);
  all.w = pack2(x[6 + kFirst], x[6 + kSecond]);
  *reinterpret_cast<uint4*>(to) = all;
}

/// Of sums of four tiles: eight adjacent columns of row g + 8 h.
template <bool kSwapped>
__device__ __forceinline__ void store_columns(operand* to, const float (&sums)[4][4], int h) {
  store_eight<kSwapped>(to, {sums[0][2 * h], sums[0][2 * h + 1], sums[1][2 * h], sums[1][2 * h + 1], sums[2][2 * h],
                             sums[2][2 * h + 1], sums[3][2 * h], sums[3][2 * h + 1]});
}

/// Asks for a warp's tile of rows of `row_bytes` to be in the L2 cache when they are read.
__device__ __forceinline__ void ask_for_tile(const void* tensor, long long first, int row_bytes) {
  constexpr int kLine = 128;
  const char* from = static_cast<const char*>(tensor) + first * row_bytes;
  for (int at = static_cast<int>(threadIdx.x % 32) * kLine; at < kGradientRows * row_bytes; at += 32 * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
  }
}

/// x to normalised rows, which also go to `normal` unless that is null, and 1 / deviation; read(h, u, x) reads columns
/// 32 u + 8 t .. of row g + 8 h. Masked rows that have no norm count as zeros.
template <typename Read>
__device__ __forceinline__ void norm_x(unsigned (&rows)[kD / 16][4], float (&inverse)[2], float eps, const Read& read,
                                       const float (&mask)[2], operand* normal) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float x[kD / 32][8], sum = 0, squares = 0;
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
      read(h, u, x[u]);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += x[u][e];
    }
    const float mean = of_quad(sum) * (1.0f / kD);
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x[u][e] -= mean;
        squares += x[u][e] * x[u][e];
      }
    }
    inverse[h] = rsqrtf(of_quad(squares) * (1.0f / kD) + eps);
    const bool none = mask[h] == 0.0f && !has_norm(mean, inverse[h]);
    if (none) inverse[h] = 0.0f;
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
#pragma unroll
      for (int e = 0; e < 8; ++e) x[u][e] = none ? 0.0f : x[u][e] * inverse[h];
#pragma unroll
      for (int j = 0; j < 4; ++j) pair_of(rows, u, j, h) = pack2(x[u][2 * j], x[u][2 * j + 1]);
      if (normal) store_eight<true>(normal + (g + 8 * h) * kD + 32 * u + 8 * t, x[u]);
    }
  }
}

/// The same, of rows from `first` on in memory.
__device__ __forceinline__ void load_x(unsigned (&rows)[kD / 16][4], float (&inverse)[2], const GradientArguments& a,
                                       long long first, const float (&mask)[2], operand* normal) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto read = [&](int h, int u, float(&x)[8]) {
    load8(static_cast<const number*>(a.x) + (first + g + 8 * h) * kD + 32 * u + 8 * t, x);
  };
  norm_x(rows, inverse, a.eps, read, mask, normal);
}

/// Where a lane's addresses of ldmatrix lie in an image. What differs between rows, columns and steps of a loop that is
/// unrolled is a constant.
template <int kColumns, int kRows>
struct Image {
  static constexpr int kBlock = 8 * kRows;  // vectors of 64 columns
  const uint4* image;
  int rows[4], turned[4];

  __device__ __forceinline__ explicit Image(const uint4* shared) : image(shared) {
    const int lane = threadIdx.x % 32, i = lane / 8, r = lane % 8;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      rows[k] = image_vector<kRows>(8 * (i / 2) + r, 2 * k + i % 2);
      turned[k] = image_vector<kRows>(8 * (i % 2) + r, 2 * k + i / 2);
    }
  }

  /// sums of 32 places from `row` of the image on += rows times the image's transpose.
  __device__ __forceinline__ void multiply(float (&sums)[4][4], const unsigned (&x)[kColumns / 16][4], int row) const {
#pragma unroll
    for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        unsigned b[4];
        load_rows(b, image + rows[s % 4] + 8 * (row + 8 * j) + s / 4 * kBlock);
        const unsigned b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
        multiply16(sums[j], x[s], b0);
        multiply16(sums[j + 1], x[s], b1);
      }
    }
  }

  /// sums of all columns += a step of 16 inner places, rows of the image from `row` on.
  __device__ __forceinline__ void multiply_turned(float (&sums)[kColumns / 8][4], const unsigned (&step)[4],
                                                  int row) const {
#pragma unroll
    for (int n = 0; n < kColumns / 8; n += 2) {
      unsigned b[4];
      load_turned(b, reinterpret_cast<const unsigned short*>(image + turned[n / 2 % 4] + 8 * row + n / 8 * kBlock));
      const unsigned b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
      multiply16(sums[n], step, b0);
      multiply16(sums[n + 1], step, b1);
    }
  }
};

/// Channels of planes as rows of 16 adjacent rows each: places of channels in order, two vectors a place.
__device__ __forceinline__ int plane_vector(int place, int chunk) { return 2 * place + (chunk ^ (place >> 2 & 1)); }

/// Starts to copy 16 rows of 32 channels; `from` is the first row of the first channel.
__device__ __forceinline__ void fetch_planes(uint4* to, const unsigned short* from, long long plane) {
  const int lane = threadIdx.x % 32, chunk = lane % 2;
#pragma unroll
  for (int q = 0; q < 2; ++q) {
    const int channel = lane / 2 + 16 * q;
    copy16(to + plane_vector(place_of(channel), chunk), from + channel * plane + 8 * chunk);
  }
}

/// Sums over a warp's 16 rows: sums[2 j + e] of rows g and g + 8 already added, of column 8 t + 2 j + e. Lane (g, t)
/// gets that of column 8 t + place_in_eight().
__device__ __forceinline__ float sum_of_rows(float (&sums)[8]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = lane & 4 * half;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k >= half) continue;
      const float sent = upper ? sums[k] : sums[k + half];
      sums[k] = (upper ? sums[k + half] : sums[k]) + __shfl_xor_sync(0xffffffffu, sent, 4 * half);
    }
  }
  return sums[0];
}
__device__ __forceinline__ int place_in_eight() { return threadIdx.x % 32 / 4; }

/// The sums of all warps to the block's slot. `sums` (warps, kWidth) in shared memory.
template <int kWidth>
__device__ __forceinline__ void write_slot(float* slots, const float* sums, bool first) {
  __syncthreads();
  float* slot = slots + static_cast<long long>(blockIdx.x) * kWidth;
  for (int column = threadIdx.x; column < kWidth; column += kGradientThreads) {
    float sum = 0;
    for (int warp = 0; warp < kGradientWarps; ++warp) sum += sums[warp * kWidth + column];
    slot[column] = first ? sum : slot[column] + sum;
  }
}

/// Where a tile is. There are fewer than 2^31 rows.
struct GradientTile {
  long long row = 0;     // of all rows
  long long planes = 0;  // numbers before its row of the first channel
  __device__ __forceinline__ GradientTile(const GradientArguments& a, long long tile) {
    const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n);
    row = a.first_row + tile * kGradientRows;
    const unsigned batch = static_cast<unsigned>(row) / square, place = static_cast<unsigned>(row) - batch * square;
    planes = static_cast<long long>(batch) * kHidden * square + place;
  }
};
