"""Comparing a model file with its upstream model, in the error measures of docs/export.md."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .probe import Probe, structures_of_all
from .progress import Progress, silent
from .runtime import Model

#: Forces below this are no measure of a relative error, eV/Angstrom.
FORCE_FLOOR = 0.1


@dataclass
class Values:
    """Atomic energies (N,) eV, forces (N, 3) eV/Angstrom, virial (3, 3) eV."""

    atomic: Tensor
    forces: Tensor
    virial: Tensor


@contextmanager
def _evaluated(model: torch.nn.Module) -> Iterator[None]:
    """The model in evaluation mode, with gradients even inside the caller's no_grad or inference_mode; modules are as
    they were afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for module in training:
            module.training = True


def upstream_nequip(model: torch.nn.Module, probe: Probe) -> Values:
    """Upstream's own answer. Its global settings must be initialised, as they are once a model exists."""
    data = {
        "pos": probe.positions.clone(),
        "cell": probe.cell.reshape(1, 3, 3),
        "edge_index": torch.stack([probe.receivers, probe.senders]),
        "edge_cell_shift": probe.shifts,
        "atom_types": probe.types,
    }
    parameter = next(model.parameters(), None)
    device = "cpu" if parameter is None else parameter.device
    # A model trained on energies alone has its forces switched off, not missing.
    switched_off = [module for module in model.modules() if getattr(module, "do_derivatives", True) is False]
    with _evaluated(model):
        try:
            for module in switched_off:
                module.do_derivatives = True
            out = model({key: value.to(device).clone() for key, value in data.items()})
        finally:
            for module in switched_off:
                module.do_derivatives = False
    return Values(
        *(out[key].detach().cpu().double().reshape(shape) for key, shape in
          (("atomic_energy", (-1,)), ("forces", (-1, 3)), ("virial", (3, 3))))
    )  # fmt: skip


def upstream_mace(model: torch.nn.Module, probe: Probe, numbers: list[int], head: str | None = None) -> Values:
    """mace-torch's own answer; numbers: the atomic number of every type of the probe."""
    order = [int(z) for z in model.atomic_numbers.tolist()]
    species = torch.tensor([order.index(z) for z in numbers])[probe.types]
    parameter = next(model.parameters())
    dtype = parameter.dtype
    shifts = probe.shifts @ probe.cell
    atoms = len(probe.types)
    data = {
        # MACE: (sender, receiver), vector from the first to the second, and images on the receiver's side
        "edge_index": torch.stack([probe.senders, probe.receivers]),
        "shifts": -shifts.to(dtype),
        "unit_shifts": -probe.shifts.to(dtype),
        "positions": probe.positions.to(dtype).clone(),
        "cell": probe.cell.to(dtype).clone(),
        "node_attrs": torch.nn.functional.one_hot(species, len(order)).to(dtype),
        "batch": torch.zeros(atoms, dtype=torch.int64),
        "ptr": torch.tensor([0, atoms]),
        "head": torch.tensor([0 if head is None else list(model.heads).index(head)]),
    }
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # as mace's own calculator does: constants of ZBL take it
    try:
        with warnings.catch_warnings(), _evaluated(model):
            warnings.simplefilter("ignore")
            data = {key: value.to(parameter.device).clone() for key, value in data.items()}
            out = model(data, training=False, compute_force=True, compute_virials=True, compute_stress=True)
    finally:
        torch.set_default_dtype(before)
    virial = out["virials"] if out["virials"] is not None else torch.zeros(1, 3, 3)
    values = [value.detach().cpu().double() for value in (out["node_energy"], out["forces"], virial)]
    return Values(values[0], values[1], values[2].reshape(3, 3))


def evaluate(model: Model, probe: Probe) -> Values:
    out = model.compute(probe.vectors, probe.types, probe.receivers, probe.senders)
    return Values(out["atomic_energy"], out["forces"], out["virial"])


def errors(got: Values, reference: Values, energy_shift: Tensor | None = None) -> dict[str, float]:
    """Relative errors: energy per atom against max(|E - sum of shifts| / N, 1 eV), RMS and largest force error against
    RMS(F), RMS virial error against the RMS of its non-zero components; both RMS count as FORCE_FLOOR at least."""
    atoms = max(len(reference.atomic), 1)
    total = reference.atomic.sum() - (0.0 if energy_shift is None else energy_shift.sum())
    force_scale = max(_rms(reference.forces), FORCE_FLOOR)
    components = reference.virial[reference.virial != 0]
    virial_scale = max(_rms(components), FORCE_FLOOR)
    return {
        "energy": float((got.atomic.sum() - reference.atomic.sum()).abs())
        / atoms
        / max(float(total.abs()) / atoms, 1.0),
        "forces": _rms(got.forces - reference.forces) / force_scale,
        "forces_max": float((got.forces - reference.forces).abs().max()) / force_scale if atoms else 0.0,
        "virial": _rms(got.virial - reference.virial) / virial_scale,
    }


def compare_file(
    path: str | os.PathLike[str],
    upstream: Callable[[Probe], Values],
    *,
    dtype: str | None = None,
    radial: str = "exact",
    seeds: int = 3,
    progress: Progress = silent,
) -> dict[str, float]:
    """The largest errors of a model file against `upstream`'s answers over random periodic structures, `seeds` of them
    or as many more as all its types need."""
    model = Model(path, dtype=dtype, radial=radial, progress=progress)
    worst: dict[str, float] = {}
    probes = list(structures_of_all(len(model.type_names), model.r_max, seeds))
    for done, probe in enumerate(probes):
        progress("structures compared with upstream", done, len(probes))
        for key, value in errors(evaluate(model, probe), upstream(probe)).items():
            worst[key] = max(worst.get(key, 0.0), value)
    progress("structures compared with upstream", len(probes), len(probes))
    return worst


def report(rows: dict[str, dict[str, Any]]) -> str:
    """A table of errors, one row a name."""
    lines = [f"{'':24}{'energy':>10}{'forces':>10}{'largest':>10}{'virial':>10}"]
    for name, e in rows.items():
        lines.append(f"{name:24}" + "".join(f"{e[k]:10.1e}" for k in ("energy", "forces", "forces_max", "virial")))
    return "\n".join(lines)


def _rms(values: Tensor) -> float:
    return float(values.pow(2).mean().sqrt()) if values.numel() else 0.0
