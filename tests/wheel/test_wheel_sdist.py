"""The source distribution: what it holds, and that it builds the wheel that the checkout builds."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from test_wheel_contents import elf_files, readelf

from conftest import ROOT

#: Of pyproject.toml's sdist.exclude, as git's pathspecs.
LEFT_OUT = (".ci", "docs/notebook", "benchmarks/results")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    # What `python -m build --sdist --no-isolation` calls.
    code = "import sys, scikit_build_core.build as backend; print(backend.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("clebsch-*.tar.gz")
    assert archive.stat().st_size < 12e6
    with tarfile.open(archive) as packed:
        packed.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def test_files(source):
    """All that git has but what only the project itself needs, and nothing else."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listed = subprocess.run([*command, ".", *(f":!{path}" for path in LEFT_OUT)], capture_output=True, check=True)
    # A file that was deleted and not yet committed is in git's list.
    expected = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()}
    found = {str(path.relative_to(source)) for path in source.rglob("*") if not path.is_dir()}
    assert found == expected | {"PKG-INFO"}


def test_a_wheel_has_everything(source, tmp_path):
    """Configured as for a wheel, every library of the wheel is built, and no test."""
    command = ["cmake", "-S", source, "-B", tmp_path, "-G", "Ninja", f"-DCLEBSCH_PREFIX={sys.prefix}", "-DSKBUILD=2"]
    subprocess.run(command, check=True, capture_output=True)
    cache = dict(re.findall(r"^(CLEBSCH_\w+):\w+=(.*)$", (tmp_path / "CMakeCache.txt").read_text(), re.MULTILINE))
    assert {name: cache[f"CLEBSCH_{name}"] for name in ("MULTILINEAR", "LAMMPS", "TESTS")} == {
        "MULTILINEAR": "ON",
        "LAMMPS": "ON",
        "TESTS": "OFF",
    }


@pytest.mark.nightly
def test_same_wheel(source, unpacked, tmp_path):
    """File by file as the checkout's: Python, models, headers and metadata to the byte; of libraries what they export,
    ask for and are as large as."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (wheel,) = tmp_path.glob("*.whl")
    other = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(other)
    files = {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()}
    assert {path.relative_to(other) for path in other.rglob("*") if path.is_file()} == files
    libraries = {path.relative_to(unpacked) for path in elf_files(unpacked)}
    different = [
        str(name)
        for name in sorted(files - libraries)
        if name.name != "RECORD" and (unpacked / name).read_bytes() != (other / name).read_bytes()
    ]
    assert different == []
    for name in libraries:
        one, two = (interface(folder / name) for folder in (unpacked, other))
        assert one == two, name
        for place in (source, sys.prefix):
            assert str(place).encode() not in (other / name).read_bytes(), f"{name}: a path of this machine, {place}"
        sizes = [(folder / name).stat().st_size for folder in (unpacked, other)]
        assert abs(sizes[0] - sizes[1]) <= 0.01 * max(sizes), (name, sizes)


def interface(library: Path) -> list:
    """What other libraries see of a library: entries of its dynamic section without addresses, exported names."""
    dynamic = re.findall(r"\((NEEDED|SONAME|RPATH|RUNPATH)\)\s+(.*)", readelf(library, "-d"))
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return [dynamic, sorted(line.split()[-1] for line in names.splitlines())]
