"""The ASE calculator.

>>> from clebsch.ase import ClebschCalculator
>>> atoms.calc = ClebschCalculator("model.pt")
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes
from ase.outputs import Properties, all_outputs
from numpy.typing import NDArray

from .element_model import VOIGT, ElementModel
from .errors import ClebschError
from .runtime import Model
from .turns import Turns

_CALCULATOR_KEYWORDS = {"restart", "ignore_bad_restart_file", "label", "atoms", "directory"}
_FORCE_PROPERTIES = {"forces", "stress", "stresses"}


#: Bytes up to which a copy is cheaper than numpy's way of comparing.
_SMALL = 8192


def _same(before: NDArray[Any], now: NDArray[Any]) -> bool:
    if before.shape != now.shape:
        return False
    return before.tobytes() == now.tobytes() if before.nbytes < _SMALL else bool((before == now).all())


def _volume(cell: NDArray[np.float64]) -> float:
    """Of a cell (3, 3); numpy's determinant takes ten times as long."""
    (a, b, c), (d, e, f), (g, h, i) = cell.tolist()
    return abs(a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g))


class ClebschCalculator(Calculator):
    """Energies (eV), forces (eV/A) and stress (eV/A^3) of a Clebsch model file.

    model: path of the model file.
    device: "cpu", "cuda", "cuda:N", or "auto" for a GPU when there is a usable one, else the CPU.
    dtype: "float32", "float64", or None for the model's own.
    radial: "table", or "exact" for the radial network itself (slow, the reference).
    types: model type name for each chemical symbol, where they differ, e.g. {"H": "H_water"}.
    threads: threads of the model; None for torch's current setting. Worker processes that are forked once a model is
        loaded compute with one thread (threads of OpenMP do not survive a fork); spawned ones with all.
    skin: Angstrom by which neighbour lists reach beyond the cutoff, so that a list serves several steps of a run, also
        while a cell changes.

    extrapolation: whether every calculation also gives the grades of extrapolation (N,), results["extrapolation"], of a
        model that has them (docs/uncertainty.md); get_property("extrapolation", atoms) gives them when asked.

    energy is the sum of energies, atomic reference energies of the model included; free_energy equals it. stress is
    -virial/volume in Voigt order xx yy zz yz xz xy, stresses (N, 6) sum up to it. Any mix of periodic boundaries and
    cells smaller than the cutoff are fine. Neighbours are searched where the model runs. Threads that share a
    calculator take turns, one after the other. Copies and pickles load the model file again. Raises ClebschError when
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
        extrapolation: bool = False,
        **kwargs: Any,
    ) -> None:
        # ase's Calculator takes any keyword as a parameter of its own, and nobody would notice a wrong one.
        for unknown in kwargs.keys() - _CALCULATOR_KEYWORDS:
            raise TypeError(f"ClebschCalculator got an unexpected keyword argument {unknown!r}")
        super().__init__(**kwargs)
        if not (math.isfinite(skin) and skin >= 0):
            raise ClebschError(f"skin: expected a distance of at least 0 Angstrom, got {skin}")
        self._turns = Turns()
        self._elements = ElementModel(model, types, device, dtype=dtype, radial=radial, threads=threads or 0)
        self._skin = float(skin)
        graded = "extrapolation" in self._elements.metadata
        if extrapolation and not graded:
            raise ClebschError(
                f"extrapolation: expected a model file with a grade, got {self._elements.path}; "
                "clebsch export --extrapolation TRAIN.xyz makes one"
            )
        self._always_graded = bool(extrapolation)
        if graded:
            self.implemented_properties = [*self.implemented_properties, "extrapolation"]
        # For files that ASE writes, which then say what was computed with.
        told = {"dtype": self._elements.dtype, "radial": radial, "threads": threads or 0, "device": str(device)}
        self.parameters.update({"model": self._elements.path, "skin": skin, "types": dict(types or {}), **told})
        self._held = Atoms()
        self._views: tuple[torch.Tensor, ...] = ()
        self._numbers = np.empty(0, dtype=np.int64)
        self._types, self._starts = torch.empty(0, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)

    def __copy__(self) -> ClebschCalculator:
        """With a model of its own, which loads its file again."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _elements=copy.copy(self._elements), _held=Atoms(), _views=(), atoms=None)
        other._turns = Turns()
        other.results = {}
        return other

    def __getstate__(self) -> dict[str, Any]:
        # The views would no longer be of the memory that is held.
        return self.__dict__ | {"_held": Atoms(), "_views": ()}

    def set(self, **kwargs: Any) -> dict[str, Any]:
        """A calculator stays what it was made as; TypeError for any parameter."""
        for name in kwargs:
            raise TypeError(f"ClebschCalculator: {name!r} cannot be changed; make another calculator")
        return {}

    @property
    def metadata(self) -> dict[str, Any]:
        """What the model file says of itself."""
        return self._elements.metadata

    @property
    def model(self) -> Model:
        """The loaded model; with many types, after the first calculation."""
        return self._elements.model

    def get_property(self, name: str, atoms: Atoms | None = None, allow_calculation: bool = True) -> Any:
        """As of ASE's Calculator; of one thread at a time, or one would be given what another has asked for."""
        with self._turns:
            return super().get_property(name, atoms, allow_calculation)

    def export_properties(self) -> Properties:
        """As of ASE's Calculator, which knows its own names alone: without grades and deviations."""
        return Properties({name: value for name, value in self.results.items() if name in all_outputs})

    def check_state(self, atoms: Atoms, tol: float = 0.0) -> list[str]:
        """What the model reads and what has changed since the last calculation. A pass over the positions; ASE's own
        takes several, also over what no model reads."""
        held = self.atoms
        if held is None:
            return list(all_changes)
        changed = [] if _same(held.arrays["positions"], atoms.arrays["positions"]) else ["positions"]
        if not _same(held.arrays["numbers"], atoms.arrays["numbers"]):
            changed.append("numbers")
        if not _same(held.cell.array, atoms.cell.array):
            changed.append("cell")
        return changed if _same(held.pbc, atoms.pbc) else [*changed, "pbc"]

    def _hold(self, atoms: Atoms, changes: Sequence[str]) -> None:
        """Copies what check_state compares with, as far as it has changed. ASE's own copy takes momenta and constraints
        along, in each step."""
        held = self._held
        if len(held) != len(atoms) or not self._views:
            numbers, positions = atoms.arrays["numbers"], atoms.arrays["positions"]
            self._held = held = Atoms(numbers=numbers, positions=positions, cell=atoms.cell, pbc=atoms.pbc)
            # Of memory that stays: a step makes no tensor of its own.
            arrays = held.arrays["positions"], held.cell.array[None], held.pbc[None]
            self._views = tuple(torch.from_numpy(array) for array in arrays)
        else:
            for name in ("positions", "numbers"):
                if name in changes:
                    held.arrays[name][:] = atoms.arrays[name]
            if "cell" in changes:
                held.cell.array[:] = atoms.cell.array
            if "pbc" in changes:
                held.pbc[:] = atoms.pbc
        self.atoms = held  # which reset() takes away

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        with self._turns:
            self._calculate_changed(atoms, properties, system_changes)

    def _calculate_changed(self, atoms: Atoms | None, properties: Sequence[str], system_changes: Sequence[str]) -> None:
        self.results = {}  # those of other atoms, should this fail
        if atoms is not None:
            self._hold(atoms, system_changes)
        atoms = self.atoms
        wanted = set(properties)
        gradients = not wanted.isdisjoint(_FORCE_PROPERTIES)
        graded = self._always_graded or "extrapolation" in wanted
        volume = _volume(atoms.cell.array) if gradients else 0.0
        if volume == 0.0 and wanted & {"stress", "stresses"}:
            raise PropertyNotImplementedError("stress needs a cell with three vectors")
        numbers = atoms.arrays["numbers"]
        if self._elements.loaded is None or not _same(numbers, self._numbers):
            self._types = self._elements.types_of(numbers)
            self._starts = torch.tensor([0, len(numbers)], dtype=torch.int32)
            self._numbers = numbers.copy()
        try:
            if "stresses" in wanted:
                self._calculate_more(graded, gradients, volume)
            else:
                self._calculate(graded, gradients, volume)
        except ClebschError as error:
            raise self._elements.explained(error, atoms) from None

    def _calculate(self, graded: bool, gradients: bool, volume: float) -> None:
        """What a step of dynamics asks for."""
        found = self.model.step_of_system(
            *self._views, self._starts, self._types, skin=self._skin, gradients=gradients, graded=graded
        )
        energy, atoms = float(found[0]), len(self._numbers)
        energies, others = found[7 : 7 + atoms], found[7 + atoms :]
        self.results = {"energy": energy, "free_energy": energy, "energies": energies}
        if gradients:
            self.results["forces"] = others[: 3 * atoms].reshape(-1, 3)
            if volume > 0:
                self.results["stress"] = found[1:7][VOIGT] / -volume
        if graded:
            self.results["extrapolation"] = others[-atoms:]

    def _calculate_more(self, graded: bool, gradients: bool, volume: float) -> None:
        """With virials of atoms, which need a pass of their own."""
        result = self.model.compute_systems(
            *self._views,
            self._starts,
            self._types,
            skin=self._skin,
            forces=gradients,
            virial=gradients and volume > 0,
            atom_virial=True,
            outputs=["extrapolation"] if graded else [],
        )
        energy = float(result["energy"])
        self.results = {"energy": energy, "free_energy": energy, "energies": result["atomic_energy"].numpy()}
        if gradients:
            self.results["forces"] = result["forces"].numpy()
        if gradients and volume > 0:
            self.results["stress"] = result["virials"].numpy()[0, VOIGT] / -volume
        if graded:
            self.results["extrapolation"] = result["extrapolation"].numpy()
        self.results["stresses"] = result["atom_virial"].numpy()[:, VOIGT] / -volume
