#include "multilinear/sampling/device_kernels.h"

#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/embedded_sources.h"

namespace clebsch::sampling {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_sampling.inc"
  }};
  return sources;
}

std::vector<cuda::Kernel> load_fixed(const std::string& name, const std::vector<std::string>& entries) {
  const int arch = cuda::device_limits(cuda::current_device()).arch;
  return cuda::load_module(compile_source(name, arch, cuda::CubinCache::standard()).code, entries);
}

DeviceKernels* load_all() {
  // Side by side into the cache first: alone, draw_rows takes as long as the others together.
  const int arch = cuda::device_limits(cuda::current_device()).arch;
  std::vector<cuda::CompileRequest> requests;
  for (const std::string& name : device_sources()) requests.push_back({name, embedded()[name]});
  cuda::compile_all(requests, arch);
  auto kernels = std::make_unique<DeviceKernels>();
  auto found =
      load_fixed("build_tree", {"gram_of_32_columns", "gram_of_64_columns", "gram_of_96_columns", "gram_of_128_columns",
                                "gram_of_more_columns", "sum_nodes", "component_tree", "column_range", "set_entry"});
  kernels->gram_of_32_columns = found[0];
  kernels->gram_of_64_columns = found[1];
  kernels->gram_of_96_columns = found[2];
  kernels->gram_of_128_columns = found[3];
  kernels->gram_of_more_columns = found[4];
  kernels->sum_nodes = found[5];
  kernels->component_tree = found[6];
  kernels->column_range = found[7];
  kernels->set_entry = found[8];
  found = load_fixed("draw_groups", {"start_groups", "step_groups", "regroup", "leverages"});
  kernels->start_groups = found[0];
  kernels->step_groups = found[1];
  kernels->regroup = found[2];
  kernels->leverages = found[3];
  found = load_fixed("draw_rows", {"walk_32", "walk_46", "walk_65", "walk_92", "walk_131", "walk_any"});
  kernels->walk_32 = found[0];
  kernels->walk_46 = found[1];
  kernels->walk_65 = found[2];
  kernels->walk_92 = found[3];
  kernels->walk_131 = found[4];
  kernels->walk_any = found[5];
  found = load_fixed("sampled_rows", {"mix_samples", "take_rows", "fill_ones"});
  kernels->mix_samples = found[0];
  kernels->take_rows = found[1];
  kernels->fill_ones = found[2];
  return kernels.release();
}

}  // namespace

const std::vector<std::string>& device_sources() {
  static const std::vector<std::string> names{"build_tree", "draw_groups", "draw_rows", "sampled_rows"};
  return names;
}

cuda::Cubin compile_source(const std::string& name, int arch, const cuda::CubinCache& cache) {
  return cuda::cached_compile(cache, embedded()[name], name, arch);
}

std::shared_ptr<const DeviceKernels> DeviceKernels::make() { return cuda::one_a_device<DeviceKernels>(load_all); }

}  // namespace clebsch::sampling
