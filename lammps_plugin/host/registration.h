// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// The styles of clebschplugin.so, for both plugins: the one for Kokkos brings them along.

namespace clebsch_lammps {

/// Registers pair style clebsch and the computes with LAMMPS, unless it has them already (which the plugins' order of
/// loading decides). Arguments are those of lammpsplugin_init.
void register_plain_styles(void* lammps, void* handle, void* register_function);

}  // namespace clebsch_lammps
