"""Several models of one thing: where their forces differ, they have not been trained (docs/uncertainty.md).

>>> from clebsch.committee import CommitteeCalculator
>>> atoms.calc = CommitteeCalculator(["model.pt", "second.pt", "third.pt"])
>>> atoms.get_forces()                                          # of the first model
>>> atoms.calc.get_property("force_deviation", atoms).max()     # evaluates the others
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import all_changes
from numpy.typing import NDArray

from .ase import ClebschCalculator
from .errors import ClebschError


def force_deviation(forces: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """(N,) sqrt(mean over the models of |F - mean F|^2), in the forces' unit, of forces (N, 3) of two models or more:
    the devi_f of deepmd-kit (Zhang et al., Phys. Rev. Materials 3, 023804, 2019). Raises ClebschError for fewer, or
    for shapes that differ."""
    if len(forces) < 2 or any(f.shape != forces[0].shape for f in forces):
        raise ClebschError(f"expected forces of two models or more, all (N, 3), got {[f.shape for f in forces]}")
    # From the first model's forces: what all agree about does not round.
    apart = np.stack([f - forces[0] for f in forces])
    apart -= apart.mean(axis=0)
    return np.sqrt((apart**2).sum(axis=2).mean(axis=0))


class CommitteeCalculator(ClebschCalculator):
    """A ClebschCalculator of the first model that also knows how much other models differ from it.

    models: two files or more, for the same elements. always: whether every calculation gives the deviation,
    results["force_deviation"] (N,) in eV/A; else get_property("force_deviation", atoms) evaluates the other models when
    it is asked for. Everything else is as of ClebschCalculator, with all models alike. Energy, forces and stress
    are the first model's. Raises ClebschError as ClebschCalculator, and for fewer than two models.
    """

    def __init__(
        self,
        models: Sequence[str | os.PathLike[str]],
        device: str = "auto",
        dtype: str | None = None,
        *,
        always: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(models, (str, os.PathLike)) or len(models) < 2:
            raise ClebschError(f"models: expected a list of two model files or more, got {models!r}")
        super().__init__(models[0], device, dtype, **kwargs)
        self._others = [ClebschCalculator(model, device, dtype, **kwargs) for model in models[1:]]
        self._always_deviates = bool(always)
        self.implemented_properties = [*self.implemented_properties, "force_deviation"]
        self.parameters["models"] = [self._elements.path, *(other._elements.path for other in self._others)]

    def __copy__(self) -> CommitteeCalculator:
        other = super().__copy__()
        assert isinstance(other, CommitteeCalculator)
        other._others = [copy.copy(one) for one in self._others]
        return other

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        wanted = set(properties)
        if self._always_deviates:
            wanted.add("force_deviation")
        deviates = "force_deviation" in wanted
        with self._turns:
            super().calculate(atoms, [*wanted, *(["forces"] if deviates else [])], system_changes)
            if not deviates:
                return
            forces = [self.results["forces"]]
            for other in self._others:
                other.calculate(self.atoms, ["forces"], all_changes)
                forces.append(other.results["forces"])
            self.results["force_deviation"] = force_deviation(forces)
