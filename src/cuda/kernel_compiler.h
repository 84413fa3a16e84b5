#pragma once
// Sources to machine code through the on-disk cache: many at once, and with a remedy against spills.
#include <functional>
#include <string>
#include <vector>

#include "cuda/kernel_source.h"
#include "cuda/nvrtc.h"

namespace clebsch::cuda {

struct CompileRequest {
  std::string name;  ///< of the cache file, e.g. "conv_forward"
  std::string source;
};

/// Compiles sources in parallel threads, at most one a core; loads nothing, needs no GPU. Throws the first Error.
std::vector<Cubin> compile_all(const std::vector<CompileRequest>& requests, int arch);

struct CompiledKernel {
  KernelSource source;
  Cubin cubin;
};

/// Compiles what `make` plans. As long as the result spills registers to memory and the plan wanted several blocks a
/// multiprocessor, plans again with one block less, so that each thread has more registers.
CompiledKernel compile_without_spills(const std::function<KernelSource(const ScheduleOptions&)>& make,
                                      ScheduleOptions options, int arch);

}  // namespace clebsch::cuda
