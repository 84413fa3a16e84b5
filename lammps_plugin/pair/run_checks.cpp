// SPDX-License-Identifier: GPL-2.0-only
#include "pair/run_checks.h"

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "atom.h"
#include "comm.h"
#include "core/units.h"
#include "domain.h"
#include "error.h"
#include "force.h"
#include "neighbor.h"
#include "pair.h"
#include "update.h"
#include "utils.h"

using LAMMPS_NS::Atom;
using LAMMPS_NS::Comm;
using LAMMPS_NS::LAMMPS;
using LAMMPS_NS::Neighbor;

namespace clebsch_lammps {

double energy_factor(LAMMPS* lmp) {
  const std::string units = lmp->update->unit_style;
  if (units == "metal") return 1.0;
  if (units == "real") return clebsch::kKcalMolPerElectronVolt;
  lmp->error->all(FLERR,
                  "Pair style clebsch: expected units metal or real, got {}; put `units metal` at the top of the "
                  "input",
                  units);
}

void check_pair_modify(LAMMPS* lmp, bool shift, bool tail) {
  if (!shift && !tail) return;
  if (LAMMPS_NS::utils::strmatch(lmp->force->pair_style, "^hybrid")) return;
  lmp->error->all(FLERR,
                  "Pair style clebsch: expected pair_modify shift no and tail no, got {} yes; the model's energy "
                  "goes to zero at its cutoff by itself",
                  shift ? "shift" : "tail");
}

namespace {

/// The shortest distance between two opposite periodic faces of the box; infinity without periodic directions.
double shortest_periodic_height(LAMMPS_NS::Domain* domain) {
  // Rows of the inverse box matrix (LAMMPS order xx yy zz yz xz xy) have length 1 / height.
  const double* h = domain->h_inv;
  const double inverse[3] = {std::sqrt(h[0] * h[0] + h[5] * h[5] + h[4] * h[4]), std::sqrt(h[1] * h[1] + h[3] * h[3]),
                             h[2]};
  double height = INFINITY;
  for (int d = 0; d < 3; ++d)
    if (domain->periodicity[d]) height = std::min(height, 1.0 / inverse[d]);
  return height;
}

}  // namespace

void check_communication(LAMMPS* lmp, double cutoff, bool expanded) {
  Comm* comm = lmp->comm;
  if (expanded && comm->mode != Comm::SINGLE)
    lmp->error->all(FLERR,
                    "Pair style clebsch: expected comm_modify mode single on several ranks, got mode multi; use "
                    "`comm_modify mode single`");
  if (expanded && lmp->neighbor->style != Neighbor::BIN && lmp->neighbor->style != Neighbor::NSQ)
    lmp->error->all(FLERR,
                    "Pair style clebsch: expected neighbor style bin or nsq on several ranks, got multi; use "
                    "`neighbor {} bin`",
                    lmp->neighbor->skin);
  const double height = shortest_periodic_height(lmp->domain);
  if (comm->style == Comm::TILED && cutoff > height)
    lmp->error->all(FLERR,
                    "Pair style clebsch: expected a box of at least {:.6g} Angstrom (the ghost cutoff) in periodic "
                    "directions with comm_style tiled, got {:.6g}; use `comm_style brick`",
                    cutoff, height);
}

void check_special_bonds(LAMMPS* lmp, const std::vector<int>& model_type) {
  const Atom* atom = lmp->atom;
  if (atom->molecular == Atom::ATOMIC) return;
  const int* flag = lmp->neighbor->special_flag;
  const char* names[4] = {"", "1-2", "1-3", "1-4"};
  for (int k = 1; k <= 3; ++k) {
    if (flag[k] != 0) continue;  // 0: LAMMPS leaves such pairs out of neighbour lists
    int removed = atom->molecular == Atom::TEMPLATE;
    for (int i = 0; i < atom->nlocal && !removed && atom->nspecial; ++i)
      removed = model_type[atom->type[i]] >= 0 && atom->nspecial[i][k - 1] > (k == 1 ? 0 : atom->nspecial[i][k - 2]);
    int anywhere = 0;
    MPI_Allreduce(&removed, &anywhere, 1, MPI_INT, MPI_MAX, lmp->world);
    if (anywhere)
      lmp->error->all(FLERR,
                      "Pair style clebsch: expected every pair within the cutoff in the neighbor list, got "
                      "special_bonds with weight 0 for {} neighbors, which removes them; use `special_bonds "
                      "lj/coul 1.0e-100 1.0e-100 1.0e-100` (or 1 1 1), which keeps them for the model",
                      names[k]);
  }
}

void warn_exclusions(LAMMPS* lmp) {
  if (lmp->neighbor->exclude_setting() && lmp->comm->me == 0)
    lmp->error->warning(FLERR,
                        "Pair style clebsch: neigh_modify exclude removes neighbors from the model as well: energies "
                        "and forces of their other neighbors change too");
}

bool GhostCutoff::raise(double cutoff) {
  double& current = lmp_->comm->cutghostuser;
  const double before = current;
  if (ours_ > 0 && current == ours_) current = users_;
  users_ = current;
  ours_ = std::max(current, cutoff);
  current = ours_;
  return ours_ > before;
}

void GhostCutoff::restore() {
  // LAMMPS deletes styles before its Comm instance, but a user may have changed the value since: that one stays.
  if (ours_ > 0 && lmp_->comm && lmp_->comm->cutghostuser == ours_) lmp_->comm->cutghostuser = users_;
  ours_ = 0;
}

}  // namespace clebsch_lammps
