#include "cuda/nodes/gate.h"

#include "cuda/nodes/gate_source.h"
#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

Cubin compile_gate(const GateProblem& problem, Scalar scalar, int arch, const CubinCache& cache) {
  return cached_compile(cache, gate_source(problem, scalar), "gate", arch);
}

}  // namespace

std::vector<KernelJob> gate_jobs(const OpCall& call, const DeviceLimits& limits) {
  const auto problem = cached_gate_problem(call.problem);
  return {{fmt::format("gate {}", scalar_name(call.scalar)), call.problem,
           [problem, scalar = call.scalar, arch = limits.arch](const CubinCache& cache) {
             return std::vector<CompiledPart>{{compile_gate(*problem, scalar, arch, cache), "", kGateThreads, 1}};
           }}};
}

std::shared_ptr<const Gate> Gate::make(const std::shared_ptr<const GateProblem>& problem, Scalar scalar) {
  return one_a_device<Gate>([&] { return new Gate(problem, scalar); }, problem.get(), scalar);
}

Gate::Gate(std::shared_ptr<const GateProblem> problem, Scalar scalar)
    : problem_(std::move(problem)), items_(gate_items(make_gate_plan(*problem_))) {
  const int arch = device_limits(current_device()).arch;
  const Cubin cubin = compile_gate(*problem_, scalar, arch, CubinCache::standard());
  const std::vector<Kernel> kernels = load_module(cubin.code, {"gate_forward", "gate_backward"});
  forward_ = kernels[0];
  backward_ = kernels[1];
}

void Gate::forward(const void* x, const int32_t* row_limit, int32_t nodes, void* out, Stream stream) const {
  forward_.launch((nodes * items_ + kGateThreads - 1) / kGateThreads, 1, kGateThreads, stream,
                  {false, x, nullptr, row_limit, nodes, out});
}

void Gate::backward(const void* x, const void* grad_out, const int32_t* row_limit, int32_t nodes, void* grad_x,
                    Stream stream) const {
  backward_.launch((nodes * items_ + kGateThreads - 1) / kGateThreads, 1, kGateThreads, stream,
                   {true, x, grad_out, row_limit, nodes, grad_x});
}

}  // namespace clebsch::cuda
