// SPDX-License-Identifier: GPL-2.0-only
// What `plugin load clebschkkplugin.so` calls: registers the styles for Kokkos, and the plain ones with them.
#include <cstring>
#include <string>

#include "error.h"
#include "host/host_check.h"
#include "host/registration.h"
#include "kokkos/kokkos_check.h"
#include "kokkos/pair_clebsch_kokkos.h"
#include "lammpsplugin.h"
#include "library.h"
#include "version.h"

using LAMMPS_NS::LAMMPS;

namespace {

template <class DeviceType>
LAMMPS_NS::Pair* make(LAMMPS* lmp) {
  if (!lmp->kokkos)
    lmp->error->all(FLERR,
                    "Pair style clebsch/kk: expected LAMMPS started with Kokkos, got none; start it with `-k on` (for "
                    "example `-k on g 1 -sf kk`) or use pair_style clebsch");
  return new LAMMPS_NS::PairClebschKokkos<DeviceType>(lmp);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void* lmp, void* handle, void* regfunc) {
  std::string mismatch = clebsch_lammps::host_mismatch(lmp);
  if (mismatch.empty()) mismatch = clebsch_lammps::kokkos_mismatch(lmp);
  if (!mismatch.empty()) {
    if (lammps_extract_setting(lmp, "world_rank") == 0) lammps_error(lmp, LMP_ERROR_WARNING, mismatch.c_str());
    return;
  }
  clebsch_lammps::register_plain_styles(lmp, handle, regfunc);

  // LAMMPS keeps the pointers of these strings, so they are literals.
  lammpsplugin_t plugin;
  std::memset(&plugin, 0, sizeof(plugin));
  auto register_plugin = reinterpret_cast<lammpsplugin_regfunc>(regfunc);
  plugin.version = LAMMPS_VERSION;
  plugin.author = "Clebsch developers";
  plugin.handle = handle;
  plugin.style = "pair";
  plugin.info = "pair style clebsch/kk: equivariant neural network potentials, for Kokkos";

  plugin.creator.v1 = reinterpret_cast<lammpsplugin_factory1*>(&make<LMPDeviceType>);
  plugin.name = "clebsch/kk";
  (*register_plugin)(&plugin, lmp);
  plugin.name = "clebsch/kk/device";
  (*register_plugin)(&plugin, lmp);
  plugin.creator.v1 = reinterpret_cast<lammpsplugin_factory1*>(&make<LMPHostType>);
  plugin.name = "clebsch/kk/host";
  (*register_plugin)(&plugin, lmp);
}
