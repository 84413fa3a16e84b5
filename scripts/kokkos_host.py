#!/usr/bin/env python3
"""Reads what a Kokkos build of LAMMPS is, and says what of it a plugin cannot match.

usage: scripts/kokkos_host.py --lammps-build DIR [--lammps-source DIR] [--kokkos DIR] [--options FILE] [--no-run]
       scripts/kokkos_host.py --lammps-build DIR --configured CLEBSCH_BUILD

A plugin shares classes with the LAMMPS that loads it, so version, integer sizes, MPI, precision, compiler and Kokkos
must be the same. They are read from the build folder's cache, from the program itself (`lmp -help`) and from Kokkos's
CMake configuration, and compared with each other. `--options` writes the CMake options with which Clebsch is to be
configured; `--configured` compares a configured Clebsch build with the host. Exits 1 when something does not match.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

#: The LAMMPS release whose KOKKOS package the style is written for, and the first Kokkos that its CMake accepts.
RELEASE = "4Feb2025"
OLDEST_KOKKOS = (4, 5, 1)
#: Kokkos's names of what clebsch/kk runs on.
BACKENDS = {"SERIAL", "OPENMP", "CUDA"}
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


def source_version(source: Path) -> str:
    """Such as 4Feb2025, or nothing."""
    path = source / "src" / "version.h"
    found = re.search(r'LAMMPS_VERSION "(.*?)"', path.read_text()) if path.is_file() else None
    return found[1].replace(" ", "") if found else ""


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


def program_of(build: Path, cache: dict[str, str]) -> Path | None:
    """The LAMMPS executable of a build folder."""
    machine = cache.get("LAMMPS_MACHINE", "")
    path = build / (f"lmp_{machine}" if machine else "lmp")
    return path if path.is_file() else None


def ask_program(program: Path) -> str:
    """What `lmp -help` prints; nothing when it cannot run here, as on a login node without a GPU's driver."""
    try:
        done = subprocess.run([program, "-help"], capture_output=True, text=True, timeout=60, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def check_program(report: Report, text: str, version: str, cache: dict[str, str], kokkos: Kokkos | None) -> None:
    """The program against the source, the cache and Kokkos: a build folder may have been configured anew since."""
    rebuild = "build LAMMPS again in its build folder, then run this again"
    found = re.search(r"Massively Parallel Simulator - (.+)", text)
    built = found[1].split(" - ")[0].replace(" ", "") if found else ""
    report.same("LAMMPS version of the program", version, built, rebuild)
    sizes = re.search(r"-DLAMMPS_(SMALLBIG|BIGBIG|SMALLSMALL)", text)
    report.same("integer sizes of the program", cache.get("LAMMPS_SIZES", "").upper(), sizes and sizes[1], rebuild)
    stubs = "MPI STUBS" in text
    report.same("MPI in the program", on(cache.get("BUILD_MPI")), not stubs, rebuild)
    found = re.search(r"^Compiler:\s*(.*?)(?: with .*)?$", text, re.MULTILINE)
    report.note(f"compiler of the program: {found[1] if found else 'unknown'}")
    found = re.search(r"KOKKOS package precision:(.*)", text)
    report.check(
        "KOKKOS precision of the program", bool(found) and found[1].split() == ["double"], "double",
        found[1].strip() if found else "no KOKKOS package", "build LAMMPS with -D PKG_KOKKOS=ON -D KOKKOS_PREC=double",
    )  # fmt: skip
    found = re.search(r"Kokkos library version: (\S+)", text)
    if found and kokkos:
        advice = "give the Kokkos that LAMMPS was built with, or build LAMMPS again with this one"
        report.same("Kokkos version of the program", kokkos.version, found[1], advice)
    found = re.search(r"KOKKOS package API:(.*)", text)
    if found and kokkos:
        advice = "give the Kokkos that LAMMPS was built with, or build LAMMPS again with this one"
        report.same(
            "Kokkos backends of the program", kokkos.words("Kokkos_DEVICES"), sorted(found[1].upper().split()), advice
        )


def visible_gpu() -> str:
    """Compute capability of the first GPU here, such as "90", or nothing."""
    try:
        words = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.split("\n")[0].strip().replace(".", "") if done.returncode == 0 else ""


def check_kokkos(report: Report, kokkos: Kokkos, cache: dict[str, str], build: Path) -> None:
    """Backends, architecture and compiler of Kokkos against what clebsch/kk can do and what built LAMMPS."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", kokkos.version)[:3])
    oldest = ".".join(map(str, OLDEST_KOKKOS))
    report.check("Kokkos version", numbers >= OLDEST_KOKKOS, f"{oldest} or newer", kokkos.version, "use a newer Kokkos")
    devices = kokkos.words("Kokkos_DEVICES")
    report.check(
        "Kokkos backends", bool(devices) and set(devices) <= BACKENDS, f"some of {', '.join(sorted(BACKENDS))}",
        ", ".join(devices), "clebsch/kk has no code for other backends: build Kokkos and LAMMPS without them",
    )  # fmt: skip
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
        here = visible_gpu()
        if gpus and here and here not in gpus:
            report.note(f"warning: the GPU of this machine is sm_{here}; this Kokkos was built for {architecture}")
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
    version = source_version(source)
    wanted = ("src/version.h", "src/KOKKOS/kokkos_type.h", "src/lammpsplugin.h")
    missing = [name for name in wanted if not (source / name).is_file()]
    report.check(
        "headers of LAMMPS",
        not missing,
        f"{wanted[0]}, src/KOKKOS and the rest in the source",
        f"no {', '.join(missing)} in {source}" if missing else "there",
        "the source tree is needed: an installed LAMMPS lacks the headers of KOKKOS",
    )
    report.check("LAMMPS version", bool(version), "a version", version, f"no LAMMPS source in {source}")
    types = source / "src/KOKKOS/kokkos_type.h"
    # By what the header declares, not by date: the change came to the releases of 2025 one by one.
    if types.is_file() and "KK_FLOAT" in types.read_text():
        advice = f"KOKKOS's classes have changed: use a LAMMPS before that, such as {RELEASE}"
        report.check("arrays of KOKKOS", False, "X_FLOAT and F_FLOAT", f"KK_FLOAT in LAMMPS {version}", advice)
    elif version and version != RELEASE:
        report.note(f"warning: clebsch/kk is tested with LAMMPS {RELEASE}")
    report.same("PKG_PLUGIN", True, on(cache.get("PKG_PLUGIN")), "configure LAMMPS with -D PKG_PLUGIN=ON and build it")
    report.same("PKG_KOKKOS", True, on(cache.get("PKG_KOKKOS")), "configure LAMMPS with -D PKG_KOKKOS=ON and build it")
    sizes = cache.get("LAMMPS_SIZES", "")
    report.check(
        "integer sizes", sizes in {"smallbig", "bigbig"}, "smallbig or bigbig", sizes, "-D LAMMPS_SIZES=smallbig"
    )
    precision = cache.get("KOKKOS_PREC", "double")
    advice = "clebsch/kk shares arrays with KOKKOS in double: configure LAMMPS with -D KOKKOS_PREC=double"
    report.same("KOKKOS_PREC", "double", precision.lower(), advice)
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
    if not on(cache.get("PKG_KOKKOS")):
        return []
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
    program = program_of(build, cache)
    text = ask_program(program) if program and not args.no_run else ""
    if text:
        check_program(report, text, version, cache, kokkos)
    else:
        report.note("not checked: the program itself (it was not found, or does not run on this machine)")
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
    taken = mine.get("Kokkos_DIR", "")
    wanted = Path(host.get("Kokkos_DIR") or build / "lib/kokkos")
    if taken:
        versions = [Kokkos.read(p).version for p in (kokkos_folder(wanted) or wanted, Path(taken))]
        report.same("Kokkos version", *versions, f"remove {clebsch} and configure again")


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lammps-build", type=Path, required=True, metavar="DIR")
    parser.add_argument("--lammps-source", type=Path, metavar="DIR")
    parser.add_argument("--kokkos", type=Path, metavar="DIR")
    parser.add_argument("--options", type=Path, metavar="FILE", help="write CMake's options here, one a line")
    parser.add_argument("--configured", type=Path, metavar="DIR", help="compare this Clebsch build folder instead")
    parser.add_argument("--no-run", action="store_true", help="do not start the LAMMPS executable")
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
