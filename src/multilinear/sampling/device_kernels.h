#pragma once
// The sampler's CUDA kernels, compiled for the current device and loaded.
#include <memory>
#include <string>
#include <vector>

#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"
#include "multilinear/sampling/kernels/sampling.h"

namespace clebsch::sampling {

struct DeviceKernels {
  cuda::KernelOf<GramArguments> gram_of_32_columns, gram_of_64_columns, gram_of_96_columns, gram_of_128_columns,
      gram_of_more_columns;
  cuda::KernelOf<NodeSumArguments> sum_nodes;
  cuda::KernelOf<ComponentArguments> component_tree;
  cuda::KernelOf<ColumnArguments> column_range;
  cuda::KernelOf<EntryArguments> set_entry;
  cuda::KernelOf<StepArguments> start_groups, step_groups, regroup;
  cuda::KernelOf<LeverageArguments> leverages;
  cuda::KernelOf<WalkArguments> walk_32, walk_46, walk_65, walk_92, walk_131, walk_any;
  cuda::KernelOf<MixArguments> mix_samples;
  cuda::KernelOf<TakeArguments> take_rows, fill_ones;

  /// Made at the first call for a device and kept. Throws Error when a kernel cannot be compiled.
  static std::shared_ptr<const DeviceKernels> make();
};

/// Names of the CUDA files, and machine code of one of them through the cache.
const std::vector<std::string>& device_sources();
cuda::Cubin compile_source(const std::string& name, int arch, const cuda::CubinCache& cache);

}  // namespace clebsch::sampling
