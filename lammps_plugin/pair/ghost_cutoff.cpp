// SPDX-License-Identifier: GPL-2.0-only
#include "pair/ghost_cutoff.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "comm.h"
#include "domain.h"
#include "error.h"
#include "neighbor.h"
#include "pair/fix_ghost_cutoff.h"
#include "utils.h"

using LAMMPS_NS::Comm;
using LAMMPS_NS::FixGhostCutoff;
using LAMMPS_NS::Neighbor;

namespace clebsch_lammps {
namespace {

/// Distances between opposite faces of the box.
std::array<double, 3> box_heights(const LAMMPS_NS::Domain* domain) {
  // Rows of the inverse box matrix (LAMMPS order xx yy zz yz xz xy) have length 1 / height.
  const double* h = domain->h_inv;
  return {1.0 / std::sqrt(h[0] * h[0] + h[5] * h[5] + h[4] * h[4]), 1.0 / std::sqrt(h[1] * h[1] + h[3] * h[3]),
          1.0 / h[2]};
}

/// The shortest of periodic directions; infinity without any. A system of two dimensions has no images along z.
double shortest_periodic_height(const LAMMPS_NS::Domain* domain) {
  const auto heights = box_heights(domain);
  double shortest = INFINITY;
  for (int d = 0; d < domain->dimension; ++d)
    if (domain->periodicity[d]) shortest = std::min(shortest, heights[d]);
  return shortest;
}

}  // namespace

void GhostCutoff::init(GhostMode mode, const clebsch::Metadata& model) {
  const bool expand = mode == GhostMode::expand;
  const double depth = (expand ? model.layers : 1) * model.r_max + neighbor->skin;
  check_communication(depth, needs_rows(mode, model));
  depth_ = expand ? depth : 0;
  FixGhostCutoff::ask(lmp, depth_);
  if (depth_ > comm->cutghostuser && depth_ != told_depth_ && comm->me == 0)
    LAMMPS_NS::utils::logmesg(
        lmp, "Pair style clebsch: communication cutoff set to {:.6g} Angstrom = {} layers x {:.6g} + skin {:.6g}\n",
        depth_, model.layers, model.r_max, neighbor->skin);
  told_depth_ = depth_;
}

void GhostCutoff::forget() { FixGhostCutoff::remove(lmp); }

void GhostCutoff::check_communication(double depth, bool rows) const {
  if (rows && comm->mode != Comm::SINGLE)
    error->all(FLERR,
               "Pair style clebsch: expected comm_modify mode single where ghosts are nodes (comm ghost), got mode "
               "multi; use `comm_modify mode single`");
  if (rows && neighbor->style != Neighbor::BIN && neighbor->style != Neighbor::NSQ)
    error->all(FLERR,
               "Pair style clebsch: expected neighbor style bin or nsq where ghosts are nodes (comm ghost), got multi; "
               "use `neighbor {} bin`",
               neighbor->skin);
  const double height = shortest_periodic_height(domain);
  if (comm->style == Comm::TILED && depth > height)
    error->all(FLERR,
               "Pair style clebsch: expected a box of at least {:.6g} Angstrom (the ghost cutoff) in periodic "
               "directions with comm_style tiled, got {:.6g}; use `comm_style brick`",
               depth, height);
}

void GhostCutoff::check() const {
  const auto heights = box_heights(domain);
  for (int d = 0; d < 3; ++d) {
    // With a triclinic box LAMMPS has fractions of the heights.
    const double got = comm->cutghost[d] * (domain->triclinic ? heights[d] : 1.0);
    if (got < depth_ * (1 - 1e-6))
      error->all(FLERR,
                 "Pair style clebsch: expected ghost atoms {:.6g} Angstrom deep, got {:.6g} from a command that "
                 "sets up communication without asking fixes; give `comm_modify cutoff {:.6g}` before it",
                 depth_, got, depth_);
  }
}

}  // namespace clebsch_lammps
