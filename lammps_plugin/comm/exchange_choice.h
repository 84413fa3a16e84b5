// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Whether `comm auto` lets ranks exchange features or gives them deeper ghosts.
#include "model/model.h"

namespace clebsch_lammps {

/// For a model that can be evaluated in parts, on several ranks. The same on every rank. On the CPU a row takes far
/// longer to evaluate than its features take to be sent, so there the answer is yes wherever there is anything to
/// exchange. On a GPU it depends on how features travel; deeper ghosts are what it takes there without being asked.
inline bool exchange_pays(const clebsch::Model& model) { return model.device() == "cpu"; }

}  // namespace clebsch_lammps
