// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// The keywords of `pair_style clebsch`.
#include <optional>
#include <string>

#include "comm/transport_choice.h"
#include "lammps.h"
#include "model/model.h"

namespace clebsch_lammps {

enum class CommMode { automatic, ghost, halo, gather };

struct PairSettings {
  std::optional<clebsch::Dtype> dtype;  ///< none: the model's own
  CommMode comm = CommMode::automatic;
  TransportMode transport = TransportMode::automatic;
  bool deterministic = true;
  clebsch::RadialMode radial = clebsch::RadialMode::table;
  std::string device = "auto";  ///< auto, cpu or cuda
  bool cuda_graph = true;       ///< replay recorded steps on a GPU
  clebsch::EnergyReference energy = clebsch::EnergyReference::total;
  bool timing = false;  ///< print the split of a step's time after each run
  /// Whether a model that was loaded with the other settings is also the one that these ask for.
  bool same_model(const PairSettings& other) const;
};

/// Reads `[keyword value ...]`. Stops through LAMMPS's error class with the valid keywords or values.
PairSettings parse_pair_settings(LAMMPS_NS::LAMMPS* lmp, int narg, char** arg);

}  // namespace clebsch_lammps
