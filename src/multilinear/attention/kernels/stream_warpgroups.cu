// Streamed attention of 16-bit numbers on the tensor cores of compute capability 9.0: outputs with the L2 norm. One
// warpgroup copies keys and values into rings; each of the others has 64 queries, and makes weights and sums of its
// own. While one turns scores into weights, the tensor cores work for another. Compiled with CLEBSCH_NUMBER, CLEBSCH_D
// = CLEBSCH_DV = 64 or 128, and those of stream_pairs.cuh without multiplicity; not with offsets.
#include "multilinear/attention/kernels/stream_half.cuh"
#include "multilinear/attention/kernels/warpgroup.cuh"

static_assert(kD == kDv && (kD == 64 || kD == 128), "rows are one or two of 128 bytes");
constexpr int kConsumers = kD == 64 ? 3 : 2, kThreads = 128 * (kConsumers + 1), kKeys = 128;
/// Of the rings; a mask of bytes takes a part of the memory.
constexpr int kStages = kD == 64 ? (kMask == kBoolMask ? 3 : 4) : 2;
/// Registers of a thread, which sum up to a multiprocessor's.
constexpr int kProducerRegisters = kD == 64 ? 32 : 24, kConsumerRegisters = kD == 64 ? 160 : 240;
/// Both would be too many registers.
constexpr bool kEarly = kMask == kNoMask || !kBias;
/// Bytes: half a tile of 64 columns, a tile of keys, queries of a warpgroup.
constexpr int kPart = kKeys * 128, kTile = kPart * (kD / 64), kOwn = 64 * 2 * kD;
/// What lies where in shared memory. Barriers: keys there, values there, keys used, values used.
constexpr int kKeysAt = kConsumers * kOwn, kValuesAt = kKeysAt + kStages * kTile;
constexpr int kMaskTile = kMask == kBoolMask ? 64 * kConsumers * kKeys : 0, kMasksAt = kValuesAt + kStages * kTile;
constexpr int kBarriersAt = kMasksAt + kStages * kMaskTile, kExponentsAt = kBarriersAt + 4 * kStages * 8;

/// Starts copies of a tile's rows in the order of places; zeros from `end` on.
__device__ __forceinline__ void copy_tile(unsigned to, const unsigned short* rows, int from, int end) {
  constexpr int kVectors = kD / 8, kRows = 128 / kVectors;  // at a time
  const int thread = threadIdx.x % 128, vector = thread % kVectors, first = thread / kVectors;
  const int row = from + row_of_place(first);
  to += vector / 8 * kPart + first * 128 + (vector % 8 ^ first % 8) * 16;
  rows += static_cast<long long>(row) * kD + 8 * vector;
  const bool whole = from + kKeys <= end;
#pragma unroll
  for (int at = 0; at < kKeys; at += kRows) {
    constexpr int kGroup = 32;
    const int further = at / kGroup * kGroup + at % kGroup / 8 * 2;  // place first + at holds row + further
    if (whole) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at * 128), "l"(rows + further * kD)
                   : "memory");
    } else {
      const bool there = row + further < end;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + at * 128),
                   "l"(there ? rows + further * kD : rows - static_cast<long long>(row) * kD), "r"(there ? 16 : 0)
                   : "memory");
    }
  }
}

/// Starts copies of a tile of a mask of bytes, rows of queries; the 16-byte part c of row r lies at c ^ r % 8. Zeros
/// for pairs that are not there; parts are in or out as a whole.
__device__ __forceinline__ void copy_mask(unsigned to, const unsigned char* mask, long long stride, int rows, int from,
                                          int end) {
  const int thread = threadIdx.x % 128, part = thread % 8, first = thread / 8;
  to += first * kKeys + (part ^ first % 8) * 16;
  const bool in = from + 16 * part < end;
  mask += in ? first * stride + from + 16 * part : 0;
#pragma unroll 1
  for (int row = first; row < 64 * kConsumers; row += 16) {
    const bool there = in && row < rows;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(mask), "r"(there ? 16 : 0) : "memory");
    to += 16 * kKeys;
    if (row + 16 < rows && in) mask += 16 * stride;
  }
}

/// A warpgroup's queries into shared memory, scaled; and the exponents of their scales.
__device__ __forceinline__ void copy_queries(const StreamArguments& a, unsigned char* to, int* exponents,
                                             const unsigned short* queries, int count, float keys) {
  constexpr int kVectors = kD / 8, kRows = 128 / kVectors;
  const int thread = threadIdx.x % 128, vector = thread % kVectors, first = thread / kVectors;
#pragma unroll
  for (int at = 0; at < 64; at += kRows) {
    const int row = first + at;
    Eight numbers;
    numbers.clear();
    if (row < count) {
      numbers.set(__ldg(reinterpret_cast<const uint4*>(queries + static_cast<long long>(row) * kD) + vector));
    }
    float most = 0.0f;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) most = fmaxf(most, largest_of_pair(numbers.x[pair]));
    for (int bits = 1; bits < kVectors; bits *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bits));
    const int exponent = weight_exponent(a, most, keys);
    if (vector == 0) exponents[row] = exponent;
    uint4 scaled;
    scaled.x = times(numbers.x[0], two_to(exponent));
    scaled.y = times(numbers.x[1], two_to(exponent));
    scaled.z = times(numbers.x[2], two_to(exponent));
    scaled.w = times(numbers.x[3], two_to(exponent));
    *reinterpret_cast<uint4*>(to + vector / 8 * 8192 + row * 128 + (vector % 8 ^ row % 8) * 16) = scaled;
  }
}

/// Grid: sequences x heads x parts; a block has 64 queries for each of its consumers.
extern "C" __global__ void __launch_bounds__(kThreads, 1) stream_warpgroups(StreamArguments a) {
  extern __shared__ unsigned char memory[];
  unsigned char* base = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const unsigned shared = shared_address(base), barriers = shared + kBarriersAt;
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = head / (a.shape.heads / a.shape.key_heads), group = threadIdx.x / 128;
  const Rows queries = query_rows(a.shape, sequence, head), keys = key_rows(a.shape, sequence, key_head);
  const int count = static_cast<int>(keys.count), tiles = (count + kKeys - 1) / kKeys;
  const int rows = static_cast<int>(queries.count);
  // The last block of a head may have queries for fewer consumers.
  const int working = min(kConsumers, (rows - part * kConsumers * 64 + 63) / 64);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_begin(barriers + 8 * stage, 128);
      barrier_begin(barriers + 8 * (kStages + stage), 128);
      barrier_begin(barriers + 8 * (2 * kStages + stage), 4 * working);
      barrier_begin(barriers + 8 * (3 * kStages + stage), 4 * working);
    }
    fence_copies();
  }
  __syncthreads();
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    const unsigned short* k = static_cast<const unsigned short*>(a.k) + keys.first * kD;
    const unsigned short* v = static_cast<const unsigned short*>(a.v) + keys.first * kDv;
    const HeadPairs pairs(a, sequence, head);
    const int own = part * kConsumers * 64;
    const unsigned char* mask = static_cast<const unsigned char*>(a.mask.data) + pairs.mask + own * a.mask.of_query;
    int stage = 0;
    unsigned parity = 1;  // a ring begins as used
    for (int tile = 0; tile < tiles; ++tile) {
      const unsigned at = barriers + 8 * stage;
      barrier_wait(at + 16 * kStages, parity);
      copy_tile(shared + kKeysAt + stage * kTile, k, tile * kKeys, count);
      barrier_arrive_with_copies(at);
      barrier_wait(at + 24 * kStages, parity);
      copy_tile(shared + kValuesAt + stage * kTile, v, tile * kKeys, count);
      if (kMask == kBoolMask && a.vectors == 2) {
        copy_mask(shared + kMasksAt + stage * kMaskTile, mask, a.mask.of_query, rows - own, tile * kKeys, count);
      }
      barrier_arrive_with_copies(at + 8 * kStages);
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    const HeadPairs pairs(a, sequence, head);
    const int mine = group - 1, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int from = (part * kConsumers + mine) * 64;
    if (mine >= working) return;
    const int local = threadIdx.x % 128 / 32 * 16 + g, own = from + local;
    int* exponents = reinterpret_cast<int*>(base + kExponentsAt) + 64 * mine;
    copy_queries(a, base + mine * kOwn, exponents,
                 static_cast<const unsigned short*>(a.q) + (queries.first + from) * kD, rows - from,
                 bound_of(a, sequence, key_head, 0));
    fence_copies();
    asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
    const int exponent[2] = {exponents[local], exponents[local + 8]};
    const float up[2] = {two_to(exponent[0]), two_to(exponent[1])};
    const unsigned long long of_queries = matrix_at(shared + mine * kOwn, 16);
    float x[64], sums[kDv / 2], z[2] = {};
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < kDv / 2; ++i) sums[i] = 0.0f;
    int stage = 0, last = 0;
    unsigned parity = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      const unsigned at = barriers + 8 * stage;
      barrier_wait(at, parity);
      fence_copies();
      const unsigned long long of_keys = matrix_at(shared + kKeysAt + stage * kTile, 16);
      begin_products();
#pragma unroll
      for (int step = 0; step < kD / 16; ++step) {
        multiply_scores(x, of_queries + (step / 4 * 8192 + step % 4 * 32) / 16,
                        of_keys + (step / 4 * kPart + step % 4 * 32) / 16, step > 0 ? 1 : 0);
      }
      end_products();
      await_products<1>();
      if (tile > 0 && lane == 0) barrier_arrive(barriers + 8 * (3 * kStages + last));
      // Masks or biases are read before the scores are there, in the registers of the last weights.
      EightPairs of_rows[4][2];
      if (kEarly && !(kMask == kBoolMask && a.vectors == 2)) {
#pragma unroll
        for (int run = 0; run < 4; ++run) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            of_rows[run][h].read(a, pairs, min(own + 8 * h, rows - 1), tile * kKeys + 32 * run + 8 * t, count);
          }
        }
      }
      await_products<0>();
      hold(x);
      if (lane == 0) barrier_arrive(at + 16 * kStages);
      if (kMask == kBoolMask && a.vectors == 2) {  // the mask came with the values
        barrier_wait(at + 8 * kStages, parity);
        const unsigned char* here = base + kMasksAt + stage * kMaskTile + (64 * mine + local) * kKeys + t % 2 * 8;
#pragma unroll
        for (int run = 0; run < 4; ++run) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            // Rows g and g + 8: the same place in a group of eight.
            const int2 both = *reinterpret_cast<const int2*>(here + 8 * h * kKeys + (2 * run + t / 2 ^ g) * 16);
            of_rows[run][h].bytes[0] = static_cast<unsigned>(both.x);
            of_rows[run][h].bytes[1] = static_cast<unsigned>(both.y);
          }
        }
      }
      unsigned weights[8][4];
#pragma unroll
      for (int run = 0; run < 4; ++run) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (!kEarly) {
            of_rows[run][h].read(a, pairs, min(own + 8 * h, rows - 1), tile * kKeys + 32 * run + 8 * t, count);
          }
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            float& weight = x[16 * run + 4 * (e / 2) + 2 * h + e % 2];
            if (kBias) weight += of_rows[run][h].bias.at(e) * up[h];
            weight = of_rows[run][h].masked(e, weight);
            z[h] += weight * weight;
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int first = 16 * run + 8 * half;
          weights[2 * run + half][0] = pack(x[first], x[first + 1]);
          weights[2 * run + half][1] = pack(x[first + 2], x[first + 3]);
          weights[2 * run + half][2] = pack(x[first + 4], x[first + 5]);
          weights[2 * run + half][3] = pack(x[first + 6], x[first + 7]);
        }
      }
      barrier_wait(at + 8 * kStages, parity);
      fence_copies();
      const unsigned long long of_values = matrix_at(shared + kValuesAt + stage * kTile, kPart);
      begin_products();
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step) {
        multiply_values(sums, weights[step], of_values + step * 2048 / 16);
      }
      end_products();
      last = stage;
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    await_products<0>();
    hold(sums);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const double root = sqrt(ldexp(static_cast<double>(of_quad(z[h])), -2 * exponent[h]) + a.eps);
      const float inverse = root > 0.0 ? static_cast<float>(ldexp(1.0 / root, -exponent[h])) : 0.0f;
      if (own + 8 * h >= rows) continue;
      const long long row = queries.first + own + 8 * h;
      if (t == 0) static_cast<float*>(a.norm)[row] = static_cast<float>(root);
      unsigned* to = reinterpret_cast<unsigned*>(static_cast<unsigned short*>(a.out) + row * kDv) + t;
#pragma unroll
      for (int n = 0; n < kDv / 8; ++n) {
        to[4 * n] = pack(sums[4 * n + 2 * h] * inverse, sums[4 * n + 2 * h + 1] * inverse);
      }
    }
  }
}
