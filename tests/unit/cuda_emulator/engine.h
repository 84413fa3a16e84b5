#pragma once
// Runs the threads of a grid, block after block, as fibers of the calling thread.
#include <cstdint>
#include <string>

namespace clebsch::emulator {

/// A kernel as cuda_on_cpu.h wraps it: called once a thread with the addresses of the arguments.
using Kernel = void (*)(void** arguments);

/// Called before every block of a kernel, cuda_on_cpu.h's begin_block.
using BeginBlock = void (*)(uint64_t seed);

/// Runs the whole grid: blocks one after another, and between two barriers the threads of a block one after another,
/// both in an order that follows from the seed CLEBSCH_TEST_SEED (1 without it) and the number of the launch. Returns
/// "" or what went wrong: a deadlock, lanes at different barriers, an exited lane. Not for several threads at once (the
/// index variables are global): the caller locks.
std::string run(Kernel kernel, BeginBlock begin_block, unsigned grid_x, unsigned grid_y, unsigned threads,
                void** arguments);

}  // namespace clebsch::emulator
