#pragma once
// Runs the threads of a grid, block after block, as fibers of the calling thread.
#include <string>

namespace clebsch::emulator {

/// A kernel as cuda_on_cpu.h wraps it: called once a thread with the addresses of the arguments.
using Kernel = void (*)(void** arguments);

/// Runs the whole grid. Returns "" or what went wrong: a deadlock, lanes at different barriers, an exited lane.
/// Not for several threads at once (the index variables are global): the caller locks.
std::string run(Kernel kernel, unsigned grid_x, unsigned grid_y, unsigned threads, void** arguments);

}  // namespace clebsch::emulator
