"""The bundle: what a machine with a GPU and without a network needs of this checkout, in one folder (.gpu).

lib/ (libclebsch.so and the plugins), models/ (random models), wheels/ (Python packages), lammps.tar.xz (a LAMMPS with
Kokkos and its MPI, benchmarks/device/cross_compile_lammps.sh), peers.tar.xz (benchmarks/device/pack_peers.sh).
`scripts/gpu-tests pack` makes most of it; scripts/gpu-tests and benchmarks/run use it.
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
    new.setdefault("TORCH_LIBS", os.pathsep.join([str(Path(new["CLEBSCH_LIBRARY"]).parent), libraries_of_torch()]))
    if (bundle / "lammps.tar.xz").exists():
        (work / "lammps").mkdir(exist_ok=True)
        subprocess.run(["tar", "xf", bundle / "lammps.tar.xz", "-C", work / "lammps"], check=True)
        # The script beside the folder bin, which finds LAMMPS's own libraries.
        lmp = next(path for path in sorted((work / "lammps").rglob("lmp")) if path.parent.name != "bin")
        for name in ("CLEBSCH_LMP", "CLEBSCH_KK_LMP"):
            new.setdefault(name, str(lmp))
    for name, file in (("CLEBSCH_PLUGIN", "clebschplugin.so"), ("CLEBSCH_KK_PLUGIN", "clebschkkplugin.so")):
        found = [path for path in (lib / file, *(work / "lammps").rglob(file)) if path.exists()]
        if found:
            new.setdefault(name, str(found[0]))
    if peers and (bundle / "peers.tar.xz").exists():
        (work / "peers").mkdir()
        subprocess.run(["tar", "xf", bundle / "peers.tar.xz", "-C", work / "peers"], check=True)
        new["PYTHONPATH"] = os.pathsep.join(filter(None, [str(work / "peers"), new.get("PYTHONPATH", "")]))
        # Their extensions find torch's own CUDA libraries here.
        cuda = [str(path) for path in Path(libraries_of_torch()).parents[1].glob("nvidia/*/lib")]
        new["LD_LIBRARY_PATH"] = os.pathsep.join([*cuda, new.get("LD_LIBRARY_PATH", "")])
    return new
