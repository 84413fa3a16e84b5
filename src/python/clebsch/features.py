"""Features of atoms: what the last readout of a model reads, for grades and for choosing structures."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from .batch import Evaluator
from .errors import ClebschError
from .progress import Progress, silent

#: Structures that are evaluated in one go, so that what is in memory beside the features stays small.
_CHUNK = 256


def read_structures(path: str | os.PathLike[str]) -> list[Atoms]:
    """All structures of a file that ASE reads. Raises ClebschError where it does not, or holds none."""
    import ase.io

    if not os.path.isfile(path):
        raise ClebschError(f"expected a file of structures, got {os.fspath(path)!r}: no such file")
    try:
        found = ase.io.read(path, index=":")
    except Exception as error:  # whatever ASE's reader of that format makes of a bad file
        raise ClebschError(f"ASE could not read {os.fspath(path)}: {type(error).__name__}: {error}") from error
    structures = found if isinstance(found, list) else [found]
    if not structures:
        raise ClebschError(f"{os.fspath(path)}: expected structures, got none")
    return structures


def atom_features(
    structures: Sequence[Atoms],
    model: str | os.PathLike[str],
    *,
    device: str = "cpu",
    progress: Progress = silent,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Features (N, d) and types (N,) of all atoms, structure after structure, computed in fp64.

    model: a file that says which columns these are, as those of this release do. Raises ClebschError for another, and
    as clebsch.evaluate does.
    """
    from .model_file import read_metadata

    metadata = read_metadata(model)
    if "features" not in metadata:
        raise ClebschError(
            f"{os.fspath(model)}: expected a model whose file names its features, got family "
            f"{metadata['family']} of {metadata.get('exporter', 'an older release')}. Export the model again"
        )
    evaluator = Evaluator(model, device, "float64")
    names = metadata["type_names"]
    width = int(metadata["features"]["count"])
    total = sum(len(atoms) for atoms in structures)
    features, types = np.empty((total, width)), np.empty(total, dtype=np.int64)
    at = 0
    for first in range(0, len(structures), _CHUNK):
        chunk = structures[first : first + _CHUNK]
        found = evaluator(chunk, forces=False, stress=False, outputs=["last_features"])
        for atoms, rows in zip(chunk, found.outputs["last_features"], strict=True):
            features[at : at + len(atoms)] = rows
            types[at : at + len(atoms)] = [names.index(symbol) for symbol in atoms.symbols]
            at += len(atoms)
        progress("features", min(first + _CHUNK, len(structures)), len(structures))
    return features, types
