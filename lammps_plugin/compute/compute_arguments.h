// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What both computes share: their arguments, and the values of an output.
#include <string>

#include "lammps.h"
#include "pair/model_output.h"

namespace LAMMPS_NS {
class PairClebsch;
}

namespace clebsch_lammps {

struct ComputeArguments {
  std::string name;
  int length = 1;
  bool max = false;
};

/// Reads `ID group style NAME [length N] [max]`, of compute clebsch/atom without `max`.
ComputeArguments parse_compute_arguments(LAMMPS_NS::LAMMPS* lmp, int narg, char** arg);

/// The one pair style clebsch of the input; stops when there is none, or several under hybrid.
LAMMPS_NS::PairClebsch* find_pair_clebsch(LAMMPS_NS::LAMMPS* lmp, const std::string& style);

/// The same with a run behind it; stops when the style or its model was given after the last run. Computes look it up
/// at every evaluation and keep no pointer: inputs replace the pair style between runs.
LAMMPS_NS::PairClebsch* find_evaluated(LAMMPS_NS::LAMMPS* lmp, const std::string& style);

/// The same with the output `name` of this step; stops when the style did not compute it at this step.
LAMMPS_NS::PairClebsch* find_with_output(LAMMPS_NS::LAMMPS* lmp, const std::string& style, const std::string& name);

/// Stops unless the output has `length` values, of an atom or of the system.
void check_length(LAMMPS_NS::LAMMPS* lmp, const std::string& style, const std::string& name, const ModelOutput& output,
                  int length);

}  // namespace clebsch_lammps
