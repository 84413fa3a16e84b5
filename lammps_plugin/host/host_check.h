// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Does the LAMMPS that loads the plugin match the one it was compiled for?
#include <string>

namespace clebsch_lammps {

/// Empty when the plugin may register its styles, else a message that names what was expected and what was found.
/// Uses LAMMPS's C library interface alone: with other headers the classes' layout is unknown, and touching them
/// crashes.
std::string host_mismatch(void* lammps);

}  // namespace clebsch_lammps
