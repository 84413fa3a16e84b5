"""Runs tests of this folder with a LAMMPS that was built from source.

Usage: with_release.py RELEASE CHECKOUT BUILD [PYTEST OPTION ...] FILE

LAMMPS is in CHECKOUT/.deps/lammps-RELEASE-build, its source in CHECKOUT/.deps/lammps-RELEASE and its plugin in
BUILD/RELEASE, as `scripts/test releases` leaves them. Exit status 77: there is no such LAMMPS (ctest reports the test
as skipped).
"""

import os
import sys
from pathlib import Path


def main() -> int:
    release, checkout, build = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    folder, source = checkout / f".deps/lammps-{release}-build", checkout / f".deps/lammps-{release}"
    lmp, plugin = folder / "lmp", build / release / "lib/clebschplugin.so"
    if not (lmp.exists() and plugin.exists()):
        print(f"no LAMMPS {release}: expected {lmp} and {plugin}; scripts/test releases builds them")
        return 77
    environment = {
        **os.environ,
        "CLEBSCH_USUAL_LMP": os.environ.get("CLEBSCH_LMP", ""),
        "CLEBSCH_USUAL_PLUGIN": os.environ.get("CLEBSCH_PLUGIN", ""),
        "CLEBSCH_LMP": str(lmp),
        "CLEBSCH_PLUGIN": str(plugin),
        "CLEBSCH_LIBRARY": str(build / "lib"),
        # Python's package lammps is the release's own too. Its library is for Python alone: the LAMMPS with Kokkos and
        # that of 64-bit atom IDs, which tests of every release use, have libraries of the same name.
        "CLEBSCH_LAMMPS_PYTHON": str(source / "python"),
        "CLEBSCH_LAMMPS_LIBRARY": str(folder),
    }
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[4:]]
    os.execve(sys.executable, words, environment)
    return 1


if __name__ == "__main__":
    sys.exit(main())
