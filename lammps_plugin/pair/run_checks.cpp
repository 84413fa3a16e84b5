// SPDX-License-Identifier: GPL-2.0-only
#include "pair/run_checks.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "atom.h"
#include "comm.h"
#include "core/units.h"
#include "domain.h"
#include "error.h"
#include "fix.h"
#include "force.h"
#include "group.h"
#include "modify.h"
#include "neigh_list.h"
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

/// Distances between opposite faces of the box.
std::array<double, 3> box_heights(const LAMMPS_NS::Domain* domain) {
  // Rows of the inverse box matrix (LAMMPS order xx yy zz yz xz xy) have length 1 / height.
  const double* h = domain->h_inv;
  return {1.0 / std::sqrt(h[0] * h[0] + h[5] * h[5] + h[4] * h[4]), 1.0 / std::sqrt(h[1] * h[1] + h[3] * h[3]),
          1.0 / h[2]};
}

/// The shortest height of the periodic directions; infinity when there is none.
double shortest_periodic_height(const LAMMPS_NS::Domain* domain) {
  const auto heights = box_heights(domain);
  double shortest = INFINITY;
  for (int d = 0; d < 3; ++d)
    if (domain->periodicity[d]) shortest = std::min(shortest, heights[d]);
  return shortest;
}

/// The group of comm_modify is a protected member of Comm: a class derived from it may read it.
struct BorderGroup : Comm {
  static int of(const Comm* comm) { return comm->*(&BorderGroup::bordergroup); }
};

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

void check_type_pairs(LAMMPS* lmp, const LAMMPS_NS::NeighList* list, const std::vector<int>& model_type) {
  if (!list->ijskip) return;
  const int types = lmp->atom->ntypes;
  for (int i = 1; i <= types; ++i)
    for (int j = i; j <= types; ++j)
      if (model_type[i] >= 0 && model_type[j] >= 0 && list->ijskip[i][j])
        lmp->error->all(
            FLERR,
            "Pair style clebsch: expected all pairs of the types that its pair_coeff names, got types {} {} "
            "given to another style, or none, by a later pair_coeff: the model would miss those neighbors; "
            "use pair_style hybrid/overlay to add to the model's forces, or NULL for types that are not "
            "the model's",
            i, j);
}

void check_groups(LAMMPS* lmp, const std::vector<int>& model_type) {
  const Atom* atom = lmp->atom;
  const std::pair<int, const char*> limits[] = {{lmp->neighbor->includegroup, "neigh_modify include"},
                                                {BorderGroup::of(lmp->comm), "comm_modify group"}};
  for (const auto& [igroup, command] : limits) {
    if (igroup == 0) continue;  // group all
    int mine = 0, outside = 0;
    for (int i = 0; i < atom->nlocal; ++i)
      mine += model_type[atom->type[i]] >= 0 && !(atom->mask[i] & lmp->group->bitmask[igroup]);
    MPI_Allreduce(&mine, &outside, 1, MPI_INT, MPI_SUM, lmp->world);
    if (outside > 0)
      lmp->error->all(FLERR,
                      "Pair style clebsch: expected all atoms of types that are not NULL in the group of `{} {}`, got "
                      "{} outside, which the model would miss as neighbors; use a group that has them, or leave the "
                      "command out",
                      command, lmp->group->names[igroup], outside);
  }
}

void check_ghosts(LAMMPS* lmp, double cutoff) {
  const auto heights = box_heights(lmp->domain);
  for (int d = 0; d < 3; ++d) {
    // In a triclinic box LAMMPS gives the depth of ghosts as fractions of the box's heights.
    const double depth = lmp->comm->cutghost[d] * (lmp->domain->triclinic ? heights[d] : 1.0);
    if (depth < cutoff * (1 - 1e-6))
      lmp->error->all(FLERR,
                      "Pair style clebsch: expected ghost atoms {:.6g} Angstrom deep, got {:.6g} from a command that "
                      "sets up communication without asking fixes; give `comm_modify cutoff {:.6g}` before it",
                      cutoff, depth, cutoff);
  }
}

void warn_exclusions(LAMMPS* lmp) {
  if (lmp->neighbor->exclude_setting() && lmp->comm->me == 0)
    lmp->error->warning(FLERR,
                        "Pair style clebsch: neigh_modify exclude removes neighbors from the model as well: energies "
                        "and forces of their other neighbors change too");
}

bool warn_monte_carlo(LAMMPS* lmp) {
  for (const char* style : {"^gcmc", "^widom", "^charge/regulation"}) {
    const auto fixes = lmp->modify->get_fix_by_style(style);
    if (fixes.empty()) continue;
    if (lmp->comm->me == 0)
      lmp->error->warning(FLERR,
                          "Pair style clebsch: fix {} takes the change of energy when it inserts or excludes atoms for "
                          "that of their interaction, but `energy total` has the energy of isolated atoms in it; use "
                          "`pair_style clebsch energy interaction`",
                          fixes.front()->style);
    return true;
  }
  return false;
}

}  // namespace clebsch_lammps
