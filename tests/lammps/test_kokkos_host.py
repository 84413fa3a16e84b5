"""scripts/build-kokkos looks at a Kokkos LAMMPS before it builds: fake build folders, each with one damage."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "scripts/kokkos_host.py"

COMMON = """SET(Kokkos_DEVICES OPENMP;SERIAL)
SET(Kokkos_OPTIONS COMPLEX_ALIGN)
SET(Kokkos_ARCH )
SET(Kokkos_CXX_COMPILER_ID "GNU")
SET(Kokkos_CXX_COMPILER_VERSION "12.2.0")
"""


class Host:
    """A LAMMPS source tree, its build folder and a Kokkos, as far as the script looks at them."""

    def __init__(self, folder: Path):
        self.folder, self.source, self.build = folder, folder / "lammps source", folder / "build"
        self.kokkos = folder / "kokkos"
        self.write("lammps source/src/version.h", '#define LAMMPS_VERSION "4 Feb 2025"\n')
        self.write("lammps source/src/lammpsplugin.h", "")
        self.write("lammps source/src/KOKKOS/kokkos_type.h", "")
        self.write_kokkos(self.kokkos)
        self.cache = {
            "CMAKE_HOME_DIRECTORY:INTERNAL": self.source / "cmake",
            "CMAKE_BUILD_TYPE:STRING": "Release",
            "CMAKE_CXX_COMPILER:FILEPATH": sys.executable,  # any file that is there
            "CMAKE_CXX_FLAGS:STRING": "",
            "CMAKE_CXX_FLAGS_RELEASE:STRING": "-O3 -DNDEBUG",
            "BUILD_MPI:BOOL": "ON",
            "BUILD_OMP:BOOL": "ON",
            "BUILD_SHARED_LIBS:BOOL": "ON",
            "PKG_KOKKOS:BOOL": "ON",
            "PKG_PLUGIN:BOOL": "yes",
            "EXTERNAL_KOKKOS:BOOL": "ON",
            "Kokkos_DIR:PATH": self.kokkos / "lib/cmake/Kokkos",
            "LAMMPS_SIZES:STRING": "smallbig",
            "MPI_CXX_COMPILER:FILEPATH": "/usr/bin/mpicxx",
            "MPI_mpi_LIBRARY:FILEPATH": "/usr/lib/libmpi.so",
        }
        self.compiler = ("GNU", "12.2.0")

    def write(self, name, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_kokkos(self, prefix: Path, version="4.5.1", common=COMMON) -> None:
        folder = prefix / "lib/cmake/Kokkos"
        self.write(folder / "KokkosConfig.cmake", "")
        self.write(folder / "KokkosConfigVersion.cmake", f'set(PACKAGE_VERSION "{version}")\n')
        self.write(folder / "KokkosConfigCommon.cmake", common)

    def write_build(self, build: Path, cache: dict, compiler: tuple) -> None:
        text = "# a comment\n//Build MPI version\n" + "".join(f"{key}={value}\n" for key, value in cache.items())
        self.write(build / "CMakeCache.txt", text)
        name, version = compiler
        self.write(
            build / "CMakeFiles/3.25.1/CMakeCXXCompiler.cmake",
            f'set(CMAKE_CXX_COMPILER_ID "{name}")\nset(CMAKE_CXX_COMPILER_VERSION "{version}")\n',
        )

    def run(self, *arguments) -> subprocess.CompletedProcess:
        self.write_build(self.build, self.cache, self.compiler)
        command = [sys.executable, HOST, "--lammps-build", self.build, *arguments]
        return subprocess.run([str(word) for word in command], capture_output=True, text=True)


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path)


def refused(done: subprocess.CompletedProcess, *words: str) -> None:
    """Exactly one mismatch, which names all of `words`."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("mismatch")]
    assert done.returncode == 1 and len(lines) == 1, done.stdout + done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_a_host_that_matches(host):
    options = host.folder / "options"
    done = host.run("--lammps-source", host.source, "--kokkos", host.kokkos, "--options", options)
    assert done.returncode == 0, done.stderr
    lines = options.read_text().splitlines()
    assert f"-DLAMMPS_KOKKOS_BUILD_DIR={host.build}" in lines and "-DCLEBSCH_KOKKOS=ON" in lines
    assert f"-DKokkos_DIR={host.kokkos}/lib/cmake/Kokkos" in lines and "-DMPI_CXX_COMPILER=/usr/bin/mpicxx" in lines
    assert host.run("--lammps-source", host.source / "src").returncode == 0


CACHE_DAMAGE = {
    "PKG_PLUGIN:BOOL": ("OFF", "PKG_PLUGIN", "-D PKG_PLUGIN=ON"),
    "CMAKE_CXX_FLAGS:STRING": ("-D_GLIBCXX_USE_CXX11_ABI=0", "flags of LAMMPS", "_GLIBCXX_USE_CXX11_ABI=0"),
    "CMAKE_CXX_COMPILER:FILEPATH": ("/nowhere/g++", "compiler of LAMMPS", "/nowhere/g++"),
    "BUILD_OMP:BOOL": ("OFF", "BUILD_OMP", "expected ON, got OFF"),
    "Kokkos_DIR:PATH": ("/nowhere", "Kokkos", "KokkosConfig.cmake"),
}


@pytest.mark.parametrize("name", CACHE_DAMAGE)
def test_damaged_caches(host, name):
    value, *words = CACHE_DAMAGE[name]
    host.cache[name] = value
    refused(host.run(), *words)


KOKKOS_DAMAGE = {
    "compiler": ("12.2.0", "14.1.0", "compiler of Kokkos: expected GNU 12.2.0, got GNU 14.1.0"),
    "architecture": ("OPENMP;SERIAL", "CUDA;SERIAL", "Kokkos architecture: expected a GPU such as HOPPER90"),
}


@pytest.mark.parametrize("name", KOKKOS_DAMAGE)
def test_damaged_kokkos(host, name):
    old, new, words = KOKKOS_DAMAGE[name]
    host.write_kokkos(host.kokkos, common=COMMON.replace(old, new))
    for tool in ("kokkos_launch_compiler", "nvcc_wrapper"):
        host.write(host.kokkos / "bin" / tool, "")
    refused(host.run(), words)


def test_another_kokkos_than_the_one_of_lammps(host):
    other = host.folder / "other"
    host.write_kokkos(other, version="4.6.0")
    refused(host.run("--kokkos", other), "expected 4.5.1, got 4.6.0", "the one that LAMMPS was built with")
    host.write_kokkos(other, common=COMMON.replace("COMPLEX_ALIGN", "COMPLEX_ALIGN;DEBUG"))
    refused(host.run("--kokkos", other), "Kokkos_OPTIONS", "DEBUG")
    host.write_kokkos(other)
    assert host.run("--kokkos", other).returncode == 0


def test_another_source_and_no_source(host):
    shutil.copytree(host.source, host.folder / "another")
    refused(host.run("--lammps-source", host.folder / "another"), "LAMMPS source", str(host.source))
    (host.build / "CMakeCache.txt").unlink()
    command = [sys.executable, HOST, "--lammps-build", host.build]
    refused(subprocess.run(command, capture_output=True, text=True), "CMakeCache.txt")


@pytest.mark.parametrize(
    "declared, precision, refusal",
    [
        ("KK_FLOAT", "single", "expected a LAMMPS with KOKKOS_PREC=DOUBLE or MIXED, got SINGLE"),
        ("X_FLOAT", "mixed", "expected a LAMMPS 20250910 with KOKKOS_PREC=DOUBLE, got MIXED"),
    ],
)
def test_cmake_refuses_a_precision(host, declared, precision, refusal):
    """Mixed precision by LAMMPS's header: a version of 2025 may have the old classes or the new ones. The plugin's own
    CMake files, included by a project of nothing else, stop before they look for Kokkos."""
    host.write("lammps source/src/version.h", '#define LAMMPS_VERSION "10 Sep 2025"\n')
    host.write("lammps source/src/KOKKOS/kokkos_type.h", f"typedef double {declared};\n")
    cache = host.cache | {"BUILD_MPI:BOOL": "OFF", "KOKKOS_PREC:STRING": precision}
    host.write_build(host.build, cache, host.compiler)
    project = (
        f'cmake_minimum_required(VERSION 3.25)\nproject(host NONE)\nset(LAMMPS_BUILD_DIR "{host.build}")\n'
        f'set(CLEBSCH_KOKKOS ON)\ninclude("{ROOT}/lammps_plugin/host/LammpsHost.cmake")\n'
        f'include("{ROOT}/lammps_plugin/kokkos/KokkosHost.cmake")\n'
    )
    folder = host.write("project/CMakeLists.txt", project).parent
    done = subprocess.run(["cmake", "-S", folder, "-B", folder / "build"], capture_output=True, text=True)
    said = " ".join(done.stderr.split())
    assert done.returncode != 0 and refusal in said, said


def test_a_kokkos_inside_lammps(host):
    host.cache["EXTERNAL_KOKKOS:BOOL"] = "OFF"
    host.write_kokkos(host.kokkos)
    shutil.copytree(host.kokkos / "lib/cmake/Kokkos", host.build / "lib/kokkos")
    assert host.run().returncode == 0


def test_device_code_has_its_compiler(host):
    host.write_kokkos(
        host.kokkos, common=COMMON.replace("OPENMP;SERIAL", "CUDA;SERIAL").replace("ARCH )", "ARCH HOPPER90)")
    )
    refused(host.run(), "compiler of Kokkos: expected kokkos_launch_compiler and nvcc_wrapper")
    for tool in ("kokkos_launch_compiler", "nvcc_wrapper"):
        host.write(host.source / "lib/kokkos/bin" / tool, "")
    options = host.folder / "options"
    assert host.run("--options", options).returncode == 0
    assert f"-DCLEBSCH_NVCC_WRAPPER={host.source}/lib/kokkos/bin/nvcc_wrapper" in options.read_text().splitlines()


def test_what_cmake_took(host):
    mine = host.folder / "clebsch"
    host.write_build(mine, host.cache, host.compiler)
    assert host.run("--configured", mine).returncode == 0
    host.write_build(mine, host.cache, ("Clang", "14.0.6"))
    refused(host.run("--configured", mine), "expected GNU 12.2.0, got Clang 14.0.6")
    host.write_build(mine, host.cache | {"MPI_mpi_LIBRARY:FILEPATH": "/opt/mpich/libmpi.so"}, host.compiler)
    refused(host.run("--configured", mine), "expected /usr/lib/libmpi.so, got /opt/mpich/libmpi.so")
