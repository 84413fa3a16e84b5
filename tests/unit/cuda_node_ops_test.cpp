// The kernels of the node work compile for every architecture without spilling registers.
#include <gtest/gtest.h>

#include <iostream>

#include "cuda/edge_forces.h"
#include "cuda/kernel_table.h"
#include "cuda/known_devices.h"
#include "nvrtc_needed.h"

namespace clebsch::cuda {
namespace {

TEST(CudaNodeOps, CompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  const std::string linear = "linear in=192x0e+384x1o+96x2e out=128x0e+64x1o+32x2e";
  const std::string gate = "gate scalars=64x0e+8x0o gates=64x0e gated=32x1o+32x2e silu=1.679 tanh=1.594";
  const DeviceLimits limits = limits_of_architecture(90);
  std::vector<OpCall> calls;
  for (const Scalar scalar : {Scalar::f32, Scalar::f64}) {
    calls.push_back({"linear", linear, scalar, {}, true});
    calls.push_back({"species_linear", linear, scalar, {}, true});
    calls.push_back({"gate", gate, scalar, {}, true});
  }
  calls.push_back({"pair_repulsion_backward", "zbl p=6 scale=7.2", Scalar::f64, {}, true});
  const std::vector<KernelJob> jobs = kernel_jobs(calls, limits);
  EXPECT_EQ(jobs.size(), 4u * 2 + 2 + 1) << "species_linear shares the kernels of linear";
  const std::vector<KernelResult> results = compile_jobs(jobs, CubinCache(""));
  require_compiled(results);
  for (const KernelResult& result : results) {
    for (const KernelResources& kernel : result.parts.at(0).cubin.kernels) {
      std::cout << result.label << ": " << kernel.name << " " << kernel.registers << " registers, "
                << kernel.shared_bytes << " bytes shared\n";
      EXPECT_EQ(kernel.spill_bytes, 0) << result.label;
    }
  }
  EXPECT_EQ(compile(edge_forces_source(), "edge_forces", 90).kernels.at(0).spill_bytes, 0);
}

}  // namespace
}  // namespace clebsch::cuda
