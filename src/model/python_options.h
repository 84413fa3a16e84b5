#pragma once
// What Python says when it loads a model, as words.
#include <ATen/core/Dict.h>

#include <string>

#include "model/model.h"

namespace clebsch {

/// Options of Model::load by name, as src/python/clebsch/runtime.py writes them. Throws Error naming an option or a
/// value that there is not, with those that there are.
LoadOptions parse_options(const c10::Dict<std::string, std::string>& options);

}  // namespace clebsch
