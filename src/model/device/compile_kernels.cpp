// GPU kernels of a model: those that the ops it was seen to call need, compiled ahead of the first step.
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "core/errors.h"
#include "core/problem/problem.h"
#include "model/keep_plan.h"
#include "model/run/impl.h"

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/interaction/interaction.h"
#include "cuda/interaction/projection.h"
#include "cuda/plan/device_limits.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/tuned_plans.h"
#endif

namespace clebsch {

#ifdef CLEBSCH_HAS_CUDA
namespace {

/// Calls of every run of the model, whichever types are in use: pairs of one type have one table a layer, those of
/// several may have several, which kernels may read as splines instead; a projection is of the number of types in use,
/// and pays for few alone. Complete for a model that was loaded with one type in use.
std::vector<cuda::OpCall> calls_for_any_types(const Model::Impl& model) {
  const std::vector<double>& cutoffs = model.metadata.shown.pair_cutoffs;
  const int types = static_cast<int>(model.metadata.shown.type_names.size());
  const bool one_cutoff = std::all_of(cutoffs.begin(), cutoffs.end(), [&](double c) { return c == cutoffs.front(); });
  std::vector<cuda::OpCall> calls;
  for (const cuda::OpCall& call : model.calls) {
    calls.push_back(call);
    if (cutoffs.size() == 1 || call.op.rfind("interaction", 0) != 0) continue;
    const auto problem = cached_problem(call.problem);
    const auto pays = [&](int slots) {
      return cuda::interaction_projects(*problem, 1, call.pieces, slots, call.scalar);
    };
    cuda::OpCall other = call;
    for (other.slots = 1; call.slots > 0 && other.slots <= types && pays(other.slots); ++other.slots)
      calls.push_back(other);  // each kernel is compiled once
    other.slots = other.pieces = 0;
    const bool one_table = one_cutoff && problem->radial->transform == DistanceTransform::none;
    for (const int64_t tables : {1, one_table ? 1 : 2}) {
      other.splines = cuda::interaction_splines(tables, *problem->radial, call.scalar);
      calls.push_back(other);
    }
  }
  return calls;
}

std::vector<cuda::KernelResult> compile(const std::vector<cuda::OpCall>& calls, const cuda::DeviceLimits& limits,
                                        const KernelOptions& options) {
  std::vector<cuda::KernelJob> jobs = cuda::kernel_jobs(calls, limits);
  if (!jobs.empty()) {
    for (auto& job : cuda::kernel_jobs(cuda::OpCall{cuda::kEdgeForces, "", cuda::Scalar::f64, {}, true}, limits)) {
      jobs.push_back(std::move(job));
    }
  }
  if (!options.list_only) {
    std::string reason;
    require(jobs.empty() || cuda::nvrtc_available(&reason), "GPU kernels cannot be compiled: {}", reason);
    const cuda::CubinCache cache =
        options.cache_folder.empty() ? cuda::CubinCache::standard() : cuda::CubinCache(options.cache_folder);
    if (!options.progress) return cuda::compile_jobs(jobs, cache, options.threads);
    const std::string what = fmt::format("kernels for sm_{}", limits.arch);
    options.progress(what, 0, jobs.size());
    return cuda::compile_jobs(jobs, cache, options.threads,
                              [&](size_t done) { options.progress(what, done, jobs.size()); });
  }
  std::vector<cuda::KernelResult> results;
  for (const cuda::KernelJob& job : jobs) results.push_back({job.label, job.problem, {}, 0, ""});
  return results;
}

}  // namespace

std::vector<KernelReport> Model::compile_kernels(const KernelOptions& options) const {
  const cuda::DeviceLimits limits =
      options.arch > 0 ? cuda::limits_of_architecture(options.arch) : cuda::device_limits(cuda::current_device());
  std::vector<KernelReport> reports;
  for (const cuda::KernelResult& result : compile(calls_for_any_types(*impl_), limits, options)) {
    KernelReport report;
    report.kernel = result.label;
    report.problem = result.problem;
    report.error = result.error;
    report.arch = limits.arch;
    report.seconds = result.seconds;
    report.cached = !result.parts.empty();
    for (const cuda::CompiledPart& part : result.parts) {
      report.cached = report.cached && part.cubin.cached;
      report.stored = report.stored + !part.cubin.file.empty();
      ++report.files;
    }
    if (!result.parts.empty()) {
      report.plan = result.parts.front().plan;
      for (const cuda::KernelResources& kernel : result.parts.front().cubin.kernels) {
        report.registers = std::max(report.registers, kernel.registers);
        report.shared_bytes = std::max(report.shared_bytes, kernel.shared_bytes + result.parts.front().dynamic_shared);
        report.spill_bytes += kernel.spill_bytes;
      }
    }
    for (const cuda::KernelUse& use : cuda::kernels_of(result, limits)) {
      const cuda::KernelResources& kernel = use.resources;
      report.entries.push_back(
          {use.name, kernel.registers, kernel.spill_bytes, kernel.shared_bytes, use.threads, use.occupancy});
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

void Model::prepare(const Progress& progress) const {
  const c10::DeviceGuard guard(impl_->device.device);
  const auto limits = cuda::device_limits(cuda::current_device());
  KernelOptions options;
  options.progress = progress;
  std::vector<cuda::OpCall> calls = impl_->calls;
  for (cuda::OpCall& call : calls) {
    const bool conv = call.op.rfind("tensor_product_conv", 0) == 0;
    if (!conv && call.op.rfind("interaction", 0) != 0) continue;
    const char* option = conv ? "CLEBSCH_CUDA_SCHEDULE" : "CLEBSCH_CUDA_INTERACTION";
    call.plan = cuda::plan_text(option, call.scalar, cached_problem(call.problem)->str());
  }
  cuda::require_compiled(compile(calls, limits, options));
}

std::string keep_plan(const std::string& folder, const std::string& option, const std::string& dtype,
                      const std::string& problem, const std::string& plan) {
  require(dtype == "float32" || dtype == "float64", "keep_plan: expected float32 or float64, got '{}'", dtype);
  require(option == "CLEBSCH_CUDA_SCHEDULE" || option == "CLEBSCH_CUDA_INTERACTION",
          "keep_plan: expected CLEBSCH_CUDA_SCHEDULE or CLEBSCH_CUDA_INTERACTION, got '{}'", option);
  std::string reason;
  require(cuda::driver_available(&reason), "plans are measured and kept on a GPU: {}", reason);
  const cuda::CubinCache cache = folder.empty() ? cuda::CubinCache::standard() : cuda::CubinCache(folder);
  const cuda::Scalar scalar = dtype == "float32" ? cuda::Scalar::f32 : cuda::Scalar::f64;
  const cuda::PlanKey key = cuda::plan_key(option.c_str(), scalar, cached_problem(problem)->str());
  return cuda::TunedPlans(cache).store(key, plan);
}

std::string kernel_cache_problem(const std::string& folder) {
  return (folder.empty() ? cuda::CubinCache::standard() : cuda::CubinCache(folder)).problem();
}

std::string kernel_cache_refusal(const std::string& folder) {
  return (folder.empty() ? cuda::CubinCache::standard() : cuda::CubinCache(folder)).refusal();
}

std::string kernel_cache_folder() { return cuda::CubinCache::standard().folder(); }

std::vector<int> kernel_architectures() { return cuda::known_architectures(); }

KernelCompiler kernel_compiler() {
  KernelCompiler found;
  if (cuda::nvrtc_available(&found.problem)) found.version = cuda::nvrtc_version();
  return found;
}
#else
namespace {

constexpr const char* kNoBackend = "this libclebsch was built without the GPU backend (CLEBSCH_CUDA=OFF)";

}  // namespace

std::vector<KernelReport> Model::compile_kernels(const KernelOptions&) const { fail("{}", kNoBackend); }
void Model::prepare(const Progress&) const { fail("{}", kNoBackend); }
std::string keep_plan(const std::string&, const std::string&, const std::string&, const std::string&,
                      const std::string&) {
  fail("{}", kNoBackend);
}
std::string kernel_cache_problem(const std::string&) { return kNoBackend; }
std::string kernel_cache_refusal(const std::string&) { return ""; }
std::string kernel_cache_folder() { return ""; }
std::vector<int> kernel_architectures() { return {}; }
KernelCompiler kernel_compiler() { return {"", kNoBackend}; }
#endif

}  // namespace clebsch
