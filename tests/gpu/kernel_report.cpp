// Plans and compiles every kernel of the named problems and prints a JSON report: schedule, registers, shared memory,
// spills. Needs NVRTC but no GPU. tests/gpu's scripts read the problems from it.
//
//   kernel_report [ARCH] > tests/gpu/results/kernels.json        ARCH: 90 unless given
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "core/registry.h"
#include "cuda/kernel_source.h"
#include "cuda/kernel_store.h"

namespace {

using namespace clebsch;
using namespace clebsch::cuda;

struct Entry {
  std::string label;
  Schedule schedule;
};

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

int report(int arch) {
  DeviceLimits limits;
  limits.arch = arch;
  std::string separator;
  std::printf("{\"arch\": %d, \"nvrtc\": %s, \"problems\": [\n", arch, quoted(nvrtc_version()).c_str());
  for (const NamedProblem& named : named_problems()) {
    const auto problem = cached_problem(named.problem);
    bool supported = true;
    for (const Path& path : problem->paths) supported &= path.mode == Connection::uvu;
    if (!supported) continue;
    std::vector<Entry> entries;
    std::vector<ModuleRequest> requests;
    for (Scalar scalar : {Scalar::f32, Scalar::f64}) {
      for (int variant = 0; variant < 3; ++variant) {
        BackwardOutputs outputs;
        outputs.deterministic = variant == 1;
        const KernelSource source = variant == 0 ? conv_forward_source(*problem, scalar, limits)
                                                 : conv_backward_source(*problem, scalar, outputs, limits);
        static const char* const labels[] = {"forward", "backward deterministic", "backward atomic"};
        entries.push_back({std::string(labels[variant]) + " " + scalar_name(scalar), source.schedule});
        requests.push_back({source.name, source.source, {source.name}});
      }
    }
    const std::vector<Cubin> cubins = compile_all(requests, arch);
    std::printf("%s{\"name\": %s, \"problem\": %s, \"kernels\": [", separator.c_str(), quoted(named.name).c_str(),
                quoted(named.problem).c_str());
    separator = ",\n";
    for (size_t i = 0; i < cubins.size(); ++i) {
      const KernelResources& k = cubins[i].kernels.front();
      std::printf(
          "%s\n  {\"kernel\": %s, \"registers\": %d, \"shared\": %d, \"stack\": %d, \"spill\": %d, \"threads\": %d, "
          "\"blocks\": %d, \"plan\": %s}",
          i ? "," : "", quoted(entries[i].label).c_str(), k.registers, k.shared_bytes, k.stack_bytes, k.spill_bytes,
          entries[i].schedule.threads(), entries[i].schedule.min_blocks, quoted(entries[i].schedule.str()).c_str());
    }
    std::printf("]}");
  }
  std::printf("\n]}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return report(argc > 1 ? std::atoi(argv[1]) : 90);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_report: %s\n", error.what());
    return 1;
  }
}
