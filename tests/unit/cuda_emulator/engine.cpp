#include "engine.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "cuda_on_cpu.h"

extern "C" {
EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;
}

namespace clebsch::emulator {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

/// A place where threads wait for each other.
struct Meeting {
  uint64_t generation = 0;
  unsigned arrived = 0;
  int line = 0;
};

struct Warp {
  Meeting meeting;
  unsigned awaited = 0;  ///< lanes that those who wait at the meeting wait for
  unsigned gone = 0;     ///< lanes that have left the kernel
  // Two sets, because a lane may hand over its next value while another still reads the last ones.
  alignas(16) char slots[2][32 * 16];
};

struct Fiber {
  ucontext_t start;
  jmp_buf state;
  char* stack = nullptr;
  bool begun = false, done = false;
  const Meeting* waits_at = nullptr;
  uint64_t waits_for = 0;  ///< goes on once the meeting's generation is no longer this
};

/// An mbarrier of shared memory. Its phases are the meeting's generations.
struct Barrier {
  Meeting meeting;
  unsigned arrivals = 0, missing = 0;
  long long bytes = 0;  ///< of copies that are still to come

  void advance_if_complete() {
    if (missing > 0 || bytes != 0) return;
    missing = arrivals;
    ++meeting.generation;
  }
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Meeting all;
  std::array<Meeting, 16> named;
  std::map<unsigned, Barrier> barriers;  ///< by address
  unsigned present = 0;
  unsigned current = 0;
  jmp_buf scheduler;
  ucontext_t main;
  Kernel kernel = nullptr;
  void** arguments = nullptr;
  std::vector<unsigned> order;       ///< of the threads
  std::vector<unsigned> warp_order;  ///< the first is ahead of the others, where one is
  std::mt19937_64 random;
  std::string error;
};

Block* block = nullptr;

Fiber& self() { return block->fibers[block->current]; }

/// Back to the scheduler. setjmp without signal masks: a switch is some ten nanoseconds.
void pause() {
  if (_setjmp(self().state) == 0) _longjmp(block->scheduler, 1);
}

[[noreturn]] void stop(const std::string& what) {
  if (block->error.empty()) {
    block->error = what + " (block " + std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.y) + ", thread " +
                   std::to_string(threadIdx.x) + ")";
  }
  _longjmp(block->scheduler, 1);
}

void meet(Meeting& meeting, unsigned expected, int line, const char* what) {
  if (meeting.arrived == 0) meeting.line = line;
  if (meeting.line != line) {
    stop(std::string(what) + ": threads meet at lines " + std::to_string(meeting.line) + " and " +
         std::to_string(line));
  }
  if (++meeting.arrived >= expected) {
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  self().waits_at = &meeting;
  self().waits_for = meeting.generation;
  pause();
  self().waits_at = nullptr;
}

std::string left_the_kernel(int line, unsigned lane) {
  return "line " + std::to_string(line) + ": lane " + std::to_string(lane) + " of the mask has left the kernel";
}

Warp& warp_of_lanes(unsigned mask, int line) {
  const unsigned first = block->current / 32 * 32;
  if (!(mask >> (block->current - first) & 1)) stop("line " + std::to_string(line) + ": a lane is not in its own mask");
  Warp& warp = block->warps[first / 32];
  if (mask & warp.gone) stop(left_the_kernel(line, static_cast<unsigned>(__builtin_ctz(mask & warp.gone))));
  if (warp.meeting.arrived > 0 && warp.awaited != mask) {
    stop("line " + std::to_string(line) + ": lanes of one warp meet with different masks");
  }
  warp.awaited = mask;
  return warp;
}

unsigned lanes_in(unsigned mask) {
  const size_t lanes = block->fibers.size() - block->current / 32 * 32;
  if (lanes < 32) mask &= (1u << lanes) - 1;
  return static_cast<unsigned>(__builtin_popcount(mask));
}

/// One block after another: to make a context costs two system calls, to come back to one none.
void enter() {
  for (;;) {
    block->kernel(block->arguments);
    self().done = true;
    --block->present;
    Warp& warp = block->warps[block->current / 32];
    const unsigned lane = block->current % 32;
    warp.gone |= 1u << lane;
    if (warp.meeting.arrived > 0 && (warp.awaited >> lane & 1)) stop(left_the_kernel(warp.meeting.line, lane));
    // A block's barrier does not wait for whoever left.
    if (block->all.arrived > 0 && block->all.arrived >= block->present) {
      block->all.arrived = 0;
      ++block->all.generation;
    }
    pause();
  }
}

bool can_run(const Fiber& fiber) {
  return !fiber.done && (!fiber.waits_at || fiber.waits_at->generation != fiber.waits_for);
}

void resume(unsigned index) {
  Fiber& fiber = block->fibers[index];
  block->current = index;
  threadIdx = {index, 0, 0};
  if (_setjmp(block->scheduler) != 0) return;
  if (fiber.begun) _longjmp(fiber.state, 1);
  fiber.begun = true;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack;
  // Tops at equal distances would all lie in the same few lines of the cache.
  fiber.start.uc_stack.ss_size = kStackBytes - index % 64 * 1088;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, enter, 0);
  setcontext(&fiber.start);
}

std::string deadlock() {
  std::string lines;
  for (size_t i = 0; i < block->fibers.size(); ++i) {
    const Fiber& fiber = block->fibers[i];
    if (fiber.done) continue;
    const std::string line = " " + std::to_string(fiber.waits_at->line);
    if (lines.find(line) == std::string::npos) lines += line;
  }
  return "threads wait for ever at lines" + lines + " (block " + std::to_string(blockIdx.x) + "," +
         std::to_string(blockIdx.y) + ")";
}

/// Lets every thread that can go on come to its next barrier. Threads are in step to within one barrier.
bool advance_all() {
  bool moved = false;
  std::shuffle(block->order.begin(), block->order.end(), block->random);
  for (const unsigned i : block->order) {
    if (!can_run(block->fibers[i])) continue;
    moved = true;
    resume(i);
    if (!block->error.empty()) break;
  }
  return moved;
}

/// Lets the first warp that can go on come to its next barrier: a warp is ahead of those behind it until it waits for
/// them, so that a __syncwarp in the place of a __syncthreads shows.
bool advance_first_warp() {
  std::array<unsigned, 32> lanes;
  for (const unsigned warp : block->warp_order) {
    unsigned ready = 0;
    for (unsigned i = 32 * warp; i < 32 * warp + 32 && i < block->fibers.size(); ++i) {
      if (can_run(block->fibers[i])) lanes[ready++] = i;
    }
    if (ready == 0) continue;
    std::shuffle(lanes.begin(), lanes.begin() + ready, block->random);
    for (unsigned k = 0; k < ready && block->error.empty(); ++k) {
      if (can_run(block->fibers[lanes[k]])) resume(lanes[k]);
    }
    return true;
  }
  return false;
}

void run_block() {
  for (Fiber& fiber : block->fibers) {
    fiber.done = false;
    fiber.waits_at = nullptr;
  }
  for (Warp& warp : block->warps) {
    warp.meeting = Meeting{};
    warp.awaited = warp.gone = 0;
  }
  block->all = Meeting{};
  block->named = {};
  block->barriers.clear();
  block->present = static_cast<unsigned>(block->fibers.size());
  const bool one_ahead = block->random() % 2 != 0;
  std::shuffle(block->warp_order.begin(), block->warp_order.end(), block->random);
  while (block->present > 0) {
    bool moved = one_ahead ? advance_first_warp() : advance_all();
    if (!block->error.empty()) return;
    // Bulk copies arrive in any order, some of them when everybody waits.
    if (!moved || block->random() % 2 != 0) moved |= emulated::finish_a_copy(block->random());
    if (!moved) {
      block->error = deadlock();
      return;
    }
  }
  if (emulated::has_open_copies()) block->error = "a block ends before its bulk copies do";
}

/// The seed of the order of threads and blocks: CLEBSCH_TEST_ORDER, else CLEBSCH_TEST_SEED, else a new one.
uint64_t order_seed() {
  for (const char* name : {"CLEBSCH_TEST_ORDER", "CLEBSCH_TEST_SEED"}) {
    if (const char* chosen = std::getenv(name)) return std::strtoull(chosen, nullptr, 10);
  }
  return std::random_device{}();
}

uint64_t seed = order_seed(), launches = 0;
/// Kept from launch to launch: memory that is new has to be cleared by the system.
std::vector<std::unique_ptr<char[]>> stacks;

}  // namespace

std::string run(Kernel kernel, BeginBlock begin_block, unsigned grid_x, unsigned grid_y, unsigned threads,
                void** arguments) {
  Block here;
  here.random.seed((seed << 32) + launches++);
  here.fibers = std::vector<Fiber>(threads);
  here.warps = std::vector<Warp>((threads + 31) / 32);
  while (stacks.size() < threads) stacks.emplace_back(new char[kStackBytes]);
  for (unsigned i = 0; i < threads; ++i) here.fibers[i].stack = stacks[i].get();
  here.kernel = kernel;
  here.arguments = arguments;
  here.order.resize(threads);
  std::iota(here.order.begin(), here.order.end(), 0u);
  here.warp_order.resize(here.warps.size());
  std::iota(here.warp_order.begin(), here.warp_order.end(), 0u);
  std::vector<unsigned> blocks(size_t{grid_x} * grid_y);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::shuffle(blocks.begin(), blocks.end(), here.random);
  block = &here;
  gridDim = {grid_x, grid_y, 1};
  blockDim = {threads, 1, 1};
  for (const unsigned index : blocks) {
    blockIdx = {index % grid_x, index / grid_x, 0};
    begin_block(here.random());
    run_block();
    if (!here.error.empty()) break;
  }
  block = nullptr;
  return here.error;
}

uint64_t begin_test() {
  seed = order_seed();
  launches = 0;
  return seed;
}

extern "C" {

void emulated_meet_block(int line) { meet(block->all, block->present, line, "__syncthreads"); }

void emulated_meet_some(int barrier, int threads, int line) {
  meet(block->named[static_cast<size_t>(barrier)], static_cast<unsigned>(threads), line, "barrier.sync");
}

void emulated_meet_named(int barrier, int threads, int waits, int line) {
  Meeting& meeting = block->named[static_cast<size_t>(barrier)];
  meeting.line = line;
  if (waits) {
    meet(meeting, static_cast<unsigned>(threads), line, "bar.sync");
  } else if (++meeting.arrived >= static_cast<unsigned>(threads)) {
    meeting.arrived = 0;
    ++meeting.generation;
  }
}

void emulated_barrier_begin(unsigned address, int arrivals) {
  if (address % 8 != 0) stop("an mbarrier is not aligned to 8 bytes");
  Barrier& barrier = block->barriers[address];
  barrier = Barrier{};
  barrier.arrivals = barrier.missing = static_cast<unsigned>(arrivals);
}

void emulated_barrier_arrive(unsigned address, unsigned bytes) {
  const auto found = block->barriers.find(address);
  if (found == block->barriers.end()) stop("an arrival at what is no mbarrier");
  if (found->second.missing == 0) stop("more arrivals at an mbarrier than it waits for");
  --found->second.missing;
  found->second.bytes += bytes;
  found->second.advance_if_complete();
}

void emulated_barrier_take(unsigned address, unsigned bytes) {
  const auto found = block->barriers.find(address);
  if (found == block->barriers.end()) stop("a copy tells what is no mbarrier");
  found->second.bytes -= bytes;
  found->second.advance_if_complete();
}

void emulated_barrier_wait(unsigned address, unsigned parity, int line) {
  const auto found = block->barriers.find(address);
  if (found == block->barriers.end()) stop("line " + std::to_string(line) + ": a wait at what is no mbarrier");
  Meeting& meeting = found->second.meeting;
  // One bit: what is a whole turn behind looks as if it were done.
  while ((meeting.generation & 1) == parity) {
    meeting.line = line;
    self().waits_at = &meeting;
    self().waits_for = meeting.generation;
    pause();
    self().waits_at = nullptr;
  }
}

void emulated_meet_warp(unsigned mask, int line) {
  meet(warp_of_lanes(mask, line).meeting, lanes_in(mask), line, "__syncwarp");
}

const char* emulated_exchange(unsigned mask, const void* value, unsigned size, int line) {
  Warp& warp = warp_of_lanes(mask, line);
  char* slots = warp.slots[warp.meeting.generation & 1];
  std::memcpy(slots + 16 * (block->current % 32), value, size);
  meet(warp.meeting, lanes_in(mask), line, "warp exchange");
  return slots;
}

void emulated_fail(const char* what, int line) { stop("line " + std::to_string(line) + ": " + what); }

}  // extern "C"

}  // namespace clebsch::emulator
