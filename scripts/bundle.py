"""The bundle: what a machine with a GPU and without a network needs of this checkout, in one folder (.gpu).

lib/ (libclebsch.so and the plugins), models/ (random models), wheels/ (Python packages), lammps*.tar.xz (a LAMMPS with
Kokkos and its MPI, also in pieces .00, .01, ...) and plugin.tar.xz (plugins for it) of benchmarks/device,
peers.tar.xz (benchmarks/device/pack_peers.sh). `scripts/gpu-tests pack` makes most of it; scripts/gpu-tests and
benchmarks/run use it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version_of(package: str) -> str:
    """The installed version; '' without the package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


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
    new.setdefault("CLEBSCH_CACHE_DIR", str(work / "kernels"))
    new.setdefault("OMP_NUM_THREADS", "2")
    lib, models = bundle / "lib", bundle / "models"
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
    # The script beside the folder bin, which finds LAMMPS's own libraries.
    programs = [path for path in sorted((work / "lammps").rglob("lmp")) if path.is_file() and path.parent.name != "bin"]
    for name in ("CLEBSCH_LMP", "CLEBSCH_KK_LMP") if programs else ():
        new.setdefault(name, str(programs[0]))
    for name, file in (("CLEBSCH_PLUGIN", "clebschplugin.so"), ("CLEBSCH_KK_PLUGIN", "clebschkkplugin.so")):
        places = [lib / file, *sorted((work / "plugins").rglob(file)), *sorted((work / "lammps").rglob(file))]
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
