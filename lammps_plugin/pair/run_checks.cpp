// SPDX-License-Identifier: GPL-2.0-only
#include "pair/run_checks.h"

#include <mpi.h>

#include <algorithm>
#include <string>
#include <utility>

#include "atom.h"
#include "comm.h"
#include "comm/node_turn.h"
#include "comm/stop_rank.h"
#include "compute.h"
#include "error.h"
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

namespace clebsch_lammps {

void check_pair_modify(LAMMPS* lmp, bool shift, bool tail) {
  if (!shift && !tail) return;
  if (LAMMPS_NS::utils::strmatch(lmp->force->pair_style, "^hybrid")) return;
  lmp->error->all(FLERR,
                  "Pair style clebsch: expected pair_modify shift no and tail no, got {} yes; the model's energy "
                  "goes to zero at its cutoff by itself",
                  shift ? "shift" : "tail");
}

namespace {

/// Comm tells the group of comm_modify to its children alone.
struct BorderGroup : Comm {
  static int of(const Comm* comm) { return comm->*(&BorderGroup::bordergroup); }
};

/// What is wrong where the neighbour list lacks bonded neighbours of this rank's atoms of the style, or "".
std::string lost_bonded(LAMMPS* lmp, const std::vector<int>& model_type) {
  const Atom* atom = lmp->atom;
  if (!drops_bonded(lmp)) return "";
  const int* flag = lmp->neighbor->special_flag;
  const char* names[4] = {"", "1-2", "1-3", "1-4"};
  for (int k = 1; k <= 3; ++k) {
    if (flag[k] != 0) continue;
    bool lost = atom->molecular == Atom::TEMPLATE;
    for (int i = 0; i < atom->nlocal && !lost && atom->nspecial; ++i)
      lost = model_type[atom->type[i]] >= 0 && atom->nspecial[i][k - 1] > (k == 1 ? 0 : atom->nspecial[i][k - 2]);
    if (lost)
      return fmt::format(
          "expected every pair within the cutoff in the neighbor list, got special_bonds with weight 0 for {} "
          "neighbors, which removes them; use `special_bonds lj/coul 1.0e-100 1.0e-100 1.0e-100` (or 1 1 1), which "
          "keeps them for the model",
          names[k]);
  }
  return "";
}

}  // namespace

bool drops_bonded(LAMMPS* lmp) {
  const int* flag = lmp->neighbor->special_flag;
  return lmp->atom->molecular != Atom::ATOMIC && (flag[1] == 0 || flag[2] == 0 || flag[3] == 0);
}

void check_special_bonds(LAMMPS* lmp, const std::vector<int>& model_type, bool all_ranks) {
  std::string lost = lost_bonded(lmp, model_type);
  if (all_ranks) lost = first_message(lost, lmp->world);
  if (lost.empty()) return;
  if (all_ranks) lmp->error->all(FLERR, "Pair style clebsch: {}", lost);
  stop_rank(lmp, fmt::format("Pair style clebsch: step {}: {}", lmp->update->ntimestep, lost));
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

void check_computes(LAMMPS* lmp) {
  constexpr const char* kAtoms = "compute clebsch with a group, or clebsch/atom, for energies of atoms";
  constexpr const char* kStress = "compute stress/atom or centroid/stress/atom, binned by compute chunk/atom";
  const std::pair<const char*, const char*> pairwise[] = {
      {"^group/group", kAtoms}, {"^stress/(cartesian|cylinder|spherical|mop)", kStress}, {"^fabric", kStress}};
  for (const LAMMPS_NS::Compute* compute : lmp->modify->get_compute_list())
    for (const auto& [pattern, remedy] : pairwise)
      if (LAMMPS_NS::utils::strmatch(compute->style, pattern))
        lmp->error->all(FLERR,
                        "Pair style clebsch: compute {} needs energies and forces of single pairs, which a many-body "
                        "model does not have; use {}",
                        compute->style, remedy);
}

double cutoff_factor(LAMMPS* lmp, const LAMMPS_NS::NeighRequest* request) {
  constexpr double kStep = 1e-12;
  const auto requests = lmp->neighbor->get_pair_requests();
  if (requests.size() < 3) return 1.0;
  const auto place = std::find(requests.begin(), requests.end(), request) - requests.begin();
  return 1.0 + kStep * static_cast<double>(place);
}

bool excludes_pairs(LAMMPS* lmp, const std::vector<int>& model_type) {
  const LAMMPS_NS::Neighbor* neighbor = lmp->neighbor;
  const Atom* atom = lmp->atom;
  for (int k = 0; k < neighbor->nex_type; ++k)
    if (model_type[neighbor->ex1_type[k]] >= 0 && model_type[neighbor->ex2_type[k]] >= 0) return true;
  // Groups without atoms of the style do not matter. Fix gcmc, for one, keeps an empty group to exclude an atom later.
  int here = 0, anywhere = 0;
  for (int i = 0; i < atom->nlocal; ++i)
    if (model_type[atom->type[i]] >= 0) here |= atom->mask[i];
  MPI_Allreduce(&here, &anywhere, 1, MPI_INT, MPI_BOR, lmp->world);
  for (int k = 0; k < neighbor->nex_group; ++k)
    if ((anywhere & neighbor->ex1_bit[k]) && (anywhere & neighbor->ex2_bit[k])) return true;
  for (int k = 0; k < neighbor->nex_mol; ++k)
    if (anywhere & neighbor->ex_mol_bit[k]) return true;
  return false;
}

}  // namespace clebsch_lammps
