// Which kernels a convolution needs, planned and compiled.
#include <algorithm>

#include "core/errors.h"
#include "cuda/conv/tensor_product_conv.h"
#include "cuda/emit/reductions.h"
#include "cuda/plan/environment.h"
#include "cuda/plan/path_terms.h"
#include "cuda/plan/plan_text.h"
#include "cuda/runtime/kernel_compiler.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {

std::vector<ConvPart> conv_parts(const std::shared_ptr<const Problem>& problem) {
  const auto is_uvw = [](const Path& path) { return path.mode == Connection::uvw; };
  const auto& paths = problem->paths;
  if (std::none_of(paths.begin(), paths.end(), is_uvw)) return {{problem, false, false}};
  if (std::all_of(paths.begin(), paths.end(), is_uvw)) return {{problem, true, false}};
  // finish() is not called again: the paths of a part keep their columns of the whole W.
  Problem uvu = *problem, uvw = *problem;
  uvu.paths.erase(std::remove_if(uvu.paths.begin(), uvu.paths.end(), is_uvw), uvu.paths.end());
  uvw.paths.erase(std::remove_if(uvw.paths.begin(), uvw.paths.end(), [&](const Path& p) { return !is_uvw(p); }),
                  uvw.paths.end());
  return {{std::make_shared<const Problem>(std::move(uvu)), false, false},
          {std::make_shared<const Problem>(std::move(uvw)), true, true}};
}

bool fuses_double_backward(const Problem& problem, Scalar scalar) {
  // Instructions an edge over all paths up to which it is one kernel. Measured: NVRTC takes 15 s for 7net-l3i5 in fp32
  // (4,995), a minute for nequip-XL (8,823), three for test-l7 (4,517) in fp64.
  constexpr int kMostFused = 5000;
  int code = 0;
  for (size_t p = 0; p < problem.paths.size(); ++p) {
    if (problem.paths[p].mode == Connection::uvw) return false;
    code += double_backward_cost(path_terms(problem, static_cast<int>(p)));
  }
  return code * scalar_bytes(scalar) / 4 <= kMostFused;
}

bool sums_in_windows(const BackwardOutputs& outputs, Scalar scalar, const ScheduleOptions& options) {
  return outputs.x && outputs.deterministic && scalar == Scalar::f32 && options.integers != 0;
}

CompiledConv compile_conv(const ConvPart& part, Scalar scalar, const ConvPass& pass, const DeviceLimits& limits,
                          const ScheduleOptions& options, const CubinCache& cache) {
  const Problem& problem = *part.problem;
  const auto plan = [&](const ScheduleOptions& chosen) {
    if (const auto* wanted = std::get_if<DoubleBackwardOutputs>(&pass)) {
      return conv_double_backward_source(problem, scalar, *wanted, limits, chosen);
    }
    const auto* wanted = std::get_if<BackwardOutputs>(&pass);
    if (part.uvw) {
      return wanted ? uvw_backward_source(problem, scalar, *wanted, part.adds, limits, chosen)
                    : uvw_forward_source(problem, scalar, part.adds, limits, chosen);
    }
    return wanted ? conv_backward_source(problem, scalar, *wanted, limits, chosen)
                  : conv_forward_source(problem, scalar, limits, chosen);
  };
  CompiledKernel main = compile_without_spills(plan, options, limits.arch, cache);
  const auto* twice = std::get_if<DoubleBackwardOutputs>(&pass);
  const std::string reductions = reductions_source(problem, main.source.schedule, twice && twice->edges.windows);
  Cubin sums = cached_compile(cache, reductions, "reductions", limits.arch);
  return {main.source.schedule, main.source.name, std::move(main.cubin), std::move(sums)};
}

std::vector<KernelJob> conv_jobs(const OpCall& call, const DeviceLimits& limits) {
  ConvPass pass;
  std::string label = call.op;
  const std::vector<bool>& mask = call.mask;
  const auto name = [&](bool made, const char* text) { label += made ? text : ""; };
  if (call.op == "tensor_product_conv_double_backward") {
    require(mask.size() == 7, "{}: expected a mask of 7, got {}", call.op, mask.size());
    if (!mask[0] && !mask[1] && !mask[2] && !mask[3]) return {};
    pass = DoubleBackwardOutputs{mask[4], mask[5], mask[6], mask[0], {mask[1], mask[2], mask[3], call.deterministic}};
    name(mask[0], " grad_out");
    name(mask[1], " x");
    name(mask[2], " harmonics");
    name(mask[3], " weights");
    label += " of";
    name(mask[4], " x");
    name(mask[5], " harmonics");
    name(mask[6], " weights");
    name(mask[1] && !call.deterministic, " atomic");
  } else if (call.op != "tensor_product_conv") {
    require(mask.size() == 3, "{}: expected a mask of 3, got {}", call.op, mask.size());
    if (!mask[0] && !mask[1] && !mask[2]) return {};
    pass = BackwardOutputs{mask[0], mask[1], mask[2], call.deterministic};
    name(mask[0], " x");
    name(mask[1], " harmonics");
    name(mask[2], " weights");
    name(mask[0] && !call.deterministic, " atomic");
  }
  const auto problem = cached_problem(call.problem);
  const bool twice = std::holds_alternative<DoubleBackwardOutputs>(pass);
  if (twice && !fuses_double_backward(*problem, call.scalar)) return {};  // made of the other passes
  constexpr const char* kVariable = "CLEBSCH_CUDA_SCHEDULE";
  const ScheduleOptions options =
      parse_schedule_options(kVariable, call.plan.empty() ? environment_text(kVariable) : call.plan);
  std::vector<KernelJob> jobs;
  const auto add = [&](const ConvPass& chosen, const std::string& name) {
    for (const ConvPart& part : conv_parts(problem)) {
      jobs.push_back({name + (part.uvw ? " uvw " : " ") + scalar_name(call.scalar), call.problem,
                      [part, scalar = call.scalar, chosen, limits, options](const CubinCache& cache) {
                        CompiledConv made = compile_conv(part, scalar, chosen, limits, options, cache);
                        const Schedule& schedule = made.schedule;
                        return std::vector<CompiledPart>{
                            {std::move(made.main), schedule.str(), schedule.threads(), schedule.min_blocks},
                            {std::move(made.sums), "", kReductionThreads, 1}};
                      }});
    }
  };
  // Which sums of dX a call takes depends on its graph.
  DoubleBackwardOutputs windows = twice ? std::get<DoubleBackwardOutputs>(pass) : DoubleBackwardOutputs{};
  windows.edges.windows = true;
  const bool either = twice && sums_in_windows(windows.edges, call.scalar, options);
  if (!either || options.integers < 0) add(pass, label);
  if (either) add(windows, label + " windows");
  return jobs;
}

}  // namespace clebsch::cuda
