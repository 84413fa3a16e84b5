#!/usr/bin/env python3
"""What CMake needs to know of a Kokkos build of LAMMPS, and what neither CMake nor the plugin's load check would find.

usage: scripts/kokkos_host.py --lammps-build DIR [--lammps-source DIR] [--kokkos DIR] [--options FILE]
       scripts/kokkos_host.py --lammps-build DIR --configured CLEBSCH_BUILD

A plugin shares classes with the LAMMPS that loads it. lammps_plugin/kokkos/KokkosHost.cmake compares version, integer
sizes, precision and backends when Clebsch is configured, and the plugin compares them with the running LAMMPS when it
is loaded. Left for this script: compilers, flags, and a Kokkos that is not the one LAMMPS was built with. `--options`
writes the CMake options with which Clebsch is to be configured; `--configured` compares the compiler and the MPI that a
configured build took. Exits 1 when something does not match.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

#: Flags that change the layout or the names of the standard library's classes, or the processor's word size.
FOREIGN_FLAGS = (
    "-D_GLIBCXX_USE_CXX11_ABI=0",
    "-D_GLIBCXX_DEBUG",
    "-stdlib=libc++",
    "-m32",
    "-fshort-enums",
    "-fsanitize",
)


@dataclass
class Report:
    """Findings in the order in which they were made."""

    bad: list[str] = field(default_factory=list)

    def same(self, what: str, expected: object, got: object, advice: str) -> bool:
        """Prints what was found; a difference also goes to the list that ends the program."""
        return self.check(what, expected == got, as_text(expected), as_text(got), advice)

    def check(self, what: str, fine: bool, expected: str, got: str, advice: str) -> bool:
        if fine:
            print(f"-- {what}: {got or 'none'}")
        else:
            self.bad.append(f"{what}: expected {expected}, got {got or 'none'}\n         {advice}")
        return fine

    def note(self, text: str) -> None:
        print(f"-- {text}")


def as_text(value: object) -> str:
    """A value as a person writes it."""
    if isinstance(value, list):
        return ", ".join(value)
    return {True: "ON", False: "OFF"}[value] if isinstance(value, bool) else str(value or "")


def on(value: str | None) -> bool:
    """CMake's idea of a true value."""
    return (value or "").upper() in {"ON", "YES", "TRUE", "Y", "1"}


def read_cache(folder: Path) -> dict[str, str]:
    """The entries of a CMakeCache.txt."""
    entries = {}
    for line in (folder / "CMakeCache.txt").read_text(errors="replace").splitlines():
        found = re.match(r"([^#/][^:=]*):[A-Z]+=(.*)", line)
        if found:
            entries[found[1]] = found[2]
    return entries


def cmake_settings(path: Path) -> dict[str, str]:
    """The plain `set(NAME value)` lines of a CMake file; the first one of a name counts."""
    settings: dict[str, str] = {}
    text = path.read_text(errors="replace") if path.is_file() else ""
    for name, value in re.findall(r"^\s*set\s*\((\w+)\s+([^()]*)\)", text, re.IGNORECASE | re.MULTILINE):
        settings.setdefault(name, value.strip().strip('"'))
    return settings


def compiler_of(build: Path) -> tuple[str, str]:
    """Name and version of the C++ compiler as the build's CMake identified it, such as ("GNU", "12.2.0")."""
    for path in sorted(build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")):
        settings = cmake_settings(path)
        return settings.get("CMAKE_CXX_COMPILER_ID", ""), settings.get("CMAKE_CXX_COMPILER_VERSION", "")
    return "", ""


def kokkos_folder(given: Path) -> Path | None:
    """The folder of KokkosConfig.cmake for a prefix, a build folder or that folder itself."""
    for place in (given, given / "lib/cmake/Kokkos", given / "lib64/cmake/Kokkos", given / "cmake/Kokkos"):
        if (place / "KokkosConfig.cmake").is_file():
            return place.resolve()
    return None


@dataclass
class Kokkos:
    """An installed or built Kokkos."""

    folder: Path
    version: str
    settings: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> Kokkos:
        version = cmake_settings(folder / "KokkosConfigVersion.cmake").get("PACKAGE_VERSION", "")
        return cls(folder, version.split()[0] if version else "", cmake_settings(folder / "KokkosConfigCommon.cmake"))

    def words(self, name: str) -> list[str]:
        """A list of its configuration, sorted."""
        return sorted(filter(None, self.settings.get(name, "").split(";")))


def check_kokkos(report: Report, kokkos: Kokkos, cache: dict[str, str], build: Path) -> None:
    """Threads, architecture and compiler of Kokkos against those of LAMMPS."""
    devices = kokkos.words("Kokkos_DEVICES")
    if "OPENMP" in devices:
        report.same("BUILD_OMP of LAMMPS", True, on(cache.get("BUILD_OMP")), "Kokkos OpenMP needs -D BUILD_OMP=ON")
    architecture = ", ".join(kokkos.words("Kokkos_ARCH")) or "none named"
    if "CUDA" in devices:
        gpus = {m[1] for m in re.finditer(r"(?:[A-Z]+)(\d\d+)\b", architecture)}
        report.check(
            "Kokkos architecture",
            bool(gpus),
            "a GPU such as HOPPER90",
            architecture,
            "configure Kokkos with Kokkos_ARCH_...",
        )
    else:
        report.note(f"Kokkos architecture: {architecture}")
    name, number = compiler_of(build)
    of_kokkos = (
        f"{kokkos.settings.get('Kokkos_CXX_COMPILER_ID', '')} {kokkos.settings.get('Kokkos_CXX_COMPILER_VERSION', '')}"
    )
    if name != "NVIDIA" and not of_kokkos.startswith("NVIDIA"):  # nvcc_wrapper shows as either of two names
        report.same("compiler of Kokkos", f"{name} {number}", of_kokkos, "build Kokkos with the compiler of LAMMPS")


def device_compiler(report: Report, folders: list[Path]) -> list[str]:
    """Options that name Kokkos's compiler for device code, from the first folder that holds it."""
    tools = ("kokkos_launch_compiler", "nvcc_wrapper")
    for folder in folders:
        if all((folder / tool).is_file() for tool in tools):
            return [f"CLEBSCH_KOKKOS_LAUNCHER={folder / tools[0]}", f"CLEBSCH_NVCC_WRAPPER={folder / tools[1]}"]
    places = " nor in ".join(map(str, folders))
    report.check(
        "compiler of Kokkos", False, " and ".join(tools), f"none in {places}", "install Kokkos with its bin folder"
    )
    return []


def check_host(report: Report, args: argparse.Namespace) -> list[str]:
    """All checks before anything is configured; returns CMake's options."""
    build = args.lammps_build.resolve()
    if not (build / "CMakeCache.txt").is_file():
        advice = "--lammps-build wants the folder in which LAMMPS was configured and built with CMake"
        report.check("LAMMPS build folder", False, "CMakeCache.txt", f"none in {build}", advice)
        return []
    cache = read_cache(build)
    home = cache.get("CMAKE_HOME_DIRECTORY", "")
    source = Path(home).parent if home else Path()
    if args.lammps_source:
        given = args.lammps_source.resolve()
        given = given.parent if (given / "version.h").is_file() else given
        report.same(
            "LAMMPS source", given, source.resolve(), "give the source from which that build folder was configured"
        )
        source = given
    report.same("PKG_PLUGIN", True, on(cache.get("PKG_PLUGIN")), "configure LAMMPS with -D PKG_PLUGIN=ON and build it")
    flags = " ".join(
        [
            cache.get("CMAKE_CXX_FLAGS", ""),
            cache.get(f"CMAKE_CXX_FLAGS_{cache.get('CMAKE_BUILD_TYPE', '').upper()}", ""),
        ]
    )
    foreign = [flag for flag in FOREIGN_FLAGS if flag in flags]
    advice = "torch and the plugin are built without these: build LAMMPS without them"
    report.check(
        "flags of LAMMPS",
        not foreign,
        "no " + ", ".join(foreign),
        flags.strip() or "default",
        advice,
    )
    if not on(cache.get("BUILD_SHARED_LIBS")):
        report.note("warning: LAMMPS was built without BUILD_SHARED_LIBS: a plugin finds only what lmp itself uses")
    compiler = cache.get("CMAKE_CXX_COMPILER", "")
    report.check(
        "compiler of LAMMPS",
        Path(compiler).is_file(),
        "a compiler that is there",
        compiler,
        "load the module that has it",
    )
    kokkos = None
    if on(cache.get("EXTERNAL_KOKKOS")):
        named = Path(cache.get("Kokkos_DIR", ""))
    elif on(cache.get("DOWNLOAD_KOKKOS")):
        named = build / "kokkos_build-prefix"
    else:
        named = build / "lib/kokkos"
    of_host = kokkos_folder(named)
    given = kokkos_folder(args.kokkos) if args.kokkos else of_host
    if given is None:
        advice = (
            "--kokkos wants the prefix of an installed Kokkos, or leave it out to take the one LAMMPS was built with"
        )
        report.check("Kokkos", False, "KokkosConfig.cmake", f"none in {args.kokkos or named}", advice)
    else:
        kokkos = Kokkos.read(given)
        report.note(f"Kokkos: {given}")
        if of_host and of_host != given:
            other, advice = Kokkos.read(of_host), f"give the one that LAMMPS was built with: {of_host}"
            report.same("Kokkos version against LAMMPS's", other.version, kokkos.version, advice)
            for name in ("DEVICES", "ARCH", "OPTIONS", "TPLS"):
                key = f"Kokkos_{name}"
                report.same(f"{key} against LAMMPS's", other.words(key), kokkos.words(key), advice)
        check_kokkos(report, kokkos, cache, build)
    options = [
        f"LAMMPS_SOURCE_DIR={source}",
        f"LAMMPS_BUILD_DIR={build}",
        f"LAMMPS_KOKKOS_BUILD_DIR={build}",
        "CLEBSCH_KOKKOS=ON",
    ]
    if kokkos:
        options.append(f"Kokkos_ROOT={kokkos.folder}")
        options.append(f"Kokkos_DIR={kokkos.folder}")
        if "CUDA" in kokkos.words("Kokkos_DEVICES"):
            options += device_compiler(report, [kokkos.folder.parents[2] / "bin", source / "lib/kokkos/bin"])
    if Path(compiler).name != "nvcc_wrapper":
        options.append(f"CMAKE_CXX_COMPILER={compiler}")
    if on(cache.get("BUILD_MPI")) and cache.get("MPI_CXX_COMPILER", "").startswith("/"):
        options.append(f"MPI_CXX_COMPILER={cache['MPI_CXX_COMPILER']}")
    return options


def check_configured(report: Report, build: Path, clebsch: Path) -> None:
    """A configured Clebsch against the host: the compiler and the MPI that CMake really took."""
    host, mine = read_cache(build), read_cache(clebsch)
    advice = f"remove {clebsch} and configure again with that compiler first in PATH"
    if Path(host.get("CMAKE_CXX_COMPILER", "")).name != "nvcc_wrapper":
        report.same("compiler", " ".join(compiler_of(build)), " ".join(compiler_of(clebsch)), advice)
    if on(host.get("BUILD_MPI")):
        advice = "load the MPI module with which LAMMPS was built, or pass -DMPI_CXX_COMPILER of it"
        libraries = [cache.get("MPI_mpi_LIBRARY", "") for cache in (host, mine)]
        report.same("MPI library", *libraries, advice)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lammps-build", type=Path, required=True, metavar="DIR")
    parser.add_argument("--lammps-source", type=Path, metavar="DIR")
    parser.add_argument("--kokkos", type=Path, metavar="DIR")
    parser.add_argument("--options", type=Path, metavar="FILE", help="write CMake's options here, one a line")
    parser.add_argument("--configured", type=Path, metavar="DIR", help="compare this Clebsch build folder instead")
    args = parser.parse_args()
    report = Report()
    if args.configured:
        check_configured(report, args.lammps_build.resolve(), args.configured.resolve())
    else:
        options = check_host(report, args)
        if args.options and not report.bad:
            args.options.write_text("".join(f"-D{option}\n" for option in options))
    for text in report.bad:
        print(f"mismatch {text}", file=sys.stderr)
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
