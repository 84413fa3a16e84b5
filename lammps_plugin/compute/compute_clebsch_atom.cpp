// SPDX-License-Identifier: GPL-2.0-only
#include "compute/compute_clebsch_atom.h"

#include <algorithm>

#include "atom.h"
#include "compute/compute_arguments.h"
#include "error.h"
#include "memory.h"
#include "pair/pair_clebsch.h"
#include "update.h"

using namespace LAMMPS_NS;

ComputeClebschAtom::ComputeClebschAtom(LAMMPS* lmp, int narg, char** arg) : Compute(lmp, narg, arg) {
  const auto arguments = clebsch_lammps::parse_compute_arguments(lmp, narg, arg);
  name_ = arguments.name;
  length_ = arguments.length;
  peratom_flag = 1;
  size_peratom_cols = length_ == 1 ? 0 : length_;
  timeflag = 1;
}

ComputeClebschAtom::~ComputeClebschAtom() {
  memory->destroy(vector_atom);
  memory->destroy(array_atom);
}

void ComputeClebschAtom::init() {
  pair_ = clebsch_lammps::find_pair_clebsch(lmp, style);
  pair_->request_output(name_);
}

void ComputeClebschAtom::grow() {
  if (atom->nmax <= nmax_) return;
  nmax_ = atom->nmax;
  if (length_ == 1) {
    memory->destroy(vector_atom);
    memory->create(vector_atom, nmax_, "clebsch/atom:vector");
  } else {
    memory->destroy(array_atom);
    memory->create(array_atom, nmax_, length_, "clebsch/atom:array");
  }
}

void ComputeClebschAtom::compute_peratom() {
  invoked_peratom = update->ntimestep;
  clebsch_lammps::check_invoked(lmp, pair_, style);
  grow();
  if (atom->nlocal == 0) return;
  double* values = length_ == 1 ? vector_atom : &array_atom[0][0];
  std::fill(values, values + static_cast<std::size_t>(atom->nlocal) * length_, 0.0);
  const auto* output = pair_->output(name_);
  if (!output) return;
  const int owned = pair_->owned_nodes();
  const int columns = clebsch_lammps::columns_of(*output, *pair_);
  if (columns != length_)
    error->one(FLERR, "Compute {}: output {} has {} values an atom, got length {}{}", style, name_, columns, length_,
               columns == 0 ? "; compute clebsch gives outputs of the whole system" : "");
  for (int node = 0; node < owned; ++node) {
    const int i = pair_->node_atoms()[node];
    if (!(atom->mask[i] & groupbit)) continue;
    const double* row = &output->values[static_cast<std::size_t>(node) * length_];
    std::copy(row, row + length_, values + static_cast<std::size_t>(i) * length_);
  }
}

double ComputeClebschAtom::memory_usage() { return static_cast<double>(nmax_) * length_ * sizeof(double); }
