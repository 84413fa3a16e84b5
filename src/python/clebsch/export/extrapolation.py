"""A description with the grade of extrapolation that a training set gives its model (docs/uncertainty.md)."""

from __future__ import annotations

import dataclasses
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import grade
from ..progress import Progress, silent
from . import backend
from .description import Description

if TYPE_CHECKING:
    from ase import Atoms

_log = logging.getLogger("clebsch")


@dataclasses.dataclass
class Extrapolation:
    """What the grade is made from. training: structures, or a file that ASE reads; grade, ridge, pooling: as of
    clebsch.grade.fit."""

    training: str | os.PathLike[str] | Sequence[Atoms]
    grade: str = "auto"
    ridge: float | str = "auto"
    pooling: str = "all"


def graded(description: Description, dtype: str, wanted: Extrapolation, progress: Progress = silent) -> Description:
    """The description with a grade: the model is written, loaded in fp64 and asked for the features of every training
    atom. Needs libclebsch and ASE. Raises ClebschError as clebsch.grade.fit does and for a file of structures that
    cannot be read. Elements that no structure has are told to the logger "clebsch"."""
    from ..features import atom_features, read_structures

    structures = wanted.training
    if isinstance(structures, (str, os.PathLike)):
        structures = read_structures(structures)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        backend.write(dataclasses.replace(description, grade=None), path, dtype)
        features, types = atom_features(structures, path, progress=progress)
    names = description.type_names
    result = grade.fit(features, types, len(names), wanted.grade, wanted.ridge, wanted.pooling)
    missing = [name for name, count in zip(names, result.counts, strict=True) if count == 0]
    if missing:
        _log.warning(
            "--extrapolation: no structure has %s, which the model knows: grades of these atoms are infinite",
            ", ".join(missing),
        )
    return dataclasses.replace(description, grade=result)
