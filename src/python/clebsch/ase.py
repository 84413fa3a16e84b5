"""The ASE calculator.

>>> from clebsch.ase import ClebschCalculator
>>> atoms.calc = ClebschCalculator("model.pt")
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from . import library
from .errors import ClebschError
from .neighbours import NeighbourFinder, NeighbourList
from .runtime import Model, check_device, dtype_name, inspect

_CALCULATOR_KEYWORDS = {"restart", "ignore_bad_restart_file", "label", "atoms", "directory"}
_FORCE_PROPERTIES = {"forces", "stress", "stresses"}
# atom_virial has xx yy zz xy xz yz, ASE's Voigt order is xx yy zz yz xz xy.
_VOIGT = [0, 1, 2, 5, 4, 3]


class ClebschCalculator(Calculator):
    """Energies (eV), forces (eV/A) and stress (eV/A^3) of a Clebsch model file.

    model: path of the model file.
    device: "cpu", "cuda", "cuda:N", or "auto" for a GPU when there is a usable one, else the CPU.
    dtype: "float32", "float64", or None for the model's own.
    radial: "table", or "exact" for the radial network itself (slow, the reference).
    types: model type name for each chemical symbol, where they differ, e.g. {"H": "H_water"}.
    threads: threads of the model; None for torch's current setting. Worker processes that are forked once a model is
        loaded compute with one thread (threads of OpenMP do not survive a fork); spawned ones with all.
    skin: Angstrom by which neighbour lists reach beyond the cutoff, so that a list serves several steps of a run.

    energy is the sum of energies, atomic reference energies of the model included; free_energy equals it. stress is
    -virial/volume in Voigt order xx yy zz yz xz xy, stresses (N, 6) sum up to it. Any mix of periodic boundaries and
    cells smaller than the cutoff are fine. Copies and pickles load the model file again. Raises ClebschError when
    libclebsch is missing or does not fit the running torch, when the file is refused, and for an element that the model
    does not know.
    """

    implemented_properties = ["energy", "free_energy", "energies", "forces", "stress", "stresses"]  # noqa: RUF012
    default_parameters: dict[str, Any] = {}  # noqa: RUF012
    name = "clebsch"

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: str = "auto",
        dtype: str | None = None,
        *,
        radial: str = "table",
        types: Mapping[str, str] | None = None,
        threads: int | None = None,
        skin: float = 1.0,
        **kwargs: Any,
    ) -> None:
        # ase's Calculator takes any keyword as a parameter of its own, and nobody would notice a wrong one.
        for unknown in kwargs.keys() - _CALCULATOR_KEYWORDS:
            raise TypeError(f"ClebschCalculator got an unexpected keyword argument {unknown!r}")
        super().__init__(**kwargs)
        device = check_device(device)
        library.require()
        self.metadata = inspect(model)
        self._path = os.path.abspath(model)  # a copy may be made in another folder
        self._options = {"dtype": dtype_name(dtype), "radial": radial, "threads": threads or 0, "device": device}
        # For files that ASE writes, which then say what was computed with.
        self.parameters.update({"model": self._path, "skin": skin, "types": dict(types or {}), **self._options})
        names = list(self.metadata["type_names"])
        self._type_of = {name: index for index, name in enumerate(names)}
        for symbol, name in (types or {}).items():
            if name not in self._type_of:
                raise ClebschError(f"types: expected one of {', '.join(names)} for {symbol}, got {name!r}")
        self._type_of.update({symbol: names.index(name) for symbol, name in (types or {}).items()})
        self._in_use: set[str] = set()
        self._skin = skin
        self._forget()
        # A handful of types costs little: load now, so that a bad option shows here. With many types the radial
        # tables of all pairs would be large: those of the elements that turn up are built then.
        if len(names) <= 4:
            self._load(names)

    def _forget(self) -> None:
        self._list = NeighbourList(self.metadata["r_max"], self._skin)
        self._list_types = torch.empty(0, dtype=torch.int64)
        self._model: Model | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the model, which loads its file again, and the list that the model holds."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_model", "_list", "_list_types")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()
        if self._in_use:
            self._load(sorted(self._in_use))

    def set(self, **kwargs: Any) -> dict[str, Any]:
        """A calculator stays what it was made as; TypeError for any parameter."""
        for name in kwargs:
            raise TypeError(f"ClebschCalculator: {name!r} cannot be changed; make another calculator")
        return {}

    @property
    def model(self) -> Model:
        """The loaded model; with many types, after the first calculation."""
        if self._model is None:
            raise ClebschError("the model is loaded by the first calculation")
        return self._model

    def _load(self, names: Sequence[str]) -> None:
        wanted = self._in_use | set(names)
        in_use = [n for n in self.metadata["type_names"] if n in wanted]
        self._model = Model(self._path, types_in_use=in_use, **self._options)
        self._in_use = wanted
        self._list.forget()

    def _types(self, atoms: Atoms) -> torch.Tensor:
        symbols = atoms.get_chemical_symbols()
        unknown = sorted(set(symbols) - set(self._type_of))
        if unknown:
            raise ClebschError(
                f"expected elements among {', '.join(self.metadata['type_names'])}, got {', '.join(unknown)}"
            )
        indices = [self._type_of[s] for s in symbols]
        names = {self.metadata["type_names"][i] for i in indices}
        if self._model is None or not names <= self._in_use:
            self._load(sorted(names))
        return torch.tensor(indices, dtype=torch.int64)

    def _closest(self, atoms: Atoms) -> str:
        """The pair that has come closest, for the message of a step that failed."""
        edges = NeighbourFinder(self.metadata["r_max"]).find(atoms.positions, atoms.cell, atoms.pbc)
        if len(edges) == 0:
            return ""
        lengths = edges.vectors.norm(dim=1)
        at = int(lengths.argmin())
        i, j = int(edges.receivers[at]), int(edges.senders[at])
        return (
            f". The closest pair: atoms {i} ({atoms[i].symbol}) and {j} ({atoms[j].symbol}), "
            f"{float(lengths[at]):.3g} Angstrom"
        )

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        atoms = self.atoms
        volume = abs(np.linalg.det(np.asarray(atoms.cell))) if atoms.cell.rank == 3 else 0.0
        wanted = set(properties)
        if volume == 0.0 and wanted & {"stress", "stresses"}:
            raise PropertyNotImplementedError("stress needs a cell with three vectors")
        gradients = bool(wanted & _FORCE_PROPERTIES)
        types = self._types(atoms)
        if not torch.equal(types, self._list_types):
            self._list.forget()
        pairs = self._list.update(atoms.positions, atoms.cell, atoms.pbc)
        if pairs is not None:
            self._list_types = torch.empty(0, dtype=torch.int64)  # a list that is refused must not count as held
            self.model.set_neighbours(types, pairs.receivers, pairs.senders, pairs.shifts)
            self._list_types = types
        try:
            result = self.model.compute_positions(
                torch.from_numpy(self._list.points),
                torch.from_numpy(self._list.box),
                forces=gradients,
                virial=gradients and volume > 0,
                atom_virial="stresses" in wanted,
            )
        except ClebschError as error:
            raise ClebschError(f"{error}{self._closest(atoms)}") from None
        energy = float(result["energy"])
        self.results = {"energy": energy, "free_energy": energy, "energies": result["atomic_energy"].numpy().copy()}
        if gradients:
            self.results["forces"] = result["forces"].numpy().copy()
            if volume > 0:
                virial = result["virial"].numpy()
                stress = -0.5 * (virial + virial.T) / volume
                self.results["stress"] = stress.flat[[0, 4, 8, 5, 2, 1]].copy()
        if "stresses" in wanted:
            self.results["stresses"] = -result["atom_virial"].numpy()[:, _VOIGT] / volume
