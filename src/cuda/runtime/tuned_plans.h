#pragma once
// Plans of kernels that were measured to be the fastest on a device (`clebsch compile --tune`), beside its compiled
// kernels: one small text file for each device, library version and kernel problem.
//
// A file is believed only when its whole key is equal, its checksum right and its plan one that the planner reads.
// Anything else is ignored with a message, and the planner's own choice is used: nothing here throws for a file.
#include <optional>
#include <string>
#include <vector>

#include "cuda/plan/scalar.h"
#include "cuda/runtime/cubin_cache.h"

namespace clebsch::cuda {

/// What a choice holds for. The driver is no part of it.
struct PlanKey {
  std::string device;   ///< name, e.g. "NVIDIA H200"
  int arch = 0;         ///< compute capability, 10 * major + minor
  std::string version;  ///< of the library
  std::string option;   ///< the environment variable that would choose the plan, e.g. "CLEBSCH_CUDA_INTERACTION"
  std::string scalar;   ///< "float" or "double"
  std::string problem;  ///< text form
};

struct FoundPlan {
  std::optional<std::string> plan;  ///< "" is the planner's own choice, measured to be the best
  std::string message;              ///< why a file that is there is not used; else ""
};

class TunedPlans {
 public:
  /// In the folder of a cache of kernels, whose owner and permissions were looked at.
  explicit TunedPlans(const CubinCache& cache) : folder_(cache.folder()) {}
  /// The file of a key, "" without a folder.
  std::string path(const PlanKey& key) const;
  FoundPlan load(const PlanKey& key) const;
  /// "", or why the file is not there: no folder, a text that is no plan, what the system says.
  std::string store(const PlanKey& key, const std::string& plan) const;

 private:
  std::string folder_;
};

/// Why a text is no plan of this option; "" when it is one.
std::string plan_problem(const std::string& option, const std::string& plan);

/// The key of a problem's kernels on the current device.
PlanKey plan_key(const char* option, Scalar scalar, const std::string& problem);

/// The text that decides the plan of a problem's kernels on the current device: the environment variable `option` where
/// it is set, else what was measured, unless CLEBSCH_CUDA_TUNED=0; "" leaves all to the planner. A file is read once a
/// process.
std::string plan_text(const char* option, Scalar scalar, const std::string& problem);

/// What plan_text() had to say since the last call: files that it did not use.
std::vector<std::string> take_plan_messages();
bool has_plan_messages();

}  // namespace clebsch::cuda
