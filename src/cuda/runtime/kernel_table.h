#pragma once
// Which kernels a call of an op needs: one table, read by `clebsch compile`, by a model that is loaded on a device, and
// by tests. An op's row compiles through the function that its launcher uses, so sources, options and cache keys are
// those of the run.
#include <functional>
#include <string>
#include <vector>

#include "cuda/plan/device_limits.h"
#include "cuda/plan/scalar.h"
#include "cuda/runtime/cubin_cache.h"

namespace clebsch::cuda {

/// A call of an op, as far as it decides which kernels are used.
struct OpCall {
  std::string op;       ///< name in ops.schema, e.g. "tensor_product_conv_backward"
  std::string problem;  ///< text form
  Scalar scalar = Scalar::f32;
  std::vector<bool> mask;     ///< of a derivative: which gradients are wanted; else empty
  bool deterministic = true;  ///< the graph has its transpose
  bool splines = false;       ///< of an interaction: it reads its tables as splines
  int pieces = 0, slots = 0;  ///< of an interaction that is projected (cuda/interaction/projection.h); else 0
  std::string plan = {};      ///< of an interaction or convolution: plan_text(); "": the environment's
};

/// Machine code that one kernel's launcher loads, and how it is launched.
struct CompiledPart {
  Cubin cubin;
  std::string plan;        ///< the schedule in words; "" for small helpers
  int threads = 0;         ///< a block; 0: not planned
  int min_blocks = 1;      ///< blocks a multiprocessor that were planned for
  int dynamic_shared = 0;  ///< bytes a block that a launch asks for beside what the kernels declare
};

/// A kernel with the small ones launched beside it.
struct KernelJob {
  std::string label;    ///< "tensor_product_conv_backward x harmonics weights float", unique with the problem
  std::string problem;  ///< text form
  std::function<std::vector<CompiledPart>(const CubinCache& cache)> compile;  ///< plans and compiles; throws Error
};

struct KernelResult {
  std::string label, problem;
  std::vector<CompiledPart> parts;  ///< empty after an error
  double seconds = 0;               ///< planning included
  std::string error;                ///< with the compiler's log; "" when all is well
};

/// One kernel of a module as it was compiled.
struct KernelUse {
  std::string name;           ///< its entry in the module
  KernelResources resources;  ///< dynamic shared memory with the static
  int threads = 0;            ///< a block; 0: not planned
  double occupancy = 0;       ///< theoretical, 0 to 1; 0 where threads are not planned
  bool main = false;          ///< in the module that the job is named after, not in a helper's
};

/// Every kernel of a result, those of the main module first.
std::vector<KernelUse> kernels_of(const KernelResult& result, const DeviceLimits& limits);

/// Kernels of a call on a device with these limits; empty for ops that are not generated. Throws Error for a problem
/// that is not valid.
std::vector<KernelJob> kernel_jobs(const OpCall& call, const DeviceLimits& limits);
/// The same for several calls, each kernel once.
std::vector<KernelJob> kernel_jobs(const std::vector<OpCall>& calls, const DeviceLimits& limits);
/// Compiles in parallel threads, at most `threads` (0: one a core). No device is needed. Results are in the order of
/// the jobs; errors are in them. `report` as of in_threads (cuda/runtime/kernel_compiler.h).
std::vector<KernelResult> compile_jobs(const std::vector<KernelJob>& jobs, const CubinCache& cache, int threads = 0,
                                       const std::function<void(size_t)>& report = {});
/// Throws one Error that names every kernel that failed, with the compiler's log.
void require_compiled(const std::vector<KernelResult>& results);

/// What forces and virials are summed with after the ops of every model; no op of a model file calls it.
constexpr const char* kEdgeForces = "edge_forces";

// The rows of the table, each in the file of its op.
std::vector<KernelJob> edge_forces_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> edge_embedding_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> conv_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> interaction_jobs(const OpCall& call, const DeviceLimits& limits);
/// Of an interaction that is projected.
std::vector<KernelJob> projection_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> symmetric_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> linear_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> gate_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> grade_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> readout_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> allegro_jobs(const OpCall& call, const DeviceLimits& limits);
std::vector<KernelJob> pair_repulsion_jobs(const OpCall& call, const DeviceLimits& limits);

}  // namespace clebsch::cuda
