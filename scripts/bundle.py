"""The bundle: what a machine with a GPU and without a network needs of this checkout, in one folder (.gpu).

lib/ (libclebsch.so and the plugins), models/ (random models), wheels/ (Python packages), lammps*.tar.xz (a LAMMPS with
Kokkos and its MPI, also in pieces .00, .01, ...) and plugin.tar.xz (plugins for it) of benchmarks/device,
pypi.tar.xz (PyPI's LAMMPS and MPI, for the plugin in lib/), peers.tar.xz (benchmarks/device/pack_*.sh).
`scripts/gpu-tests pack` makes most of it; scripts/gpu-tests and benchmarks/run use it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


#: What the environment calls the plugins and a program of tests/gpu, and their files.
PLUGINS = {
    "CLEBSCH_PLUGIN": "clebschplugin.so",
    "CLEBSCH_KK_PLUGIN": "clebschkkplugin.so",
    "CLEBSCH_CALL_PAIR": "callpair.so",  # a command of tests/lammps
    "CLEBSCH_EXCHANGE_STEPS": "exchange_steps",
}


def write_commit(bundle: Path, commit: str) -> None:
    """Notes the commit, and what git calls the contents of every source of it."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-s"], capture_output=True, text=True, check=True).stdout
    (bundle / "commit").write_text(f"{commit}\n{listed}")


def commit_of(bundle: Path) -> str:
    """The commit that was packed, ending with "-dirty" where a source of this tree is not that commit's.

    git's own answer is of no use on another machine, whose copy of the tree may have a git that knows an older commit.
    """
    commit, *lines = (bundle / "commit").read_text().splitlines()
    for line in lines:
        head, name = line.split("\t", 1)
        mode, sha = head.split()[:2]
        if not mode.startswith("100") or name.startswith("benchmarks/results/"):  # a link; what runs write
            continue
        path = ROOT / name
        data = path.read_bytes() if path.is_file() else None
        if data is None or hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() != sha:
            return commit.removesuffix("-dirty") + "-dirty"
    return commit


def libraries_of_torch() -> str:
    """The folder of torch's libraries, found without importing it; '' without torch."""
    found = importlib.util.find_spec("torch")
    return str(Path(found.origin).parent / "lib") if found and found.origin else ""


def unpack(pieces: list[Path], folder: Path) -> None:
    """Unpacks an archive, which may be in pieces; nothing where there is none."""
    if pieces:
        folder.mkdir(exist_ok=True)
        with subprocess.Popen(["tar", "xJf", "-", "-C", folder], stdin=subprocess.PIPE) as tar:
            for piece in pieces:
                tar.stdin.write(piece.read_bytes())
        if tar.returncode != 0:
            names = ", ".join(piece.name for piece in pieces)
            raise SystemExit(f"expected an archive in {names}, got something else: tar ended with {tar.returncode}")


def environment(bundle: Path, work: Path, peers: bool = False) -> dict[str, str]:
    """The environment of tests and benchmarks; the bundle's archives are unpacked into the folder `work`.

    What the environment says already, or a build of this checkout has, needs no bundle.
    """
    new = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
    # Not in `work`: a second command on the same machine finds the kernels of the first.
    new.setdefault("CLEBSCH_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"clebsch-kernels-{os.getuid()}"))
    new.setdefault("OMP_NUM_THREADS", "2")
    lib, models = bundle / "lib", bundle / "models"
    if (bundle / "commit").exists():
        new.setdefault("CLEBSCH_COMMIT", commit_of(bundle))
    if (lib / "libclebsch.so").exists():
        new.setdefault("CLEBSCH_LIBRARY", str(lib / "libclebsch.so"))
    new.setdefault("CLEBSCH_LIBRARY", str(ROOT / "build/lib/libclebsch.so"))
    if models.is_dir():
        new.setdefault("CLEBSCH_GPU_MODELS", str(models))
    wheels = sorted((bundle / "wheels").glob("*.whl"))
    if wheels:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
        subprocess.run([*command, "--no-cache-dir", "--target", work / "site", *wheels], check=True)
        new["PYTHONPATH"] = os.pathsep.join(filter(None, [str(work / "site"), new.get("PYTHONPATH", "")]))
    unpack(sorted(bundle.glob("lammps*.tar.xz*")), work / "lammps")
    unpack(sorted(bundle.glob("plugin.tar.xz")), work / "plugins")
    unpack(sorted(bundle.glob("pypi.tar.xz")), work / "pypi")
    if (work / "pypi/lmp").exists():
        if new.setdefault("CLEBSCH_LMP", str(work / "pypi/lmp")) == str(work / "pypi/lmp"):
            new.setdefault("CLEBSCH_LAMMPS_IN_PYTHON", str(work / "pypi"))
    # The script beside the folder bin, which finds LAMMPS's own libraries.
    programs = [path for path in sorted((work / "lammps").rglob("lmp")) if path.is_file() and path.parent.name != "bin"]
    for name in ("CLEBSCH_LMP", "CLEBSCH_KK_LMP") if programs else ():
        new.setdefault(name, str(programs[0]))
    for name, file in PLUGINS.items():
        # Those of the archives first: they are for the MPI of the LAMMPS beside them.
        places = [*sorted((work / "plugins").rglob(file)), *sorted((work / "lammps").rglob(file)), lib / file]
        if found := [path for path in places if path.exists()]:
            new.setdefault(name, str(found[0]))
    beside = [str(Path(new[name]).parent) for name in ("CLEBSCH_PLUGIN", "CLEBSCH_LIBRARY") if name in new]
    new.setdefault("TORCH_LIBS", os.pathsep.join([*dict.fromkeys(beside), libraries_of_torch()]))
    if peers and (bundle / "peers.tar.xz").exists():
        unpack([bundle / "peers.tar.xz"], work / "peers")
        new["PYTHONPATH"] = os.pathsep.join(filter(None, [str(work / "peers"), new.get("PYTHONPATH", "")]))
        # Their extensions find torch's own CUDA libraries here.
        cuda = [str(path) for path in Path(libraries_of_torch()).parents[1].glob("nvidia/*/lib")]
        new["LD_LIBRARY_PATH"] = os.pathsep.join([*cuda, new.get("LD_LIBRARY_PATH", "")])
    return new
