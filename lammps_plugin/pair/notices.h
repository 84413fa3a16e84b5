// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What the pair style tells users once, not every run or step.
#include <set>
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
  void forget_model();
  /// Warns of something about the model or its types, unless that was said already.
  void warn(const std::string& message);
  /// Warns when a fix compares energies of different numbers of atoms, in which those of isolated atoms do not cancel.
  void warn_monte_carlo();
  /// Warns when heat fluxes are not exact: of a model of several layers, with `centroid` virials of atoms or where a
  /// compute heat/flux is defined; of a strictly local one where that has no centroid virials to read.
  void warn_heat_flux(int layers, bool centroid);
  /// Warns when LAMMPS takes differences of float32 forces, whose rounding small displacements magnify.
  void warn_differences(clebsch::Dtype dtype);
  /// Warns that `fix pair` reads grades of another step in minimisations and with respa.
  void warn_fix_pair();

 private:
  std::set<std::string> warned_;  ///< by warn()
  bool told_model_ = false, warned_monte_carlo_ = false, warned_heat_flux_ = false, warned_fix_pair_ = false;
};

}  // namespace clebsch_lammps
