#pragma once
// How long work tells its caller how far it is; the library itself never prints.
#include <cstddef>
#include <functional>
#include <string>

namespace clebsch {

/// `done` of `total` steps of the work that `what` names ("radial tables", "kernels for sm_90") are done. Work calls it
/// in the thread that asked for the work, and calls none that is empty. What it throws ends the work as soon as the
/// steps that have begun are over, and reaches the caller of the work.
using Progress = std::function<void(const std::string& what, std::size_t done, std::size_t total)>;

}  // namespace clebsch
