// SPDX-License-Identifier: GPL-2.0-only
// What `plugin load clebschplugin.so` calls: registers the styles with LAMMPS, nothing else.
#include <cstring>
#include <string>

#include "compute_clebsch.h"
#include "compute_clebsch_atom.h"
#include "host_check.h"
#include "lammpsplugin.h"
#include "library.h"
#include "pair_clebsch.h"
#include "version.h"

using LAMMPS_NS::LAMMPS;

namespace {

LAMMPS_NS::Pair* make_pair_clebsch(LAMMPS* lmp) { return new LAMMPS_NS::PairClebsch(lmp); }

LAMMPS_NS::Compute* make_compute_clebsch(LAMMPS* lmp, int narg, char** arg) {
  return new LAMMPS_NS::ComputeClebsch(lmp, narg, arg);
}

LAMMPS_NS::Compute* make_compute_clebsch_atom(LAMMPS* lmp, int narg, char** arg) {
  return new LAMMPS_NS::ComputeClebschAtom(lmp, narg, arg);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void* lmp, void* handle, void* regfunc) {
  const std::string mismatch = clebsch_lammps::host_mismatch(lmp);
  if (!mismatch.empty()) {
    // A warning, not an error: one folder of LAMMPS_PLUGIN_PATH may serve several LAMMPS. An input that uses the style
    // stops at `pair_style clebsch`.
    if (lammps_extract_setting(lmp, "world_rank") == 0) lammps_error(lmp, LMP_ERROR_WARNING, mismatch.c_str());
    return;
  }

  // LAMMPS keeps the pointers of these strings, so they are literals.
  lammpsplugin_t plugin;
  std::memset(&plugin, 0, sizeof(plugin));
  auto register_plugin = reinterpret_cast<lammpsplugin_regfunc>(regfunc);
  plugin.version = LAMMPS_VERSION;
  plugin.author = "Clebsch developers";
  plugin.handle = handle;

  plugin.style = "pair";
  plugin.name = "clebsch";
  plugin.info = "pair style clebsch: equivariant neural network potentials";
  plugin.creator.v1 = reinterpret_cast<lammpsplugin_factory1*>(&make_pair_clebsch);
  (*register_plugin)(&plugin, lmp);

  plugin.style = "compute";
  plugin.name = "clebsch";
  plugin.info = "compute clebsch: a model's outputs summed over atoms";
  plugin.creator.v2 = reinterpret_cast<lammpsplugin_factory2*>(&make_compute_clebsch);
  (*register_plugin)(&plugin, lmp);

  plugin.name = "clebsch/atom";
  plugin.info = "compute clebsch/atom: a model's per-atom outputs";
  plugin.creator.v2 = reinterpret_cast<lammpsplugin_factory2*>(&make_compute_clebsch_atom);
  (*register_plugin)(&plugin, lmp);
}
