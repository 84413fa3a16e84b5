// SPDX-License-Identifier: GPL-2.0-only
#include "pair/pair_settings.h"

#include <string>

#include "error.h"

namespace clebsch_lammps {
namespace {

[[noreturn]] void wrong_value(LAMMPS_NS::LAMMPS* lmp, const std::string& keyword, const std::string& valid,
                              const std::string& got) {
  lmp->error->all(FLERR, "Pair style clebsch: keyword {} expected {}, got '{}'", keyword, valid, got);
}

bool parse_yes_no(LAMMPS_NS::LAMMPS* lmp, const std::string& keyword, const std::string& value) {
  if (value != "yes" && value != "no") wrong_value(lmp, keyword, "yes or no", value);
  return value == "yes";
}

clebsch::Dtype parse_dtype(LAMMPS_NS::LAMMPS* lmp, const std::string& value) {
  if (value == "float32") return clebsch::Dtype::float32;
  if (value == "float64") return clebsch::Dtype::float64;
  wrong_value(lmp, "dtype", "float32 or float64", value);
}

CommMode parse_comm(LAMMPS_NS::LAMMPS* lmp, const std::string& value) {
  if (value == "auto") return CommMode::automatic;
  if (value == "ghost") return CommMode::ghost;
  if (value == "halo") return CommMode::halo;
  if (value == "gather") return CommMode::gather;
  wrong_value(lmp, "comm", "ghost, halo, gather or auto", value);
}

TransportMode parse_transport(LAMMPS_NS::LAMMPS* lmp, const std::string& value) {
  if (value == "auto") return TransportMode::automatic;
  if (value == "nccl") return TransportMode::nccl;
  if (value == "host") return TransportMode::host;
  if (value == "aware") return TransportMode::aware;
  wrong_value(lmp, "transport", "auto, nccl, host or aware", value);
}

}  // namespace

bool PairSettings::same_model(const PairSettings& other) const {
  return dtype == other.dtype && deterministic == other.deterministic && radial == other.radial &&
         device == other.device && cuda_graph == other.cuda_graph && energy == other.energy;
}

PairSettings parse_pair_settings(LAMMPS_NS::LAMMPS* lmp, int narg, char** arg) {
  PairSettings settings;
  for (int k = 0; k < narg; k += 2) {
    const std::string keyword = arg[k];
    const bool known = keyword == "dtype" || keyword == "comm" || keyword == "transport" ||
                       keyword == "deterministic" || keyword == "radial" || keyword == "device" || keyword == "graph" ||
                       keyword == "timing" || keyword == "energy";
    if (!known)
      lmp->error->all(FLERR,
                      "Pair style clebsch: expected a keyword out of dtype, comm, transport, deterministic, radial, "
                      "device, graph, timing, energy, got '{}' (the model file belongs to pair_coeff)",
                      keyword);
    if (k + 1 == narg) lmp->error->all(FLERR, "Pair style clebsch: keyword {} expected a value, got none", keyword);
    const std::string value = arg[k + 1];
    if (keyword == "dtype") settings.dtype = parse_dtype(lmp, value);
    if (keyword == "comm") settings.comm = parse_comm(lmp, value);
    if (keyword == "transport") settings.transport = parse_transport(lmp, value);
    if (keyword == "deterministic") settings.deterministic = parse_yes_no(lmp, keyword, value);
    if (keyword == "radial") {
      if (value != "table" && value != "exact") wrong_value(lmp, keyword, "table or exact", value);
      settings.radial = value == "table" ? clebsch::RadialMode::table : clebsch::RadialMode::exact;
    }
    if (keyword == "device") {
      // cpu:padded takes a GPU's way through the step on the CPU: for tests.
      if (value != "auto" && value != "cpu" && value != "cuda" && value != "cpu:padded")
        wrong_value(lmp, keyword, "auto, cpu or cuda", value);
      settings.device = value;
    }
    if (keyword == "graph") settings.cuda_graph = parse_yes_no(lmp, keyword, value);
    if (keyword == "timing") settings.timing = parse_yes_no(lmp, keyword, value);
    if (keyword == "energy") {
      if (value != "total" && value != "interaction") wrong_value(lmp, keyword, "total or interaction", value);
      settings.energy = value == "total" ? clebsch::EnergyReference::total : clebsch::EnergyReference::interaction;
    }
  }
  return settings;
}

}  // namespace clebsch_lammps
