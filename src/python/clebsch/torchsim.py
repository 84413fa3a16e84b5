"""A Clebsch model for torch-sim: batched relaxation and molecular dynamics of many systems at a time.

>>> import torch_sim
>>> from clebsch.torchsim import ClebschModel
>>> final = torch_sim.optimize(structures, ClebschModel("model.pt"), optimizer=torch_sim.Optimizer.fire)

All systems of a state become one graph (docs/developers/systems.md); lists of neighbours serve several steps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .element_model import ElementModel, volumes_of
from .errors import ClebschError
from .runtime import Model

try:
    from torch_sim.models.interface import ModelInterface
except ImportError as error:
    raise ClebschError("clebsch.torchsim needs torch-sim: pip install torch-sim-atomistic") from error

#: virials' order xx yy zz xy xz yz as a matrix.
_MATRIX = [0, 3, 4, 3, 1, 5, 4, 5, 2]


class ClebschModel(ModelInterface):
    """model: path of a model file.
    device: where the model runs and where states must be: "cpu", "cuda", "cuda:N", or "auto".
    dtype: of a state's tensors, torch.float64 or torch.float32. The model's own is `precision`.
    precision: "float32", "float64", or None for the model's own; geometry and energies are float64 in either case.
    compute_forces, compute_stress: what a state is given beside energies; may be changed later.
    radial, types, threads, skin: as of clebsch.ase.ClebschCalculator.

    Raises ClebschError as the calculator does.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: torch.dtype = torch.float64,
        *,
        precision: str | None = None,
        compute_forces: bool = True,
        compute_stress: bool = True,
        radial: str = "table",
        types: Mapping[str, str] | None = None,
        threads: int | None = None,
        skin: float = 1.0,
    ) -> None:
        super().__init__()
        self._elements = ElementModel(model, types, str(device), dtype=precision, radial=radial, threads=threads or 0)
        self._dtype, self._skin = dtype, float(skin)
        chosen = ("cuda" if torch.cuda.is_available() else "cpu") if str(device) == "auto" else str(device)
        self._asked = torch.device(chosen)  # until the model is loaded and says so
        self._compute_forces, self._compute_stress = compute_forces, compute_stress
        self._memory_scales_with = "n_atoms_x_density"
        self._numbers: Tensor | None = None
        self._types = torch.empty(0, dtype=torch.int32)

    @property
    def device(self) -> torch.device:
        loaded = self._elements.loaded
        return torch.device(loaded.device) if loaded is not None else self._asked

    @property
    def compute_forces(self) -> bool:
        return self._compute_forces

    @compute_forces.setter
    def compute_forces(self, compute_forces: bool) -> None:
        self._compute_forces = compute_forces

    @property
    def compute_stress(self) -> bool:
        return self._compute_stress

    @compute_stress.setter
    def compute_stress(self, compute_stress: bool) -> None:
        self._compute_stress = compute_stress

    @property
    def model(self) -> Model:
        """The loaded model; with many types, after the first call."""
        return self._elements.model

    def _types_of(self, numbers: Tensor) -> Tensor:
        if self._numbers is None or not torch.equal(numbers, self._numbers):
            self._types = self._elements.types_of(numbers.cpu().numpy())
            self._numbers = numbers.clone()
        return self._types

    def forward(self, state: Any, **_: Any) -> dict[str, Tensor]:
        """Of a torch_sim.SimState, or a dict of its fields: energy (S,) eV, forces (N, 3) eV/Angstrom, stress (S, 3, 3)
        eV/Angstrom^3, NaN where the cell has no volume; on the state's device, of `dtype`."""
        take = state.__getitem__ if isinstance(state, Mapping) else lambda name: getattr(state, name)
        positions, indices, numbers = take("positions"), take("system_idx"), take("atomic_numbers")
        cells = _host(take("cell")).reshape(-1, 3, 3).transpose(1, 2).contiguous()  # torch-sim's vectors are columns
        count = len(cells)
        starts = torch.zeros(count + 1, dtype=torch.int32)
        if indices is None:
            starts[1:] = len(positions)
        else:
            indices = indices.cpu()
            if count > 1 and not bool((indices[1:] >= indices[:-1]).all()):
                raise ClebschError("expected system_idx that rises from 0, got systems in another order")
            starts[1:] = torch.bincount(indices, minlength=count).cumsum(0)
        pbc = torch.as_tensor(take("pbc"), dtype=torch.bool).cpu().expand(3)
        result = self._compute(positions, cells, pbc, starts, numbers)

        def given(values: Tensor) -> Tensor:
            return values.to(device=positions.device, dtype=self._dtype)

        out = {"energy": given(result["energies"])}
        if self._compute_forces:
            out["forces"] = given(result["forces"])
        if self._compute_stress:
            volumes = volumes_of(cells.numpy())
            volumes[volumes == 0] = np.nan
            stress = -result["virials"][:, _MATRIX] / torch.from_numpy(volumes)[:, None]
            out["stress"] = given(stress.reshape(count, 3, 3))
        return out

    def _compute(
        self, positions: Tensor, cells: Tensor, pbc: Tensor, starts: Tensor, numbers: Tensor
    ) -> dict[str, Tensor]:
        types = self._types_of(numbers)
        return self.model.compute_systems(
            _host(positions),
            cells,
            pbc.expand(len(cells), 3).contiguous(),
            starts,
            types,
            skin=self._skin,
            forces=self._compute_forces,
            virial=self._compute_stress,
        )


def _host(values: Tensor) -> Tensor:
    return values.detach().to(device="cpu", dtype=torch.float64).contiguous()
