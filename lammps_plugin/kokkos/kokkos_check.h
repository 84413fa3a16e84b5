// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Does the Kokkos of the LAMMPS that loads the plugin match the one it was compiled for?
#include <string>

namespace clebsch_lammps {

/// Empty when the styles for Kokkos may be registered, else a message that names what was expected and what was found.
/// To be called after host_mismatch().
std::string kokkos_mismatch();

}  // namespace clebsch_lammps
