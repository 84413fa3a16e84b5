// SPDX-License-Identifier: GPL-2.0-only
#include "pair/step_errors.h"

#include "atom.h"
#include "comm/stop_rank.h"
#include "error.h"
#include "lmptype.h"
#include "update.h"

using LAMMPS_NS::LAMMPS;

namespace clebsch_lammps {
namespace {

LAMMPS_NS::bigint atom_id(const LAMMPS* lmp, int i) {
  return lmp->atom->tag_enable ? static_cast<LAMMPS_NS::bigint>(lmp->atom->tag[i]) : i + 1;
}

}  // namespace

void stop_at_missing_atoms(LAMMPS* lmp, int missing) {
  stop_rank(lmp,
            fmt::format("Pair style clebsch: expected all atoms of types that are not NULL in the neighbor list, got a "
                        "list without {} of them at step {}; when types have changed since it was built, let LAMMPS "
                        "build another: give `run` without `pre no`",
                        missing, lmp->update->ntimestep));
}

void stop_at_position(LAMMPS* lmp, int i) {
  const double* x = lmp->atom->x[i];
  stop_rank(lmp, fmt::format("Pair style clebsch: expected finite coordinates, got {} {} {} for atom ID {} at step {}; "
                             "check the starting structure, the timestep and the model's range of validity",
                             x[0], x[1], x[2], atom_id(lmp, i), lmp->update->ntimestep));
}

void stop_at_atom(LAMMPS* lmp, int i, const std::string& what, const ClosestPair& closest) {
  std::string pair;
  if (closest.first >= 0)
    pair = fmt::format(", where atom IDs {} and {} are the closest pair, {:.4g} Angstrom apart",
                       atom_id(lmp, closest.first), atom_id(lmp, closest.second), closest.distance);
  const double* x = lmp->atom->x[i];
  stop_rank(lmp,
            fmt::format("Pair style clebsch: expected a finite {}, got one that is not for atom ID {} (type {}, at "
                        "{:.6g} {:.6g} {:.6g}) at step {}{}; check for overlapping atoms, the timestep and the model's "
                        "range of validity",
                        what, atom_id(lmp, i), lmp->atom->type[i], x[0], x[1], x[2], lmp->update->ntimestep, pair),
            // Features that are no numbers reach other ranks' atoms too: the rank with the closest pair has the cause.
            1 + (closest.first >= 0 ? closest.distance : 1e6));
}

}  // namespace clebsch_lammps
