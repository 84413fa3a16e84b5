#pragma once
// Loaded kernels of this process: compiled (or read from the on-disk cache) and loaded once a device.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "cuda/nvrtc.h"

namespace clebsch::cuda {

/// What is to be compiled: a source and the entry points wanted of it.
struct ModuleRequest {
  std::string name;  ///< of the cache file, e.g. "conv_forward"
  std::string source;
  std::vector<std::string> entries;
};

/// The modules in order, each with its entries in order, on the current device. Modules not yet loaded are compiled in
/// parallel threads. Thread safe. Throws Error with the compiler's log; a failure is not remembered.
std::vector<std::vector<Kernel>> load_kernels(const std::vector<ModuleRequest>& requests);

/// Compiles sources in parallel threads, at most one a core, through the on-disk cache; loads nothing, needs no GPU.
std::vector<Cubin> compile_all(const std::vector<ModuleRequest>& requests, int arch);

}  // namespace clebsch::cuda
