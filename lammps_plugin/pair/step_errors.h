// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// How a step stops: messages name atoms by their IDs, which is what users know.
#include <string>

#include "lammps.h"

namespace clebsch_lammps {

/// LAMMPS's indices of the two atoms that are closest to each other within their cutoff; -1: there is no pair.
struct ClosestPair {
  int first = -1, second = -1;
  double distance = 0;
};

/// LAMMPS's neighbour list lacks `missing` atoms of this style.
[[noreturn]] void stop_at_missing_atoms(LAMMPS_NS::LAMMPS* lmp, int missing);
/// The position of LAMMPS's atom i is not finite.
[[noreturn]] void stop_at_position(LAMMPS_NS::LAMMPS* lmp, int i);
/// `what`, energy or force, of LAMMPS's atom i is not finite.
[[noreturn]] void stop_at_atom(LAMMPS_NS::LAMMPS* lmp, int i, const std::string& what, const ClosestPair& closest);

}  // namespace clebsch_lammps
