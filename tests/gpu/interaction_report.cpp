// Plans and compiles the interaction kernels of named problems and prints one line each: plan, registers, shared
// memory, spills, warps a multiprocessor. Needs NVRTC but no GPU.
//
//   interaction_report [ARCH [NAME...]]        ARCH: 90 unless given; the models' problems unless named
//   interaction_report --source ARCH NAME f32|f64 forward|deterministic|atomic       the CUDA source alone
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "core/registry.h"
#include "cuda/interaction_kernels.h"
#include "cuda/kernel_compiler.h"

namespace {

using namespace clebsch;
using namespace clebsch::cuda;

DeviceLimits limits_of(int arch) {
  DeviceLimits limits;
  limits.arch = arch;
  if (arch == 80) limits.shared_per_multiprocessor = 167936;
  if (arch == 120) {
    limits.warps_per_multiprocessor = 48;
    limits.shared_per_multiprocessor = 102400;
  }
  return limits;
}

KernelSource generate(const Problem& problem, Scalar scalar, const std::string& label, const DeviceLimits& limits,
                      const ScheduleOptions& options) {
  InteractionOutputs outputs;
  outputs.deterministic = label == "deterministic";
  return label == "forward" ? interaction_forward_source(problem, scalar, limits, options)
                            : interaction_backward_source(problem, scalar, outputs, limits, options);
}

int report(int arch, const std::vector<std::string>& names) {
  const DeviceLimits limits = limits_of(arch);
  const ScheduleOptions forced = schedule_options("CLEBSCH_CUDA_INTERACTION");
  for (const std::string& name : names) {
    const auto problem = cached_problem(named_problem(name).problem);
    for (Scalar scalar : {Scalar::f32, Scalar::f64}) {
      for (const char* label : {"forward", "atomic"}) {
        const auto plan = [&](const ScheduleOptions& options) {
          return generate(*problem, scalar, label, limits, options);
        };
        const CompiledKernel compiled = compile_without_spills(plan, forced, arch);
        const KernelResources& k = compiled.cubin.kernels.front();
        const Schedule& schedule = compiled.source.schedule;
        const int registers = std::max(8, (k.registers + 7) / 8 * 8);
        const int blocks = std::min({limits.registers_per_multiprocessor / (registers * schedule.threads()),
                                     limits.warps_per_multiprocessor / schedule.warps(),
                                     limits.shared_per_multiprocessor / (k.shared_bytes + 1024)});
        std::printf("| %s | %s %s | %d | %d | %d | %d x %d | %d |  <!-- sm_%d; chunk %d; %s -->\n", name.c_str(),
                    scalar_name(scalar), label, k.registers, k.spill_bytes, k.shared_bytes, blocks, schedule.warps(),
                    blocks * schedule.warps(), arch, schedule.chunk, schedule.str().c_str());
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 6 && std::string(argv[1]) == "--source") {
      const auto problem = cached_problem(named_problem(argv[3]).problem);
      const Scalar scalar = std::string(argv[4]) == "f64" ? Scalar::f64 : Scalar::f32;
      const DeviceLimits limits = limits_of(std::atoi(argv[2]));
      const KernelSource kernel =
          generate(*problem, scalar, argv[5], limits, schedule_options("CLEBSCH_CUDA_INTERACTION"));
      std::printf("%s", kernel.source.c_str());
      return 0;
    }
    std::vector<std::string> names(argv + std::min(argc, 2), argv + argc);
    if (names.empty()) {
      names = {"nequip-S", "nequip-M", "nequip-L", "nequip-water", "mace-l1", "mace-M", "mace-L"};
    }
    return report(argc > 1 ? std::atoi(argv[1]) : 90, names);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "interaction_report: %s\n", error.what());
    return 1;
  }
}
