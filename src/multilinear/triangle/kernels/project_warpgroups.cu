// left, right and the gate of rows of x of any width on the tensor cores of compute capability 9.0, where not all
// weights fit in shared memory (else project_overlapped.cu). One warpgroup norms rows, two make sums of sets of
// channels in turn: while one turns sums into left or right, the tensor cores work for the other. Weights come through
// a ring of matrices, of which a thread of another warpgroup takes care. warpgroups.cuh says what this is compiled for.
#include "multilinear/triangle/kernels/rows_of_x_warpgroups.cuh"

constexpr int kBuffers = CLEBSCH_BUFFERS, kConsumers = 2, kLoader = kNormers / 4, kOthers = kLoader + 1;
constexpr int kThreads = 128 * (kOthers + kConsumers);
/// Lanes of a warp that tell of rows which it has written. One does where tensor cores read them. Others read a mask by
/// ordinary loads: there each lane tells of what it wrote itself, since compute-sanitizer's racecheck does not follow a
/// warp's barrier to the one that tells.
constexpr int kTelling = kKeeps ? 32 : 1;
/// Registers of a thread, which sum up to a multiprocessor's: with more threads a block would begin with fewer.
constexpr int kLoaderRegisters = 24, kProducerRegisters = 120, kConsumerRegisters = 184;
// What lies where in shared memory. Barriers: rows there, rows used, matrices there, matrices used.
constexpr int kRowsAt = kStages * kMatrix, kBarriersAt = kRowsAt + kBuffers * kRowsBytes,
              kMasksAt = kBarriersAt + (16 * kBuffers + 16 * kStages + 15) / 16 * 16;

/// Waits until it is this warpgroup's turn to start products, and gives it to the other.
__device__ __forceinline__ void await_turn(int mine) { asm volatile("bar.sync %0, 256;" ::"r"(1 + mine) : "memory"); }
__device__ __forceinline__ void give_turn(int mine) { asm volatile("bar.arrive %0, 256;" ::"r"(2 - mine) : "memory"); }

/// Blocks take parts of 128 rows in turn. Any grid.
extern "C" __global__ void __launch_bounds__(kThreads, 1) project_warpgroups(FusedArguments a) {
  extern __shared__ unsigned char memory[];
  unsigned char* const base = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const unsigned shared = shared_address(base), rows_there = shared + kBarriersAt,
                 rows_used = rows_there + 8 * kBuffers, there = rows_used + 8 * kBuffers, used = there + 8 * kStages;
  const int group = static_cast<int>(threadIdx.x / 128), warp = static_cast<int>(threadIdx.x % 128 / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      barrier_begin(rows_there + 8 * buffer, kTelling * kNormers);
      barrier_begin(rows_used + 8 * buffer, 4 * kConsumers);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_begin(there + 8 * stage, 1);
      barrier_begin(used + 8 * stage, 4);
    }
    fence_copies();
  }
  __syncthreads();
  const int parts = Part::count(a), blocks = static_cast<int>(gridDim.x);
  const char* const weights = static_cast<const char*>(a.in_fragments);
  const auto fetch = [&](int stage, int matrix) {
    barrier_expect(there + 8 * stage, kMatrix);
    copy_bulk(shared + stage * kMatrix, weights + matrix * kMatrix, kMatrix, there + 8 * stage);
  };
  if (group == kLoader) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kLoaderRegisters));
    if (warp == 0 && lane == 0) {
      await_kernel_before();
      Ring<kStages> ring;
      for (int at = blockIdx.x; at < parts; at += blocks) {
        for (int matrix = 0; matrix < kAllSets * kOfSet; ++matrix) {
          barrier_wait(used + 8 * ring.at, ring.parity ^ 1);  // the ring begins as used
          fetch(ring.at, matrix);
          ring.next();
        }
      }
    }
  } else if (group < kLoader) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    // x and the mask were there before the kernel that made matrices began.
    Ring<kBuffers> ring;
    RowsAhead<kD <= 128 ? 4 : 8> rows;
    if (static_cast<int>(blockIdx.x) < parts) rows.begin(a, Part(a, blockIdx.x));
    const bool has_mask = kKeeps && threadIdx.x < kGroupRows;
    for (int at = blockIdx.x; at < parts; at += blocks) {
      const Part part(a, at), next(a, min(at + blocks, parts - 1));
      const float of_mask = has_mask ? mask_of(a, part.batch, part.first + static_cast<int>(threadIdx.x)) : 0.0f;
      barrier_wait(rows_used + 8 * ring.at, ring.parity ^ 1);
      rows.write_part(a, part, next, at + blocks < parts, base + kRowsAt + ring.at * kRowsBytes);
      if (has_mask) reinterpret_cast<MaskOfPart*>(base + kMasksAt + ring.at * kMaskBytes)->write(of_mask);
      fence_copies();
      __syncwarp();
      if (lane < kTelling) barrier_arrive(rows_there + 8 * ring.at);
      ring.next();
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    const int mine = group - kOthers;
    await_kernel_before();
    if (mine == 1) give_turn(mine);  // the first is the first's
    float first[64], second[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) first[i] = second[i] = 0.0f;
    Ring<kBuffers> ring;
    Ring<kStages> stages;  // at the first set of the part
    int begin = mine;
    // Tells that this warp needs the part's rows and mask no more. Every lane reads the mask, and one lane tells.
    const auto give_back = [&] {
      __syncwarp();
      if (lane == 0) barrier_arrive(rows_used + 8 * ring.at);
    };
    for (int at = blockIdx.x; at < parts; at += blocks) {
      const Part part(a, at);
      const MaskOfPart& mask = *reinterpret_cast<const MaskOfPart*>(base + kMasksAt + ring.at * kMaskBytes);
      Kept kept;
      barrier_wait(rows_there + 8 * ring.at, ring.parity);
      kept.read(mask);
      const unsigned rows = shared + kRowsAt + ring.at * kRowsBytes;
      if (begin == 1) stages.skip_set();
#pragma unroll 1
      for (int set = begin; set < kAllSets; set += 2) {
        // The turn also keeps a warpgroup from waiting for matrices that come later than the next: a barrier tells a
        // phase from the one before it alone.
        unsigned last = 0;
        await_turn(mine);
#pragma unroll 1
        for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            barrier_wait(there + 8 * stages.at, stages.parity);
            begin_products();
            multiply_matrix(half == 0 ? first : second, shared + stages.at * kMatrix, rows + block * kRowsBlock, block);
            end_products();
            if (block + half > 0) {
              await_products<1>();
              if (lane == 0) barrier_arrive(last);
            }
            last = used + 8 * stages.at;
            stages.next();
          }
        }
        give_turn(mine);
        await_products<0>();
        if (lane == 0) barrier_arrive(last);
        hold(first);
        hold(second);
        const bool ends = set + 2 >= kAllSets;
        if (ends && kMask != kNumberMask) give_back();
        store_set(a, part, mask, kept, set, first, second);
        if (ends && kMask == kNumberMask) give_back();
        if (set + 1 < kAllSets) stages.skip_set();
      }
      if (begin >= kAllSets) give_back();
      // Sets are counted on from part to part, or turns would not alternate.
      if (kAllSets % 2 == 1) begin ^= 1;
      ring.next();
    }
  }
}
