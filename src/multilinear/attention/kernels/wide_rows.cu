// Outputs of 16-bit queries by groups of four warps, for Hopper: as half_rows.cu, with a head's sums in shared memory.
// Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are 64 or 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/last_runs.cuh"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/attention/kernels/wide_tiles.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
constexpr int kRows = 128, kTerm = 2 * kD * kAll;

/// A block takes every `parts`-th run of 128 rows of its head, whose terms may lie where its last outputs go
/// (last_runs.cuh). Grid: sequences x heads x parts.
extern "C" __global__ void __launch_bounds__(kWideThreads, kAll == 128 ? 2 : 1) wide_rows(HalfArguments a) {
  extern __shared__ __align__(128) char memory[];
  const int part_of_head = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  const Rows all = query_rows(a.shape, sequence, head);
  long long run = static_cast<long long>(part_of_head) * kRows;
  if (run >= all.count) return;  // none with terms among the outputs
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  copy_terms<2 * kTerm>(memory, fragments_of<kD * kAll>(a, key_head));
  const float* scales = a.scales + key_head * kTiles;
  float trace = 0.0f;
  for (int tile = 0; tile < kD / 8; ++tile) trace += __ldg(a.traces + key_head * (kD / 8) + tile);
  const auto places = [&](long long block, long long(&rows)[1][2], bool(&there)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const long long at = block + 16 * warp + 8 * h + g;
      there[h] = at < all.count;
      rows[0][h] = all.first + (there[h] ? at : 0);
    }
  };
  const unsigned terms = shared_address(memory);
  long long rows[1][2];
  bool there[2];
  HalfRows<kD, 1> next;
  const long long step = static_cast<long long>(a.parts) * kRows;
  LastRuns<kRows> last(a.readers, key_head, a.parts, all.count, 2 * kTerm, 2 * kDv);
  places(run, rows, there);
  next.load(a.q, rows, t);
  await_terms();
  last.count_reader();
  if (run >= last.begin) {
    run = last.take();
    places(run < 0 ? 0 : run, rows, there);
    next.load(a.q, rows, t);
  }
  bool flagged = false;
  while (run >= 0) {
    HalfRows<kD, 1> q = next;
    places(run, rows, there);
    float forms[kD / 2], outs[kDv / 2];
    begin_products();
    multiply_terms<kTiles>(forms, q, terms, 0);
    end_products();
    multiply_terms<kTiles>(outs, q, terms, kD / 8);
    end_products();
    long long next_rows[1][2];
    bool next_there[2];
    run = last.after(run, step);
    places(run < 0 ? all.count : run, next_rows, next_there);
    next.load(a.q, next_rows, t);
    await_products<1>();
    hold(forms);
    float form[2] = {}, square[2] = {}, inverse[2];
    unsigned any[2] = {};
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      const float scale = __ldg(scales + n);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const unsigned pair = part_of(q.x[0][h][n / 4], n % 4);
        const float x = low_of(pair), y = high_of(pair);
        form[h] += scale * (forms[4 * n + 2 * h] * x + forms[4 * n + 2 * h + 1] * y);
        square[h] += x * x + y * y;
        any[h] |= pair & 0x7fff7fffu;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float z = form[h], squares = square[h];
      int nonzero = any[h] ? 1 : 0;
#pragma unroll
      for (int bits = 1; bits < 4; bits *= 2) {
        z += __shfl_xor_sync(0xffffffffu, z, bits);
        squares += __shfl_xor_sync(0xffffffffu, squares, bits);
        nonzero |= __shfl_xor_sync(0xffffffffu, nonzero, bits);
      }
      inverse[h] = finish_row(a, z, squares, trace, nonzero, t == 0 && there[h], rows[0][h], flagged);
    }
    await_products<0>();
    hold(outs);
#pragma unroll
    for (int c = 0; c < kDv / 32; ++c) {
      unsigned out[2][4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int n = 4 * c + part;
        const float scale = __ldg(scales + kD / 8 + n);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float by = scale * inverse[h];
          out[h][part] = pack(outs[4 * n + 2 * h] * by, outs[4 * n + 2 * h + 1] * by);
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (there[h]) store_vector(a.out, rows[0][h], kDv, 4 * c + t, out[h]);
      }
    }
  }
  flag_head(a.head_flags + key_head, flagged);
}
