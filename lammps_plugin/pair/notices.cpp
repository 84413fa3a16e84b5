// SPDX-License-Identifier: GPL-2.0-only
#include "pair/notices.h"

#include <algorithm>

#include "atom.h"
#include "comm.h"
#include "compute.h"
#include "error.h"
#include "fix.h"
#include "force.h"
#include "modify.h"
#include "update.h"
#include "utils.h"

namespace clebsch_lammps {
namespace {

const char* described(GhostMode ghosts, int layers) {
  switch (ghosts) {
    case GhostMode::fold:
      return "one rank: periodic ghosts folded onto their owners";
    case GhostMode::halo:
      return layers > 1 ? "halo: ranks exchange features between layers" : "halo: ranks exchange forces of ghosts";
    default:
      return "ghost expansion";
  }
}

}  // namespace

void Notices::forget_model() {
  told_model_ = false;
  warned_.clear();
}

void Notices::warn(const std::string& message) {
  if (warned_.insert(message).second && comm->me == 0) error->warning(FLERR, "Pair style clebsch: {}", message);
}

void Notices::tell_model(const clebsch::Model& model, const std::string& file, const std::vector<int>& model_type,
                         clebsch::EnergyReference energy, GhostMode ghosts) {
  if (told_model_) return;
  told_model_ = true;
  if (comm->me != 0) return;
  const auto& meta = model.metadata();
  std::string types, tables;
  for (int t = 1; t <= atom->ntypes; ++t)
    types += " " + (model_type[t] < 0 ? std::string("NULL") : meta.type_names[model_type[t]]);
  for (const auto& table : model.tables())
    tables += fmt::format(
        "  layer {}: {} radial tables of {} pieces, {:.1f} kB, relative error {:.1e} (slope {:.1e})\n", table.layer,
        table.tables, table.pieces, static_cast<double>(table.bytes) / 1e3, table.value_error, table.slope_error);
  if (tables.empty()) tables = "  radial functions evaluated exactly\n";
  if (energy == clebsch::EnergyReference::interaction) {
    tables += "  energies relative to isolated atoms, in eV:";
    for (std::size_t t = 0; t < meta.type_names.size(); ++t)
      if (std::find(model_type.begin() + 1, model_type.end(), static_cast<int>(t)) != model_type.end())
        tables += fmt::format(" {} {:.10g}", meta.type_names[t], model.isolated_energies()[t]);
    tables += "\n";
  }
  LAMMPS_NS::utils::logmesg(
      lmp,
      "Pair style clebsch: {} model {}\n  types{}, r_max {:.6g} Angstrom, {} layers, {}, {}\n{}  {}, {} "
      "thread(s) a rank, newton pair {}, libclebsch {} for torch {}\n",
      meta.family, file, types, meta.r_max, meta.layers,
      model.dtype() == clebsch::Dtype::float32 ? "float32" : "float64",
      model.device() == "cpu" ? std::string("CPU ") + clebsch::instruction_set()
                              : "GPU " + model.device() + " (rank 0)",
      tables, described(ghosts, meta.layers), comm->nthreads, force->newton_pair ? "on" : "off", clebsch::version(),
      clebsch::torch_version());
}

void Notices::warn_monte_carlo() {
  if (warned_monte_carlo_) return;
  for (const char* style : {"^gcmc", "^widom", "^charge/regulation"}) {
    const auto fixes = modify->get_fix_by_style(style);
    if (fixes.empty()) continue;
    if (comm->me == 0)
      error->warning(FLERR,
                     "Pair style clebsch: fix {} takes the change of energy when it inserts or excludes atoms for "
                     "that of their interaction, but `energy total` has the energy of isolated atoms in it; use "
                     "`pair_style clebsch energy interaction`",
                     fixes.front()->style);
    warned_monte_carlo_ = true;
    return;
  }
}

void Notices::warn_heat_flux(int layers, bool centroid) {
  if (warned_heat_flux_) return;
  bool flux = false, has_centroid = centroid;
  for (const Compute* compute : modify->get_compute_list()) {
    flux = flux || utils::strmatch(compute->style, "^heat/flux");
    has_centroid = has_centroid || utils::strmatch(compute->style, "^centroid/stress/atom");
  }
  if (layers > 1 ? !flux && !centroid : !flux || has_centroid) return;
  warned_heat_flux_ = true;
  if (comm->me != 0) return;
  if (layers == 1)
    error->warning(FLERR,
                   "Pair style clebsch: compute heat/flux is exact for this model with compute centroid/stress/atom, "
                   "not with stress/atom");
  else
    error->warning(
        FLERR,
        "Pair style clebsch: heat fluxes from per-atom virials are not right for this model of {} message passing "
        "layers: they can be off by half of themselves with compute centroid/stress/atom and by more with "
        "stress/atom; only strictly local models have an exact one",
        layers);
}

void Notices::warn_differences(clebsch::Dtype dtype) {
  if (dtype != clebsch::Dtype::float32) return;
  // dynamical_matrix and third_order compute forces outside of any run.
  bool differences = update->whichflag == 0 || !modify->get_fix_by_style("^numdiff").empty();
  for (const Compute* compute : modify->get_compute_list())
    differences = differences || utils::strmatch(compute->style, "^born/matrix");
  if (differences)
    warn(
        "dynamical_matrix, third_order, fix numdiff and compute born/matrix take differences of forces or energies, in "
        "which the rounding of dtype float32 is large when displacements are small; use `pair_style clebsch dtype "
        "float64`");
}

void Notices::warn_fix_pair() {
  if (warned_fix_pair_) return;
  warned_fix_pair_ = true;
  if (comm->me == 0)
    error->warning(
        FLERR,
        "Pair style clebsch: fix pair keeps extrapolation of the first try of each iteration of a minimization "
        "and of the start of a run with run_style respa; compute clebsch/atom extrapolation has the current "
        "ones");
}

}  // namespace clebsch_lammps
