// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What both computes share: their arguments, and the values of an output.
#include <string>

#include "lammps.h"
#include "model/model.h"

namespace LAMMPS_NS {
class PairClebsch;
}

namespace clebsch_lammps {

struct ComputeArguments {
  std::string name;
  int length = 1;
};

/// Reads `ID group style NAME [length N]`.
ComputeArguments parse_compute_arguments(LAMMPS_NS::LAMMPS* lmp, int narg, char** arg);

/// The one pair style clebsch of the input; stops when there is none, or several under hybrid.
LAMMPS_NS::PairClebsch* find_pair_clebsch(LAMMPS_NS::LAMMPS* lmp, const std::string& style);

/// Stops unless the pair style ran at this step.
void check_invoked(LAMMPS_NS::LAMMPS* lmp, const LAMMPS_NS::PairClebsch* pair, const std::string& style);

/// Columns of a per-atom output (its first dimension is the rows or nodes of the graph of `pair`), or 0 when it is
/// none.
int columns_of(const clebsch::Result::Named& output, const LAMMPS_NS::PairClebsch& pair);

}  // namespace clebsch_lammps
