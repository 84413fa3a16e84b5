// SPDX-License-Identifier: GPL-2.0-only
#include "compute/compute_clebsch.h"

#include <mpi.h>

#include <algorithm>
#include <cmath>

#include "atom.h"
#include "comm.h"
#include "compute/compute_arguments.h"
#include "error.h"
#include "group.h"
#include "pair/pair_clebsch.h"
#include "update.h"

using namespace LAMMPS_NS;

namespace {

/// In four parts, since a comparison waits for the one before. What is not a number is left out.
double largest(const double* values, int count) {
  double a = -HUGE_VAL, b = a, c = a, d = a;
  int k = 0;
  for (; k + 4 <= count; k += 4) {
    a = std::max(a, values[k]);
    b = std::max(b, values[k + 1]);
    c = std::max(c, values[k + 2]);
    d = std::max(d, values[k + 3]);
  }
  for (; k < count; ++k) a = std::max(a, values[k]);
  return std::max(std::max(a, b), std::max(c, d));
}

}  // namespace

ComputeClebsch::ComputeClebsch(LAMMPS* lmp, int narg, char** arg) : Compute(lmp, narg, arg) {
  const auto arguments = clebsch_lammps::parse_compute_arguments(lmp, narg, arg);
  name_ = arguments.name;
  max_ = arguments.max;
  length_ = name_ == "timing" ? clebsch_lammps::StepTimes::kParts : arguments.length;
  local_.resize(length_);
  total_.resize(length_);
  timeflag = 1;
  if (length_ == 1) {
    scalar_flag = 1;
    extscalar = max_ ? 0 : 1;
  } else {
    vector_flag = 1;
    size_vector = length_;
    extvector = name_ == "timing" || max_ ? 0 : 1;
    vector = total_.data();
  }
}

ComputeClebsch::~ComputeClebsch() { vector = nullptr; }

void ComputeClebsch::init() {
  auto* pair = clebsch_lammps::find_pair_clebsch(lmp, style);
  if (name_ == "timing") {
    pair->request_times();
    return;
  }
  per_atom_ = pair->request_output(name_) == clebsch::OutputKind::atom;
  extscalar = extvector = per_atom_ && !max_;
  if (per_atom_) return;
  if (max_)
    error->all(FLERR, "Compute {}: expected a per-atom output before max, got {}, which is of the whole system", style,
               name_);
  if (igroup != 0)
    error->all(FLERR, "Compute {}: output {} is of the whole system: expected group all, got {}", style, name_,
               group->names[igroup]);
  if (!pair->has_whole_graph())
    error->all(FLERR,
               "Compute {}: output {} is of the whole system, of which a rank with ghosts sees more than its part: "
               "expected one rank and comm auto, got {} rank(s) with ghosts. Values of ranks do not add up; have the "
               "model give the output per atom, which is summed over the atoms on any number of ranks",
               style, name_, comm->nprocs);
}

void ComputeClebsch::evaluate() {
  if (name_ == "timing") {
    const double* seconds = clebsch_lammps::find_evaluated(lmp, style)->times().seconds();
    std::copy(seconds, seconds + length_, local_.begin());
    MPI_Allreduce(local_.data(), total_.data(), length_, MPI_DOUBLE, MPI_MAX, world);
    return;
  }
  auto* pair = clebsch_lammps::find_with_output(lmp, style, name_);
  std::fill(local_.begin(), local_.end(), max_ ? -HUGE_VAL : 0.0);
  if (const auto output = pair->output(name_)) {
    clebsch_lammps::check_length(lmp, style, name_, *output, length_);
    reduce(*output, *pair);
  }
  MPI_Allreduce(local_.data(), total_.data(), length_, MPI_DOUBLE, max_ ? MPI_MAX : MPI_SUM, world);
  // Of no atoms.
  if (max_) std::replace(total_.begin(), total_.end(), -HUGE_VAL, 0.0);
}

/// Of this rank's atoms, into local_. While this runs a GPU waits, so that the loops call nothing.
void ComputeClebsch::reduce(const clebsch_lammps::ModelOutput& output, const PairClebsch& pair) {
  const int rows = per_atom_ ? pair.owned_nodes() : 1;
  if (max_ && length_ == 1 && igroup == 0) {
    // Whatever the order of the atoms is.
    local_[0] = largest(output.values, rows);
    return;
  }
  const int* const atoms = per_atom_ ? pair.node_atoms().data() : nullptr;
  const int* const mask = atom->mask;
  const double* row = output.values;
  for (int node = 0; node < rows; ++node, row += length_) {
    if (atoms && !(mask[atoms[node]] & groupbit)) continue;
    for (int c = 0; c < length_; ++c) local_[c] = max_ ? std::max(local_[c], row[c]) : local_[c] + row[c];
  }
}

double ComputeClebsch::compute_scalar() {
  invoked_scalar = update->ntimestep;
  evaluate();
  scalar = total_[0];
  return scalar;
}

void ComputeClebsch::compute_vector() {
  invoked_vector = update->ntimestep;
  evaluate();
}
