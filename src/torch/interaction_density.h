#pragma once
// What the CPU and the CUDA side of clebsch::interaction_density share.
#include <memory>
#include <string_view>

#include "core/problem/problem.h"

namespace clebsch::ops {

/// Parsed density_problem; throws Error unless it is the sum of one radial function over the neighbours.
std::shared_ptr<const Problem> density_problem(const char* op, std::string_view text);

}  // namespace clebsch::ops
