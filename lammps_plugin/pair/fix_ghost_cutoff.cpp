// SPDX-License-Identifier: GPL-2.0-only
#include "pair/fix_ghost_cutoff.h"

#include <algorithm>
#include <string>
#include <utility>

#include "atom.h"
#include "comm.h"
#include "modify.h"

namespace LAMMPS_NS {
namespace {

const std::string kId = "CLEBSCH_GHOSTS";

/// LAMMPS's minimizer removes its own fix and adds it again within a run (NEB's second stage), while Modify keeps the
/// places of the fixes that are to be called: those behind the minimizer's would be missed from then on. The places
/// that Atom has of fixes with arrays of atoms change too; fix CLEBSCH/GHOSTS has none.
void put_before_minimizer(Modify* modify, Atom* atom) {
  const int mine = modify->find_fix(kId), minimizer = modify->find_fix("MINIMIZE");
  if (minimizer < 0 || minimizer > mine) return;
  std::swap(modify->fix[mine], modify->fix[minimizer]);
  std::swap(modify->fmask[mine], modify->fmask[minimizer]);
  std::replace(atom->extra_grow, atom->extra_grow + atom->nextra_grow, minimizer, mine);
  std::replace(atom->extra_restart, atom->extra_restart + atom->nextra_restart, minimizer, mine);
  std::replace(atom->extra_border, atom->extra_border + atom->nextra_border, minimizer, mine);
}

}  // namespace

FixGhostCutoff::FixGhostCutoff(LAMMPS* lmp, int narg, char** arg) : Fix(lmp, narg, arg) {
  // No data of atoms: nothing for Kokkos to copy.
  datamask_read = 0;
  datamask_modify = 0;
}

void FixGhostCutoff::ask(LAMMPS* lmp, double cutoff) {
  auto* fix = dynamic_cast<FixGhostCutoff*>(lmp->modify->get_fix_by_id(kId));
  if (fix && fix->in_use_) {
    remove(lmp);
    fix = nullptr;
  }
  if (cutoff == 0) return;
  if (!fix) {
    fix = dynamic_cast<FixGhostCutoff*>(lmp->modify->add_fix(kId + " all CLEBSCH/GHOSTS"));
    put_before_minimizer(lmp->modify, lmp->atom);
  }
  fix->cutoff_ = std::max(fix->cutoff_, cutoff);  // several pair styles under hybrid
}

void FixGhostCutoff::remove(LAMMPS* lmp) {
  if (lmp->modify && lmp->modify->get_fix_by_id(kId)) lmp->modify->delete_fix(kId);
}

int FixGhostCutoff::setmask() {
  using namespace FixConst;
  return PRE_EXCHANGE | PRE_NEIGHBOR | MIN_PRE_EXCHANGE | MIN_PRE_NEIGHBOR;
}

void FixGhostCutoff::raise() {
  lower();  // a step may have ended in between with an error that a program using LAMMPS's library has caught
  users_ = comm->cutghostuser;
  comm->cutghostuser = std::max(users_, cutoff_);
  raised_ = true;
}

void FixGhostCutoff::lower() {
  if (raised_) comm->cutghostuser = users_;
  raised_ = false;
}

}  // namespace LAMMPS_NS
