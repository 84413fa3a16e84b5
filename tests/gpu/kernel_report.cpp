// Plans and compiles every kernel of the named problems and prints a JSON report: schedule, registers, shared memory,
// spills. Needs NVRTC but no GPU. tests/gpu's scripts read the problems from it.
//
//   kernel_report [ARCH [NAME]] > tests/gpu/results/kernels.json        ARCH: 90 unless given; one problem alone
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "core/registry.h"
#include "cuda/kernel_compiler.h"
#include "cuda/kernel_source.h"

namespace {

using namespace clebsch;
using namespace clebsch::cuda;

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

int report(int arch, const std::string& only) {
  DeviceLimits limits;
  limits.arch = arch;
  std::string separator;
  std::printf("{\"arch\": %d, \"nvrtc\": %s, \"problems\": [\n", arch, quoted(nvrtc_version()).c_str());
  for (const NamedProblem& named : named_problems()) {
    const auto problem = cached_problem(named.problem);
    bool supported = true;
    for (const Path& path : problem->paths) supported &= path.mode == Connection::uvu;
    if (!supported || (!only.empty() && only != named.name)) continue;
    std::vector<std::string> labels;
    std::vector<CompiledKernel> kernels;
    for (Scalar scalar : {Scalar::f32, Scalar::f64}) {
      for (const char* label : {"forward", "backward deterministic", "backward atomic"}) {
        BackwardOutputs outputs;
        outputs.deterministic = std::string(label) != "backward atomic";
        const auto plan = [&](const ScheduleOptions& options) {
          return std::string(label) == "forward" ? conv_forward_source(*problem, scalar, limits, options)
                                                 : conv_backward_source(*problem, scalar, outputs, limits, options);
        };
        labels.push_back(std::string(label) + " " + scalar_name(scalar));
        kernels.push_back(compile_without_spills(plan, {}, arch));
      }
    }
    std::printf("%s{\"name\": %s, \"problem\": %s, \"kernels\": [", separator.c_str(), quoted(named.name).c_str(),
                quoted(named.problem).c_str());
    separator = ",\n";
    for (size_t i = 0; i < kernels.size(); ++i) {
      const KernelResources& k = kernels[i].cubin.kernels.front();
      const Schedule& schedule = kernels[i].source.schedule;
      std::printf(
          "%s\n  {\"kernel\": %s, \"registers\": %d, \"shared\": %d, \"stack\": %d, \"spill\": %d, \"threads\": %d, "
          "\"blocks\": %d, \"plan\": %s}",
          i ? "," : "", quoted(labels[i]).c_str(), k.registers, k.shared_bytes, k.stack_bytes, k.spill_bytes,
          schedule.threads(), schedule.min_blocks, quoted(schedule.str()).c_str());
    }
    std::printf("]}");
  }
  std::printf("\n]}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return report(argc > 1 ? std::atoi(argv[1]) : 90, argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_report: %s\n", error.what());
    return 1;
  }
}
