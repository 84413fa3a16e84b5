#pragma once
// The operators a model file may use (allowed_ops.txt, compiled in).
#include <string>
#include <string_view>

namespace clebsch {

/// True for names such as "aten::mul" that are in allowed_ops.txt.
bool is_allowed_op(std::string_view name);

}  // namespace clebsch
