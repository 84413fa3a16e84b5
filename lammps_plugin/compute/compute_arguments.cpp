// SPDX-License-Identifier: GPL-2.0-only
#include "compute/compute_arguments.h"

#include "error.h"
#include "force.h"
#include "pair/pair_clebsch.h"
#include "update.h"
#include "utils.h"

using LAMMPS_NS::LAMMPS;
using LAMMPS_NS::PairClebsch;

namespace clebsch_lammps {

ComputeArguments parse_compute_arguments(LAMMPS* lmp, int narg, char** arg) {
  const bool with_length = narg == 6 && std::string(arg[4]) == "length";
  if (narg != 4 && !with_length)
    lmp->error->all(FLERR, "Compute {}: expected NAME and optionally length N, got {} arguments", arg[2], narg - 3);
  ComputeArguments result;
  result.name = arg[3];
  if (with_length) result.length = LAMMPS_NS::utils::inumeric(FLERR, arg[5], false, lmp);
  if (result.length < 1)
    lmp->error->all(FLERR, "Compute {}: expected a length of at least 1, got {}", arg[2], result.length);
  return result;
}

PairClebsch* find_pair_clebsch(LAMMPS* lmp, const std::string& style) {
  auto* pair = dynamic_cast<PairClebsch*>(lmp->force->pair_match("^clebsch", 0));
  if (!pair && lmp->force->pair_match("^clebsch", 0, 1))
    lmp->error->all(FLERR, "Compute {}: expected one pair style clebsch, got several", style);
  if (!pair) lmp->error->all(FLERR, "Compute {}: expected a pair style clebsch, got none", style);
  return pair;
}

void check_invoked(LAMMPS* lmp, const PairClebsch* pair, const std::string& style) {
  if (pair->last_step() != lmp->update->ntimestep)
    lmp->error->all(FLERR,
                    "Compute {}: expected pair style clebsch evaluated at step {}, got step {}; use the compute "
                    "during a run (`run 0` suffices)",
                    style, lmp->update->ntimestep, pair->last_step());
}

int columns_of(const clebsch::Result::Named& output, const LAMMPS_NS::PairClebsch& pair) {
  if (output.shape.empty() || output.shape[0] == 0) return 0;
  const int64_t first = output.shape[0];
  const auto nodes = pair.node_counts();
  if (first != nodes.owned && first != nodes.rows && first != nodes.all) return 0;
  return static_cast<int>(static_cast<int64_t>(output.values.size()) / output.shape[0]);
}

}  // namespace clebsch_lammps
