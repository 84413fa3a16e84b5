// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What the pair style tells users once, not every run or step.
#include <string>
#include <vector>

#include "comm/communication.h"
#include "model/model.h"
#include "pointers.h"

namespace clebsch_lammps {

class Notices : protected LAMMPS_NS::Pointers {
 public:
  explicit Notices(LAMMPS_NS::LAMMPS* lmp) : Pointers(lmp) {}

  /// The model as it was loaded, its tables, and how it runs. Again after forget_model().
  void tell_model(const clebsch::Model& model, const std::string& file, const std::vector<int>& model_type,
                  clebsch::EnergyReference energy, GhostMode ghosts);
  void forget_model() { told_model_ = false; }
  /// Warns when a fix compares energies of different numbers of atoms, in which those of isolated atoms do not cancel.
  void warn_monte_carlo();
  /// Warns that centroid virials of a model of several layers give no exact heat flux.
  void warn_centroid(int layers);

 private:
  bool told_model_ = false, warned_monte_carlo_ = false, warned_centroid_ = false;
};

}  // namespace clebsch_lammps
