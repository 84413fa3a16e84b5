// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Masses as a check of pair_coeff: a swapped pair of names gives a run without errors and without meaning.
#include <string>
#include <vector>

#include "lammps.h"

namespace clebsch_lammps {

/// Warns on the first rank of each atom type of which the mass (g/mol) is not that of the element it is mapped to.
/// `model_type`: the model's type of each LAMMPS type from 1 on, -1 for none; `names`: the model's type names, of which
/// those that are chemical symbols are looked at.
void warn_masses(LAMMPS_NS::LAMMPS* lmp, const std::vector<int>& model_type, const std::vector<std::string>& names);

}  // namespace clebsch_lammps
