// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Styles whose code is in a library that is opened when the first of them is made: it brings torch, and LAMMPS opens a
// plugin of LAMMPS_PLUGIN_PATH in every run, whether its styles are used or not.
#include "host/registration.h"
#include "host/style_library.h"

namespace clebsch_lammps {

/// Collective. The table of the styles of libclebsch_lammps.so, which is opened when this process has not done so yet.
/// Stops all ranks with the name of the style that is wanted when it cannot be opened on one of them.
const PlainStyles& plain_styles(LAMMPS_NS::LAMMPS* lmp, const char* style);

/// Collective. The same of the table that `function` of another library beside this plugin returns.
const StyleTable& styles_beside(LAMMPS_NS::LAMMPS* lmp, const char* style, const char* file, const char* function);

/// Pair style clebsch, its fix and the computes, whichever plugin is loaded first.
void register_plain_styles(Registration& registration);

}  // namespace clebsch_lammps
