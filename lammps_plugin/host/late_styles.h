// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Styles whose code is in a library that is opened when the first of them is made: torch costs a process seconds and
// half a gigabyte, and LAMMPS opens a plugin of LAMMPS_PLUGIN_PATH in every run.
#include "host/registration.h"
#include "host/style_library.h"

namespace clebsch_lammps {

/// Collective. The table of the styles of libclebsch_lammps.so, which is opened when this process has not done so yet.
/// Stops all ranks with the name of the style that is wanted when it cannot be opened on one of them.
const PlainStyles& plain_styles(LAMMPS_NS::LAMMPS* lmp, const char* style);

/// Collective. The same of a table that `function` of a library beside this plugin returns, for a library that the
/// plain styles' does not bring along. It is opened with the process's own symbols before all others.
const StyleTable& styles_beside(LAMMPS_NS::LAMMPS* lmp, const char* style, const char* file, const char* function);

/// Pair style clebsch, its fix and the computes, whichever plugin is loaded first.
void register_plain_styles(Registration& registration);

}  // namespace clebsch_lammps
