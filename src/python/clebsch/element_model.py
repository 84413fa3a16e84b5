"""A model file for structures that ASE describes: chemical elements as its types, loaded for those that turn up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.data import atomic_numbers, chemical_symbols
from numpy.typing import NDArray

from . import library
from .errors import ClebschError
from .neighbours import NeighbourFinder
from .progress import Progress, silent
from .runtime import Model, check_device, dtype_name, inspect

#: From this many types on a model is loaded for the elements in use alone: tables of all pairs would be large.
_MANY_TYPES = 5
#: Of atom_virial and virials, xx yy zz xy xz yz, in ASE's Voigt order xx yy zz yz xz xy.
VOIGT = [0, 1, 2, 5, 4, 3]


class ElementModel:
    """path: model file. device, dtype, radial, threads, cuda_graph: as of runtime.Model, device "auto" by default.
    types: the model's type name for each chemical symbol, where they differ.

    With a handful of types the model is loaded at once, so that a bad option shows here. Copies and pickles load the
    file again. Raises ClebschError as Model does.
    """

    def __init__(
        self, path: str | os.PathLike[str], types: Mapping[str, str] | None = None, device: str = "auto", **options: Any
    ) -> None:
        device = check_device(device)
        library.require()
        self.metadata = inspect(path)
        self.path = os.path.abspath(path)  # a copy may be made in another folder
        self.dtype = dtype_name(options.get("dtype"))
        self._options = options | {"device": device, "dtype": self.dtype}
        names = list(self.metadata["type_names"])
        # By atomic number: the type, -1 where the model has none.
        self._table = np.full(len(chemical_symbols) + 1, -1, dtype=np.int32)
        for index, name in enumerate(names):
            if name in atomic_numbers:
                self._table[atomic_numbers[name]] = index
        for symbol, name in (types or {}).items():
            if name not in names:
                raise ClebschError(f"types: expected one of {', '.join(names)} for {symbol}, got {name!r}")
            if symbol not in atomic_numbers:
                raise ClebschError(f"types: expected chemical symbols, got {symbol!r}")
            self._table[atomic_numbers[symbol]] = names.index(name)
        self._in_use: set[int] = set()
        self._model: Model | None = None
        if len(names) < _MANY_TYPES:
            self._load(set(range(len(names))))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _model=None)
        if self._in_use:
            self._load(self._in_use)

    @property
    def loaded(self) -> Model | None:
        """The model, if it is loaded."""
        return self._model

    @property
    def model(self) -> Model:
        """The loaded model; with many types, after the first elements were seen."""
        if self._model is None:
            raise ClebschError("the model is loaded by the first calculation")
        return self._model

    def _load(self, types: set[int], progress: Progress = silent) -> None:
        wanted = self._in_use | types
        names = [name for index, name in enumerate(self.metadata["type_names"]) if index in wanted]
        self._model = Model(self.path, types_in_use=names, progress=progress, **self._options)
        self._in_use = wanted

    def _table_of(self, numbers: NDArray[Any]) -> NDArray[np.int32]:
        """Types of atomic numbers, -1 where the model has none."""
        known = (numbers >= 0) & (numbers < len(self._table))
        return self._table[np.where(known, numbers, -1)]

    def knows(self, numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the model has a type for each of the atomic numbers (N,)."""
        return self._table_of(np.asarray(numbers)) >= 0

    def check(self, numbers: NDArray[Any]) -> None:
        """ClebschError, which names them, where the model has no type for some of the atomic numbers (N,)."""
        numbers = np.asarray(numbers)
        strange = np.unique(numbers[~self.knows(numbers)]).tolist()
        if not strange:
            return
        unknown = sorted({chemical_symbols[n] if 0 <= n < len(chemical_symbols) else str(n) for n in strange})
        raise ClebschError(
            f"{os.path.basename(self.path)}: expected elements among {', '.join(self.metadata['type_names'])}, got "
            f"{', '.join(unknown)}"
        )

    def types_of(self, numbers: NDArray[Any], progress: Progress = silent) -> torch.Tensor:
        """Types (N,) int32 of atomic numbers (N,); loads the model for them. ClebschError for unknown elements."""
        numbers = np.asarray(numbers)
        types = self._table_of(numbers)
        if not (types >= 0).all():
            self.check(numbers)
        found = set(np.flatnonzero(np.bincount(types)).tolist())
        if self._model is None or not found <= self._in_use:
            self._load(found, progress)
        return torch.from_numpy(types)

    def explained(self, error: ClebschError, atoms: Atoms) -> ClebschError:
        """The error of a step on these atoms, with the closest pair where that may be its cause."""
        if "too close" not in str(error):
            return error
        edges = NeighbourFinder(self.metadata["r_max"]).find(atoms.positions, atoms.cell, atoms.pbc)
        if len(edges) == 0:
            return error
        lengths = edges.vectors.norm(dim=1)
        at = int(lengths.argmin())
        i, j = int(edges.receivers[at]), int(edges.senders[at])
        return ClebschError(
            f"{error}. The closest pair: atoms {i} ({atoms[i].symbol}) and {j} ({atoms[j].symbol}), "
            f"{float(lengths[at]):.3g} Angstrom"
        )


def volumes_of(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Volumes (S,) of cells (S, 3, 3), 0 for those without three vectors."""
    return np.abs(np.linalg.det(cells))
