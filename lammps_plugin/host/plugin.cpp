// SPDX-License-Identifier: GPL-2.0-only
// What `plugin load clebschplugin.so` calls: registers the styles' names with LAMMPS, nothing else.
#include <string>

#include "host/host_check.h"
#include "host/late_styles.h"
#include "library.h"

extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void* lmp, void* handle, void* regfunc) {
  const std::string mismatch = clebsch_lammps::host_mismatch(lmp);
  if (!mismatch.empty()) {
    // A warning, not an error: one folder of LAMMPS_PLUGIN_PATH may serve several LAMMPS. An input that uses the style
    // stops at `pair_style clebsch`.
    if (lammps_extract_setting(lmp, "world_rank") == 0) lammps_error(lmp, LMP_ERROR_WARNING, mismatch.c_str());
    return;
  }
  clebsch_lammps::Registration registration(lmp, handle, regfunc);
  clebsch_lammps::register_plain_styles(registration);
}
