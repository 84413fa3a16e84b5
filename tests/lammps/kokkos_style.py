"""The LAMMPS and the plugin that clebsch/kk is tested in; files that import this are skipped without them."""

import os
from pathlib import Path

import pytest

LMP, PLUGIN = os.environ.get("CLEBSCH_KK_LMP", ""), os.environ.get("CLEBSCH_KK_PLUGIN", "")
if not (LMP and PLUGIN and Path(LMP).exists() and Path(PLUGIN).exists()):
    pytest.skip(
        f"clebsch/kk is not tested: no LAMMPS with Kokkos and plugin for it in '{LMP}' and '{PLUGIN}'; scripts/test "
        "builds both on Debian, or with Kokkos_ROOT or LAMMPS_KOKKOS_BUILD_DIR",
        allow_module_level=True,
    )
