#pragma once
// Sources to machine code through the on-disk cache: many at once, and with a remedy against spills.
#include <functional>
#include <string>
#include <vector>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/kernel_source.h"

namespace clebsch::cuda {

/// Calls work(0) .. work(count - 1) in parallel threads, at most `threads` (0: one a core). Work must not throw.
/// `report`, where given, is called in the calling thread with how many are done, whenever more are. What it throws is
/// thrown again once the work that has begun is done; what has not begun is left out.
void in_threads(size_t count, int threads, const std::function<void(size_t)>& work,
                const std::function<void(size_t)>& report = {});

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

/// Compiles what `make` plans. When the result spills registers to memory, plans again: first without the ring, unless
/// it was asked for; then with one block less a multiprocessor or, when that is one already, with half the receivers a
/// block, so that a thread has more registers; and in fp32, when a thread has all registers that there are, with units
/// of fewer paths. Returns the attempt that spills least, the first of equals.
CompiledKernel compile_without_spills(const std::function<KernelSource(const ScheduleOptions&)>& make,
                                      ScheduleOptions options, int arch,
                                      const CubinCache& cache = CubinCache::standard());

}  // namespace clebsch::cuda
