// SPDX-License-Identifier: GPL-2.0-only
#include "host/registration.h"

#include <cstring>

#include "compute/compute_clebsch.h"
#include "compute/compute_clebsch_atom.h"
#include "force.h"
#include "lammpsplugin.h"
#include "pair/pair_clebsch.h"
#include "version.h"

using LAMMPS_NS::LAMMPS;

namespace clebsch_lammps {
namespace {

LAMMPS_NS::Pair* make_pair_clebsch(LAMMPS* lmp) { return new LAMMPS_NS::PairClebsch(lmp); }

LAMMPS_NS::Compute* make_compute_clebsch(LAMMPS* lmp, int narg, char** arg) {
  return new LAMMPS_NS::ComputeClebsch(lmp, narg, arg);
}

LAMMPS_NS::Compute* make_compute_clebsch_atom(LAMMPS* lmp, int narg, char** arg) {
  return new LAMMPS_NS::ComputeClebschAtom(lmp, narg, arg);
}

}  // namespace

void register_plain_styles(void* lammps, void* handle, void* register_function) {
  // Not lammps_has_style(): with a suffix in force it takes clebsch/kk for clebsch.
  if (static_cast<LAMMPS*>(lammps)->force->pair_map->count("clebsch") > 0) return;
  // LAMMPS keeps the pointers of these strings, so they are literals.
  lammpsplugin_t plugin;
  std::memset(&plugin, 0, sizeof(plugin));
  auto register_plugin = reinterpret_cast<lammpsplugin_regfunc>(register_function);
  plugin.version = LAMMPS_VERSION;
  plugin.author = "Clebsch developers";
  plugin.handle = handle;

  plugin.style = "pair";
  plugin.name = "clebsch";
  plugin.info = "pair style clebsch: equivariant neural network potentials";
  plugin.creator.v1 = reinterpret_cast<lammpsplugin_factory1*>(&make_pair_clebsch);
  (*register_plugin)(&plugin, lammps);

  plugin.style = "compute";
  plugin.name = "clebsch";
  plugin.info = "compute clebsch: a model's outputs summed over atoms";
  plugin.creator.v2 = reinterpret_cast<lammpsplugin_factory2*>(&make_compute_clebsch);
  (*register_plugin)(&plugin, lammps);

  plugin.name = "clebsch/atom";
  plugin.info = "compute clebsch/atom: a model's per-atom outputs";
  plugin.creator.v2 = reinterpret_cast<lammpsplugin_factory2*>(&make_compute_clebsch_atom);
  (*register_plugin)(&plugin, lammps);
}

}  // namespace clebsch_lammps
