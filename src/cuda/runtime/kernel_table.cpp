#include "cuda/runtime/kernel_table.h"

#include <chrono>
#include <set>

#include "core/errors.h"
#include "cuda/plan/occupancy.h"
#include "cuda/runtime/kernel_compiler.h"

namespace clebsch::cuda {
namespace {

struct Row {
  const char* op;  ///< and its derivatives, whose names begin with it
  std::vector<KernelJob> (*jobs)(const OpCall& call, const DeviceLimits& limits);
};

constexpr Row kTable[] = {
    {"tensor_product_conv", conv_jobs},
    {"interaction", interaction_jobs},
    {"interaction_density", interaction_jobs},
    {"symmetric_contraction", symmetric_jobs},
    {"linear", linear_jobs},
    {"species_linear", linear_jobs},
    {"gate", gate_jobs},
    {"extrapolation", grade_jobs},
    {"readout", readout_jobs},
    {"readout_gradient", readout_jobs},
    {"pair_repulsion", pair_repulsion_jobs},
    {kEdgeForces, edge_forces_jobs},
    {"edge_embedding", edge_embedding_jobs},
    {"allegro_energy", allegro_jobs},
    {"allegro_energy_gradient", allegro_jobs},
    {"allegro_features", allegro_jobs},
    {"allegro_features_gradient", allegro_jobs},
};

}  // namespace

std::vector<KernelJob> kernel_jobs(const OpCall& call, const DeviceLimits& limits) {
  for (const Row& row : kTable) {
    const std::string op = row.op;
    for (const char* order : {"", "_backward", "_double_backward"}) {
      if (call.op == op + order) return row.jobs(call, limits);
    }
  }
  return {};
}

std::vector<KernelJob> kernel_jobs(const std::vector<OpCall>& calls, const DeviceLimits& limits) {
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<KernelJob> jobs;
  for (const OpCall& call : calls) {
    for (KernelJob& job : kernel_jobs(call, limits)) {
      if (seen.emplace(job.label, job.problem).second) jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

std::vector<KernelResult> compile_jobs(const std::vector<KernelJob>& jobs, const CubinCache& cache, int threads,
                                       const std::function<void(size_t)>& report) {
  std::vector<KernelResult> results(jobs.size());
  const auto work = [&](size_t i) {
    KernelResult& result = results[i];
    result.label = jobs[i].label;
    result.problem = jobs[i].problem;
    const auto start = std::chrono::steady_clock::now();
    try {
      result.parts = jobs[i].compile(cache);
    } catch (const std::exception& error) {
      result.error = error.what();
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  in_threads(jobs.size(), threads, work, report);
  return results;
}

std::vector<KernelUse> kernels_of(const KernelResult& result, const DeviceLimits& limits) {
  std::vector<KernelUse> uses;
  for (size_t part = 0; part < result.parts.size(); ++part) {
    const int threads = result.parts[part].threads;
    for (const KernelResources& kernel : result.parts[part].cubin.kernels) {
      KernelUse use{kernel.name, kernel, threads, 0, part == 0};
      use.resources.shared_bytes += result.parts[part].dynamic_shared;
      if (threads > 0) use.occupancy = occupancy(limits, {threads, kernel.registers, use.resources.shared_bytes});
      uses.push_back(std::move(use));
    }
  }
  return uses;
}

void require_compiled(const std::vector<KernelResult>& results) {
  std::string text;
  size_t failed = 0;
  for (const KernelResult& result : results) {
    if (result.error.empty()) continue;
    ++failed;
    text += fmt::format("\n{} of '{}': {}", result.label, result.problem, result.error);
  }
  require(failed == 0, "{} of {} GPU kernels could not be compiled:{}", failed, results.size(), text);
}

}  // namespace clebsch::cuda
