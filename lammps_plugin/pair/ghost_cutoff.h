// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// How deep the ghosts of a model are, and what LAMMPS must be told to have them so.
#include "comm/communication.h"
#include "model/model.h"
#include "pointers.h"

namespace clebsch_lammps {

class GhostCutoff : protected LAMMPS_NS::Pointers {
 public:
  explicit GhostCutoff(LAMMPS_NS::LAMMPS* lmp) : Pointers(lmp) {}

  /// For init_style(), every time. Ghosts that are nodes are needed `layers` cutoffs deep: asks LAMMPS for them
  /// (FixGhostCutoff) and logs the depth when it has changed. Stops when the communication settings cannot bring them.
  void init(GhostMode mode, const clebsch::Metadata& model);
  /// Before the first step of a run: stops when LAMMPS's ghosts are less deep.
  void check() const;
  /// For the end of the pair style.
  void forget();

  /// Whether the neighbour list must have rows of ghosts.
  static bool needs_rows(GhostMode mode, const clebsch::Metadata& model) {
    return mode == GhostMode::expand && model.layers > 1;
  }

 private:
  void check_communication(double depth, bool rows) const;

  double depth_ = 0;       ///< Angstrom; 0: as LAMMPS has them
  double told_depth_ = 0;  ///< the last one that the log tells
};

}  // namespace clebsch_lammps
