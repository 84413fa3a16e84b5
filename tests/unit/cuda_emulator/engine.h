#pragma once
// Runs the threads of a grid, block after block, as fibers of the calling thread.
#include <cstdint>
#include <string>

namespace clebsch::emulator {

/// A kernel as cuda_on_cpu.h wraps it: called once a thread with the addresses of the arguments.
using Kernel = void (*)(void** arguments);

/// Called before every block of a kernel, cuda_on_cpu.h's begin_block.
using BeginBlock = void (*)(uint64_t seed);

/// Runs the whole grid: blocks one after another, and the threads of a block from barrier to barrier, either all in
/// step or one warp ahead of the others as far as barriers let it, in an order that follows from a seed (begin_test)
/// and the number of the launch. Returns "" or what went wrong: a deadlock, lanes at different barriers, an exited
/// lane. Not for several threads at once (the index variables are global): the caller locks.
std::string run(Kernel kernel, BeginBlock begin_block, unsigned grid_x, unsigned grid_y, unsigned threads,
                void** arguments);

/// Begins the numbers of launches anew, so that a test's order does not depend on the tests before it. Returns the seed
/// of the order: CLEBSCH_TEST_ORDER, else CLEBSCH_TEST_SEED, which data follow too, else a new one for every test.
uint64_t begin_test();

}  // namespace clebsch::emulator
