"""Upstream's MACE and its accelerated forms, for bench_mace.py: the model as each makes it, and a step of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch
from model_cases import Structure


def _eager(model: torch.nn.Module, device: str) -> torch.nn.Module:
    return model.to(device)


def _cuequivariance(model: torch.nn.Module, device: str) -> torch.nn.Module:
    from mace.cli.convert_e3nn_cueq import run

    return run(model, device=device, return_model=True).to(device)


def _openequivariance(model: torch.nn.Module, device: str) -> torch.nn.Module:
    import openequivariance  # noqa: F401
    from mace.cli.convert_e3nn_oeq import run

    return run(model, device=device, return_model=True).to(device)


#: Name -> how upstream makes it, and the package whose version is noted.
PEERS: dict[str, tuple[Callable[[torch.nn.Module, str], torch.nn.Module], str]] = {
    "mace-torch eager": (_eager, "mace-torch"),
    "cuEquivariance": (_cuequivariance, "cuequivariance-torch"),
    "OpenEquivariance": (_openequivariance, "openequivariance"),
}


def version_of(peer: str) -> str:
    try:
        return version(PEERS[peer][1])
    except PackageNotFoundError:
        return "unknown"


def made(peer: str, model: torch.nn.Module, dtype: str, device: str) -> torch.nn.Module:
    """A copy of the model in the peer's form; weights do not want gradients. Raises what upstream raises."""
    before = torch.get_default_dtype()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = PEERS[peer][0](copy.deepcopy(model).to(getattr(torch, dtype)), device).eval()
    finally:
        torch.set_default_dtype(before)
    return other.requires_grad_(False)


def upstream_step(model, structure: Structure, graph: tuple, device: str) -> Callable[[], dict]:
    """One call of energy and forces; the graph (Structure.graph) is on the device beforehand."""
    vectors, types, receivers, senders = graph
    dtype = next(model.parameters()).dtype
    positions = torch.as_tensor(structure.positions)
    shifts = vectors - positions[senders] + positions[receivers]
    atoms, kinds = len(structure), len(model.atomic_numbers)
    length = structure.length
    data = {
        # (sender, receiver), images on the receiver's side
        "edge_index": torch.stack([senders, receivers]).long(),
        "shifts": -shifts.to(dtype),
        "unit_shifts": -(shifts / length).round().to(dtype),
        "positions": positions.to(dtype),
        "cell": length * torch.eye(3, dtype=dtype),
        "node_attrs": torch.nn.functional.one_hot(types, kinds).to(dtype),
        "batch": torch.zeros(atoms, dtype=torch.int64),
        "ptr": torch.tensor([0, atoms]),
        "head": torch.tensor([0]),
        "pbc": torch.ones(1, 3, dtype=torch.bool),
        "weight": torch.ones(1, dtype=dtype),
    }
    data = {key: value.to(device) for key, value in data.items()}

    def step() -> dict:
        fresh = dict(data)
        fresh["positions"] = data["positions"].clone().requires_grad_(True)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return model(fresh, training=False, compute_force=True)
        finally:
            torch.set_default_dtype(before)

    return step
