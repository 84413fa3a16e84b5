// SPDX-License-Identifier: GPL-2.0-only
#include "compute/compute_clebsch.h"

#include <mpi.h>

#include <algorithm>

#include "atom.h"
#include "compute/compute_arguments.h"
#include "error.h"
#include "pair/pair_clebsch.h"
#include "update.h"

using namespace LAMMPS_NS;

ComputeClebsch::ComputeClebsch(LAMMPS* lmp, int narg, char** arg) : Compute(lmp, narg, arg) {
  const auto arguments = clebsch_lammps::parse_compute_arguments(lmp, narg, arg);
  name_ = arguments.name;
  length_ = name_ == "timing" ? clebsch_lammps::StepTimes::kParts : arguments.length;
  local_.resize(length_);
  total_.resize(length_);
  timeflag = 1;
  if (length_ == 1) {
    scalar_flag = 1;
    extscalar = 1;
  } else {
    vector_flag = 1;
    size_vector = length_;
    extvector = name_ == "timing" ? 0 : 1;
    vector = total_.data();
  }
}

ComputeClebsch::~ComputeClebsch() { vector = nullptr; }

void ComputeClebsch::init() {
  pair_ = clebsch_lammps::find_pair_clebsch(lmp, style);
  name_ == "timing" ? pair_->request_times() : pair_->request_output(name_);
}

void ComputeClebsch::evaluate() {
  if (name_ == "timing") {
    const double* seconds = pair_->times().seconds();
    std::copy(seconds, seconds + length_, local_.begin());
    MPI_Allreduce(local_.data(), total_.data(), length_, MPI_DOUBLE, MPI_MAX, world);
    return;
  }
  clebsch_lammps::check_invoked(lmp, pair_, style);
  std::fill(local_.begin(), local_.end(), 0.0);
  if (const auto* output = pair_->output(name_)) {
    const int owned = pair_->owned_nodes();
    const int columns = clebsch_lammps::columns_of(*output, *pair_);
    const int values = columns > 0 ? columns : static_cast<int>(output->values.size());
    if (values != length_)
      error->one(FLERR, "Compute {}: output {} has {} values{}, got length {}", style, name_, values,
                 columns > 0 ? " an atom" : "", length_);
    for (int node = 0; node < (columns > 0 ? owned : 1); ++node) {
      if (columns > 0 && !(atom->mask[pair_->node_atoms()[node]] & groupbit)) continue;
      for (int c = 0; c < length_; ++c) local_[c] += output->values[static_cast<std::size_t>(node) * length_ + c];
    }
  }
  MPI_Allreduce(local_.data(), total_.data(), length_, MPI_DOUBLE, MPI_SUM, world);
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
