#include "cuda/kernels/fixed_kernels.h"

#include "cuda/kernels/embedded_source.h"

namespace clebsch::cuda {

Cubin compile_fixed(const std::string& name, int arch, const CubinCache& cache) {
  return cached_compile(cache, embedded_source(name + ".cu"), name, arch);
}

std::vector<Kernel> load_fixed(const std::string& name, const std::vector<std::string>& entries) {
  const int arch = device_limits(current_device()).arch;
  return load_module(compile_fixed(name, arch, CubinCache::standard()).code, entries);
}

}  // namespace clebsch::cuda
