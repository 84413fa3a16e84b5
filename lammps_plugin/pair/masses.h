// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Masses as a check of pair_coeff: a swapped pair of names gives a run without errors and without meaning.
#include <string>
#include <vector>

namespace LAMMPS_NS {
class Atom;
}  // namespace LAMMPS_NS

namespace clebsch_lammps {

/// A warning for each atom type of which the mass (g/mol) is not that of the element it is mapped to. `model_type`: the
/// model's type of each LAMMPS type from 1 on, -1 for none; `names`: the model's type names, of which those that are
/// chemical symbols are looked at.
std::vector<std::string> odd_masses(const LAMMPS_NS::Atom* atom, const std::vector<int>& model_type,
                                    const std::vector<std::string>& names);

}  // namespace clebsch_lammps
