#pragma once
// The kernels of this folder, from their texts to what is launched.
#include <string>
#include <vector>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Machine code of NAME.cu through the cache. Throws Error when it cannot be compiled.
Cubin compile_fixed(const std::string& name, int arch, const CubinCache& cache);
/// Entry points of NAME.cu, compiled for the current device and loaded.
std::vector<Kernel> load_fixed(const std::string& name, const std::vector<std::string>& entries);

}  // namespace clebsch::cuda
