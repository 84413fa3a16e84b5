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
  const auto kind = clebsch_lammps::find_pair_clebsch(lmp, style)->request_output(name_);
  if (kind != clebsch::OutputKind::atom)
    error->all(FLERR,
               "Compute {}: expected a per-atom output, got {}, which is of the whole system; use compute clebsch",
               style, name_);
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
  auto* pair = clebsch_lammps::find_with_output(lmp, style, name_);
  grow();
  if (atom->nlocal == 0) return;
  double* const values = length_ == 1 ? vector_atom : &array_atom[0][0];
  const auto output = pair->output(name_);
  const int owned = output ? pair->owned_nodes() : 0;
  if (owned < atom->nlocal || igroup != 0)
    std::fill(values, values + static_cast<std::size_t>(atom->nlocal) * length_, 0.0);
  if (!output) return;
  clebsch_lammps::check_length(lmp, style, name_, *output, length_);
  // While this runs a GPU waits, so that the loops call nothing.
  const int *const atoms = pair->node_atoms().data(), *const mask = atom->mask;
  const double* from = output->values;
  if (length_ == 1) {
    for (int node = 0; node < owned; ++node) {
      const int i = atoms[node];
      if (mask[i] & groupbit) values[i] = from[node];
    }
    return;
  }
  for (int node = 0; node < owned; ++node, from += length_)
    if (mask[atoms[node]] & groupbit)
      std::copy(from, from + length_, values + static_cast<std::size_t>(atoms[node]) * length_);
}

double ComputeClebschAtom::memory_usage() { return static_cast<double>(nmax_) * length_ * sizeof(double); }
