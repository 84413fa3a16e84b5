// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What the pair style checks and arranges before a run.
#include <vector>

#include "lammps.h"

namespace clebsch_lammps {

/// Factor from eV to LAMMPS's energy unit: 1 for metal, kcal/mol per eV for real; stops for others.
double energy_factor(LAMMPS_NS::LAMMPS* lmp);

/// Stops on pair_modify options that would be silently ignored. Within hybrid they may be meant for another style.
void check_pair_modify(LAMMPS_NS::LAMMPS* lmp, bool shift, bool tail);

/// Stops when the communication settings cannot bring ghosts `cutoff` deep.
void check_communication(LAMMPS_NS::LAMMPS* lmp, double cutoff, bool expanded);

/// Collective. Stops when special_bonds removes bonded neighbours of atoms of this style. To be called once the
/// neighbour settings of a run are fixed, that is from the first compute(). `model_type[t]` < 0: not of this style.
void check_special_bonds(LAMMPS_NS::LAMMPS* lmp, const std::vector<int>& model_type);

/// Warns when neigh_modify exclude removes pairs, of which a many-body model then knows nothing.
void warn_exclusions(LAMMPS_NS::LAMMPS* lmp);

/// Raises LAMMPS's communication cutoff for ghost expansion, and puts the user's value back when it is no longer
/// wanted.
class GhostCutoff {
 public:
  explicit GhostCutoff(LAMMPS_NS::LAMMPS* lmp) : lmp_(lmp) {}
  ~GhostCutoff() { restore(); }
  GhostCutoff(const GhostCutoff&) = delete;
  GhostCutoff& operator=(const GhostCutoff&) = delete;

  /// Returns true when the value in force changed.
  bool raise(double cutoff);
  void restore();

 private:
  LAMMPS_NS::LAMMPS* lmp_;
  double users_ = 0, ours_ = 0;
};

}  // namespace clebsch_lammps
