#pragma once
// Plans of GPU kernels that were measured, for `clebsch compile --tune`.
#include <string>

namespace clebsch {

/// Keeps the plan of a problem's kernels, for the current device and this version of the library, beside the compiled
/// kernels in a folder ("": the standard one). `option`: the environment variable that would choose the plan. Returns
/// "", or why it is not kept. Throws Error without a GPU.
std::string keep_plan(const std::string& folder, const std::string& option, const std::string& dtype,
                      const std::string& problem, const std::string& plan);

}  // namespace clebsch
