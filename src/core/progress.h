#pragma once
// How long work tells its caller how far it is; the library itself never prints.
#include <cstddef>
#include <functional>
#include <string>

namespace clebsch {

/// Is told that `done` of `total` steps of the work that `what` names ("radial tables", "kernels for sm_90") are done.
/// It is called in the thread that asked for the work; an empty function is not called. If it throws, the work ends as
/// soon as the steps that have begun are over, and the exception reaches the caller of the work.
using Progress = std::function<void(const std::string& what, std::size_t done, std::size_t total)>;

}  // namespace clebsch
