// SPDX-License-Identifier: GPL-2.0-only
#include "pair/step_times.h"

#include <mpi.h>

#include <algorithm>

#include "comm.h"
#include "timer.h"
#include "utils.h"

namespace clebsch_lammps {

void StepTimes::start() {
  last_ = MPI_Wtime();
  ++steps_;
}

void StepTimes::lap(Part part) {
  const double now = MPI_Wtime();
  seconds_[part] += now - last_;
  last_ = now;
}

void StepTimes::reset() {
  std::fill(seconds_, seconds_ + kParts, 0.0);
  steps_ = 0;
}

void StepTimes::print() const {
  double mine[kParts], mean[kParts];
  std::copy(seconds_, seconds_ + kParts, mine);  // LAMMPS's stand-in for MPI takes no const
  MPI_Allreduce(mine, mean, kParts, MPI_DOUBLE, MPI_SUM, world);
  for (double& value : mean) value /= comm->nprocs;
  if (comm->me != 0 || steps_ == 0) return;
  const double loop = timer->get_wall(LAMMPS_NS::Timer::TOTAL);
  const double rest = std::max(0.0, loop - mean[kGraph] - mean[kModel] - mean[kForces]);
  const double scale = 1e3 / static_cast<double>(steps_);
  LAMMPS_NS::utils::logmesg(lmp,
                            "Pair style clebsch: ms per step (mean of ranks, {} steps): graph {:.4g}, model {:.4g}, "
                            "forces {:.4g}, rest of LAMMPS {:.4g}\n",
                            steps_, scale * mean[kGraph], scale * mean[kModel], scale * mean[kForces], scale * rest);
}

}  // namespace clebsch_lammps
