// SPDX-License-Identifier: GPL-2.0-only
// What `plugin load clebschkkplugin.so` calls: registers the names of the styles for Kokkos, and the plain ones with
// them.
#include <string>

#include "error.h"
#include "host/host_check.h"
#include "host/late_styles.h"
#include "kokkos/kokkos_check.h"
#include "lammps.h"
#include "library.h"

using LAMMPS_NS::LAMMPS;
using LAMMPS_NS::Pair;

namespace {

/// Collective: the styles for Kokkos, which need the library of the plain ones.
const clebsch_lammps::KokkosStyles& kokkos_styles(LAMMPS* lmp) {
  if (!lmp->kokkos)
    lmp->error->all(FLERR,
                    "Pair style clebsch/kk: expected LAMMPS started with Kokkos, got none; start it with `-k on` (for "
                    "example `-k on g 1 -sf kk`) or use pair_style clebsch");
  clebsch_lammps::plain_styles(lmp, "clebsch/kk");
  const auto& table = clebsch_lammps::styles_beside(lmp, "clebsch/kk", "libclebsch_lammps_kokkos.so",
                                                    clebsch_lammps::kKokkosStylesFunction);
  return reinterpret_cast<const clebsch_lammps::KokkosStyles&>(table);
}

Pair* make_device(LAMMPS* lmp) { return kokkos_styles(lmp).pair_device(lmp); }

Pair* make_host(LAMMPS* lmp) { return kokkos_styles(lmp).pair_host(lmp); }

}  // namespace

extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void* lmp, void* handle, void* regfunc) {
  std::string mismatch = clebsch_lammps::host_mismatch(lmp);
  if (mismatch.empty()) mismatch = clebsch_lammps::kokkos_mismatch();
  if (!mismatch.empty()) {
    if (lammps_extract_setting(lmp, "world_rank") == 0) lammps_error(lmp, LMP_ERROR_WARNING, mismatch.c_str());
    return;
  }
  clebsch_lammps::Registration registration(lmp, handle, regfunc);
  clebsch_lammps::register_plain_styles(registration);
  const char* info = "pair style clebsch/kk: equivariant neural network potentials, for Kokkos";
  registration.add_pair("clebsch/kk", info, &make_device);
  registration.add_pair("clebsch/kk/device", info, &make_device);
  registration.add_pair("clebsch/kk/host", info, &make_host);
}
