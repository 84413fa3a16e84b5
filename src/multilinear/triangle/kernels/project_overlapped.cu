// left and right of rows of x, where all weights lie in shared memory, on the tensor cores of compute capability 9.0.
// Two warpgroups norm rows. Two others multiply, one for left and one for right. Each of these has registers for the
// sums of two units of 32 channels: while the tensor cores compute one unit's sums, the warpgroup turns the other's
// into left or right and stores them. So the time from sums to stores is hidden by its own products and by the other
// warpgroup's, and the two need not take turns as in project_warpgroups.cu. warpgroups.cuh says what this is compiled
// with.
//
// x in 32 bits wants more memory for copies under way, which leaves room for one part of normed rows instead of two:
// products of a part then begin when the part before is stored.
//
// A unit is the 64 rows of a product: warp w has rows 16 w .. + 15, the projections of eight channels and then the
// gates of the same channels. So a lane has projection and gate of one channel, and a unit's 64 sums a lane can be
// turned into results without others.
#include "multilinear/triangle/kernels/rows_of_x_warpgroups.cuh"

constexpr int kBuffers = CLEBSCH_BUFFERS, kConsumers = 2, kOthers = kNormers / 4;
constexpr int kThreads = 128 * (kOthers + kConsumers);
constexpr int kUnits = kH / kUnitChannels;  ///< of left, and of right
constexpr int kUnitBytes = kBlocks * kMatrix;
constexpr bool kTwo = kBuffers == 2;
static_assert(kUnits <= kNormers, "a warp tells of a unit's weights, and there are 15 named barriers");
static_assert(kUnits % 2 == 0 && kNormers == 8 && !kStored && kResident, "what the plan gives it");
static_assert(kTwo ? kSlots > 0 : kBuffers == 1 && RowsCopied::kKept, "slots beside two parts, or a slot a turn");
static_assert(kStages * kMatrix == 2 * kUnits * kUnitBytes, "all weights are in shared memory");
/// Lanes that tell of rows: see project_warpgroups.cu.
constexpr int kTelling = kKeeps ? 32 : 1;
constexpr int kProducerRegisters = 88, kConsumerRegisters = 168;
// What lies where in shared memory. Barriers: rows there, rows used, units of weights there, slots filled.
constexpr int kRowsAt = kStages * kMatrix, kSlotsAt = kRowsAt + kBuffers * kRowsBytes,
              kBarriersAt = kSlotsAt + kNormers * kSlots * RowsCopied::kSlotBytes;
constexpr int kPlacesAt = kBarriersAt + 16 * kBuffers + 16 * kUnits + 8 * kNormers * kSlots;
constexpr int kMasksAt = kPlacesAt + 16 * kBuffers;
constexpr int kBiasesAt = kMasksAt + kBuffers * kMaskBytes;  ///< of each warpgroup's last unit: projection, gate
static_assert(kBiasesAt + kConsumers * kUnitChannels * 8 <= 227 * 1024, "a block's shared memory");

/// As barrier_arrive, without a branch.
__device__ __forceinline__ void arrive_where(bool where, unsigned barrier) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%1];\n}" ::"r"(
                   static_cast<int>(where)),
               "r"(barrier)
               : "memory");
}

/// The named barrier of a unit but the first, of left or of right: one warp arrives when the unit's weights are there,
/// and the warpgroup that multiplies with them waits for it, without a branch.
__device__ __forceinline__ int barrier_of_unit(int right, int unit) { return right * (kUnits - 1) + unit; }
__device__ __forceinline__ void await_unit_where(bool where, int barrier) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p bar.sync %1, 160;\n}" ::"r"(static_cast<int>(where)),
               "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void unit_is_there(int barrier) {
  asm volatile("bar.arrive %0, 160;" ::"r"(barrier) : "memory");
}

/// Where a part's rows go in a channel of left or right, and how many rows follow in the batch.
struct Place {
  long long first;
  int rows;
};

/// Where a lane's eight adjacent rows of a part go in the channel of a unit, and how many rows of it are there.
struct Target {
  unsigned short* to = nullptr;
  int rows = 0;
};

/// Stores a unit's channels from its sums: the lane's channel, rows 32 q + 8 t .. + 7. Goes on by `on` numbers.
__device__ __forceinline__ void store_unit(Target& target, long long on, const MaskOfPart& mask, const Kept& kept,
                                           float projection, float gate, float factor, const float (&sums)[64]) {
  const int t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    unsigned pairs[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int at = 16 * q + 4 * n;
      float x = sums[at] + projection, y = sums[at + 1] + projection;
      if (CLEBSCH_NUMBER == 2) {
        x *= factor;
        y *= factor;
      }
      x += x * tanh_near(sums[at + 2] + gate);
      y += y * tanh_near(sums[at + 3] + gate);
      if (kMask == kNumberMask) {
        const float2 by = *reinterpret_cast<const float2*>(mask.numbers + 8 * t + 32 * q + 2 * n);
        x *= by.x;
        y *= by.y;
      }
      pairs[n] = pack(x, y);
      if (kKeeps) pairs[n] &= part_of(kept.rows[q], n);
    }
    store_where(32 * q < target.rows, target.to + 32 * q, pairs);
  }
  target.to += on;
}

/// Sums of a unit's channels and 128 rows, from the low words of descriptors of the first 16 columns of both.
__device__ __forceinline__ void multiply_unit(float (&sums)[64], unsigned unit, unsigned rows) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 4 * kBlocks; ++step) {
    const unsigned of_unit = unit + (step / 4 * kMatrix + step % 4 * 32) / 16,
                   of_rows = rows + (step / 4 * kRowsBlock + step % 4 * 32) / 16;
    multiply_scores(sums, described(of_unit), described(of_rows), step > 0 ? 1 : 0);
  }
  end_products();
}

/// Units are taken from another one on in each block: all would read the same weights at the same time.
__device__ __forceinline__ int unit_of_block(int at) { return (static_cast<int>(blockIdx.x) + at) % kUnits; }

/// Asks for all units of weights, when they are made; of left and right in turn.
__device__ __forceinline__ void ask_for_weights(const FusedArguments& a, unsigned shared, unsigned there) {
  await_kernel_before();
  const char* const units = static_cast<const char*>(a.in_fragments);
#pragma unroll 1
  for (int i = 0; i < 2 * kUnits; ++i) {
    const int first = i % 2 * kUnits, at = first + i / 2;
    barrier_expect(there + 8 * at, kUnitBytes);
    copy_bulk(shared + at * kUnitBytes, units + (first + unit_of_block(i / 2)) * kUnitBytes, kUnitBytes,
              there + 8 * at);
  }
}

/// Parts that this block takes.
__device__ __forceinline__ int parts_of_block(const FusedArguments& a) {
  const int blocks = static_cast<int>(gridDim.x);
  return (Part::count(a) - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
}

/// Waits for all products.
__device__ __forceinline__ void sums_of_all(float (&sums)[64]) {
  await_products<0>();
  hold(sums);
}
/// Waits for all products but the last unit's, and has what follows behind their start: ptxas would put them among it.
__device__ __forceinline__ void sums_of_before(float (&sums)[64]) {
  await_products<1>();
  hold(sums);
}

/// Blocks take parts of 128 rows in turn. As many blocks as parts at most.
extern "C" __global__ void __launch_bounds__(kThreads, 1) project_overlapped(FusedArguments a) {
  extern __shared__ __align__(1024) unsigned char base[];
  const unsigned shared = shared_address(base), rows_there = shared + kBarriersAt,
                 rows_used = rows_there + 8 * kBuffers, there = rows_used + 8 * kBuffers, filled = there + 16 * kUnits;
  // The same in all lanes of a warp, which the compiler does not see of threadIdx: descriptors lie in uniform
  // registers.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);
  const int lane = static_cast<int>(threadIdx.x % 32);
  PartsInTurn parts(a);
  RowsCopied rows(base + kSlotsAt, filled);
  if (group < kOthers) {
    // x and the mask were there before the kernel that made matrices began. Rows are asked for here, and normed once
    // that kernel has ended, for which the warp that asks for weights waits.
    rows.begin(a, parts.get(), parts.is_there(a));
  } else if (threadIdx.x < 128 * kOthers + 32) {
    // Those of rows, then those of weights.
    constexpr int kOfRows = 2 * kBuffers, kCount = kOfRows + 2 * kUnits;
    static_assert(kCount <= 32, "a lane each");
    const int arrivals = lane < kBuffers ? kTelling * kNormers : lane < kOfRows ? 4 * kConsumers : 1;
    if (lane < kCount) barrier_begin(rows_there + 8 * lane, arrivals);
    fence_copies();
    __syncwarp();
    if (lane == 0) ask_for_weights(a, shared, there);
    __syncwarp();
  }
  __syncthreads();
  // Of the parts in the buffers: those who multiply have no registers to count them.
  Place* const places = reinterpret_cast<Place*>(base + kPlacesAt);
  if (group < kOthers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    Ring<kBuffers> ring;
    const bool has_mask = kKeeps && threadIdx.x < kGroupRows;
    const auto read_mask = [&](const Part& part) -> unsigned {
      return has_mask ? bits_of_mask(a, part.batch, part.first + static_cast<int>(threadIdx.x)) : 0;
    };
    bool told = false;  // that weights are there
    unsigned of_mask = 0;
    if (parts.is_there(a)) of_mask = read_mask(parts.get());
    while (parts.is_there(a)) {
      const Part part = parts.get();
      parts.next();
      const bool has_next = parts.is_there(a);
      const Part next = has_next ? parts.get() : part;
      if (!kTwo) rows.norm_all(a, next, has_next);
      barrier_wait(rows_used + 8 * ring.at, ring.parity ^ 1);
      if (threadIdx.x == 0) places[ring.at] = {part.batch * kH * a.plane + part.first, a.rows - part.first};
      unsigned char* const to = base + kRowsAt + ring.at * kRowsBytes;
      if (!kTwo) {
        rows.write_all(to);
      } else if (RowsCopied::kWhole) {
        rows.write_whole(a, next, has_next, to);
      } else {
        rows.write_part(a, part, next, has_next, to);
      }
      if (has_mask) reinterpret_cast<MaskOfPart*>(base + kMasksAt + ring.at * kMaskBytes)->write(mask_of_bits(of_mask));
      fence_copies();
      __syncwarp();
      if (lane < kTelling) barrier_arrive(rows_there + 8 * ring.at);
      ring.next();
      of_mask = read_mask(next);  // a part before it is used, and as far as can be before the next fence
      // The first rows are normed: each warp but the first waits for weights of a unit and tells of them.
      if (!told) {
        told = true;
        const int unit = static_cast<int>(threadIdx.x / 32);
        for (int right = 0; right < 2 && 0 < unit && unit < kUnits; ++right) {
          barrier_wait(there + 8 * (right * kUnits + unit), 0);
          __syncwarp();
          unit_is_there(barrier_of_unit(right, unit));
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    const int right = group - kOthers, g = lane / 4, t = lane % 4;
    const int channel = 8 * static_cast<int>(threadIdx.x % 128 / 32) + g;  // of a unit
    const unsigned first_unit = low_of_description(shared + right * kUnits * kUnitBytes);
    await_kernel_before();
    float projections[kUnits], gates[kUnits];  // biases of the lane's channels
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const float* const bias =
          a.in_bias + 2 * kUnitChannels * (right * kUnits + unit_of_block(unit)) + channel / 8 * 16 + channel % 8;
      projections[unit] = __ldg(bias);
      gates[unit] = __ldg(bias + 8);
    }
    // Those of the last unit are loaded where they are used, after the products before which ptxas would put their use.
    float* const of_last = reinterpret_cast<float*>(base + kBiasesAt) + 2 * (kUnitChannels * right + channel);
    if (t == 0) {
      of_last[0] = projections[kUnits - 1];
      of_last[1] = gates[kUnits - 1];
    }
    __syncwarp();
    unsigned short* const channels = static_cast<unsigned short*>(right != 0 ? a.right : a.left) +
                                     (kUnitChannels * unit_of_block(0) + channel) * a.plane + 8 * t;
    // From the unit at i to the next one.
    const auto on = [&](int i) {
      return (unit_of_block(0) + i == kUnits - 1 ? 1 - kUnits : 1) * kUnitChannels * a.plane;
    };
    const float factor = right != 0 ? 1.0f : a.left_factor;  // 0.5 is in the weights (prepare.cu)
    float even[64], odd[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      even[i] = 0.0f;
      // Else undefined: ptxas would take zeros for numbers that are written while products are under way (C7515).
      if (kTwo) odd[i] = 0.0f;
    }
    Ring<kBuffers> ring;
    Target target;
    Kept kept{};
    const auto mask_at = [&](int buffer) -> const MaskOfPart& {
      return *reinterpret_cast<const MaskOfPart*>(base + kMasksAt + buffer * kMaskBytes);
    };
    // Tells that this warp needs a part's rows and mask no more. Every lane reads the mask, and one lane tells.
    const auto give_back = [&](int buffer, bool gives) {
      __syncwarp();
      arrive_where(gives && lane == 0, rows_used + 8 * buffer);
    };
    bool first = true;
    for (int left = parts_of_block(a); left > 0; --left) {
      if (!kTwo && !first) {  // the last unit of the part before
        sums_of_all(odd);
        if (kMask != kNumberMask) give_back(0, true);
        store_unit(target, 0, mask_at(0), kept, of_last[0], of_last[1], factor, odd);
        if (kMask == kNumberMask) give_back(0, true);
      }
      barrier_wait(rows_there + 8 * ring.at, ring.parity);
      const unsigned rows = low_of_description(shared + kRowsAt + ring.at * kRowsBytes);
      if (first) barrier_wait(there + 8 * right * kUnits, 0);
      // The last unit of the part before: behind branches, or ptxas would wait for it within the epilogue before.
      if (kTwo) sums_of_all(odd);
      // Unknown in each part, or all that is added to them would be kept in registers.
      unsigned of_units = first_unit;
      int barriers = right * (kUnits - 1);
      asm volatile("" : "+r"(of_units), "+r"(barriers));
      // From here to the end of the part without branches: with one ptxas would wait for each product.
#pragma unroll
      for (int unit = 0; unit < kUnits; unit += 2) {
        if (unit > 0) await_unit_where(first, barriers + unit);
        multiply_unit(even, of_units + unit * (kUnitBytes / 16), rows);
        if (kTwo && unit == 0 && kMask != kNumberMask) give_back(ring.at ^ 1, !first);
        if (kTwo || unit > 0) sums_of_before(odd);
        if (unit > 0) {
          store_unit(target, on(unit - 1), mask_at(ring.at), kept, projections[unit - 1], gates[unit - 1], factor, odd);
        } else if (kTwo) {
          // Of the part before. In the first part nothing is stored; its own mask is read, which is there by now.
          const volatile float* const biases = of_last;
          store_unit(target, 0, mask_at(first ? ring.at : ring.at ^ 1), kept, biases[0], biases[1], factor, odd);
          if (kMask == kNumberMask) give_back(ring.at ^ 1, !first);
        }
        await_unit_where(first, barriers + unit + 1);
        if (unit == 0) {  // no sooner, or registers would have what is of both parts
          const Place place = places[ring.at];
          target.to = channels + place.first;
          target.rows = place.rows - 8 * t;
          kept.read(mask_at(ring.at));
        }
        multiply_unit(odd, of_units + (unit + 1) * (kUnitBytes / 16), rows);
        sums_of_before(even);
        store_unit(target, on(unit), mask_at(ring.at), kept, projections[unit], gates[unit], factor, even);
      }
      first = false;
      ring.next();
    }
    sums_of_all(odd);
    store_unit(target, 0, mask_at(kTwo ? ring.at ^ 1 : 0), kept, of_last[0], of_last[1], factor, odd);
  }
}
