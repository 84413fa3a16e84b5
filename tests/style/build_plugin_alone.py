"""Builds lammps_plugin as a project of its own against an installed Clebsch, and loads it.

Usage: build_plugin_alone.py BUILD_FOLDER LAMMPS_SOURCE_DIR LAMMPS_BUILD_DIR LMP

BUILD_FOLDER is a built Clebsch, which is installed into a temporary folder: headers, library and clebschConfig.cmake
are all that the plugin's own project sees of it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def call(*words: object) -> None:
    print("+", *words, flush=True)
    subprocess.run([str(word) for word in words], check=True)


def main() -> int:
    build, source, host, lmp = (Path(a).resolve() for a in sys.argv[1:5])
    with tempfile.TemporaryDirectory() as name:
        prefix, alone = Path(name) / "prefix", Path(name) / "build"
        call("cmake", "--install", build, "--prefix", prefix)
        call(
            "cmake", "-S", ROOT / "lammps_plugin", "-B", alone, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DLAMMPS_SOURCE_DIR={source}", f"-DLAMMPS_BUILD_DIR={host}", "-DCLEBSCH_WERROR=ON",
        )  # fmt: skip
        call("ninja", "-C", alone)
        plugin = alone / "lib" / "clebschplugin.so"
        deck = Path(name) / "in.load"
        deck.write_text(f"plugin load {plugin}\npair_style clebsch\n")
        call(lmp, "-in", deck, "-log", "none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
