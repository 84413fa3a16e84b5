"""Building and evaluating upstream nequip models for comparison."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from ase import Atoms
from ase.neighborlist import primitive_neighbor_list
from nequip.model import FullNequIPGNNModel, NequIPGNNModel, PresetNequIPGNNModel
from nequip.utils.global_state import global_state_initialized, set_global_state

from clebsch.compare import Values

R_MAX = 4.0


def build(kind: str = "NequIP", **options) -> torch.nn.Module:
    """A model with random weights large enough for forces of some eV/A."""
    if not global_state_initialized():
        set_global_state(allow_tf32=False)
    builder = {"NequIP": NequIPGNNModel, "Full": FullNequIPGNNModel, "Preset": PresetNequIPGNNModel}[kind]
    settings = dict(seed=7, model_dtype="float64", type_names=["O", "H", "C"], r_max=R_MAX, avg_num_neighbors=12.0)
    settings.update(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return builder(**settings).eval()


def graph_of(atoms: Atoms, type_names: list[str], r_max: float) -> dict[str, torch.Tensor]:
    """nequip's input; the neighbour list is ASE's, so that ours is tested as well."""
    i, j, shifts = primitive_neighbor_list(
        "ijS", atoms.pbc, _complete(atoms), atoms.positions, r_max, self_interaction=False, use_scaled_positions=False
    )
    data = {
        "pos": torch.tensor(atoms.positions, dtype=torch.float64),
        "edge_index": torch.tensor(np.stack([i, j]), dtype=torch.long),
        "atom_types": torch.tensor([type_names.index(s) for s in atoms.get_chemical_symbols()]),
        "cell": torch.tensor(_complete(atoms), dtype=torch.float64).reshape(1, 3, 3),
        "edge_cell_shift": torch.tensor(shifts, dtype=torch.float64).reshape(-1, 3),
    }
    return data


def evaluate(model: torch.nn.Module, atoms: Atoms) -> Values:
    """Upstream's atomic energies, forces and virial."""
    data = graph_of(atoms, list(model.type_names), float(model.metadata["r_max"]))
    out = model(data)
    return Values(
        out["atomic_energy"].detach().double().reshape(-1),
        out["forces"].detach().double(),
        out["virial"].detach().double().reshape(3, 3),
    )


def _complete(atoms: Atoms) -> np.ndarray:
    """A cell with volume: directions without a vector are open, any vector will do."""
    from ase.geometry import complete_cell

    return np.asarray(complete_cell(atoms.cell), dtype=float)
