"""The export alone, without libclebsch: its modules, run with the reference ops, against upstream."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cases
import reference_ops
import structures
import upstream
from clebsch.compare import Values, errors
from clebsch.export import backend, from_nequip, modules


def reference(description, atoms) -> Values:
    """Energies, forces and virial of the unscripted modules, reference ops in place of libclebsch."""
    data = upstream.graph_of(atoms, description.type_names, description.r_max)
    centre, neighbour = data["edge_index"]
    count = len(atoms)
    vectors = data["pos"][neighbour] - data["pos"][centre] + data["edge_cell_shift"] @ data["cell"][0]
    vectors.requires_grad_(True)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(centre, minlength=count).cumsum(0)])
    layers = len(description.layers)
    empty = torch.empty(0, dtype=torch.int32)
    graph = [row_ptr.int(), neighbour.int(), centre.int(), empty, empty]
    graph += [torch.full((layers,), count, dtype=torch.int32), torch.tensor([count], dtype=torch.int32)]
    types = data["atom_types"].int()
    parts = backend.parts(description, torch.float64)
    x = parts["embedding"](types)
    for k in range(layers):
        x = parts[f"layer{k}"](x, vectors, types, graph)
    energy = parts["energy"](x, types)
    if description.pair is not None:
        energy = energy + parts["pair"](vectors, types, graph)
    gradient = torch.autograd.grad(energy.sum(), vectors, allow_unused=True)[0]
    gradient = torch.zeros_like(vectors) if gradient is None else gradient
    forces = torch.zeros(count, 3, dtype=torch.float64).index_add(0, centre, gradient)
    forces = forces.index_add(0, neighbour, -gradient)
    return Values(energy.detach(), forces.detach(), -(vectors.T @ gradient).detach())


@pytest.mark.parametrize("name", cases.CASES)
def test_same_as_upstream(name, upstream_model, monkeypatch):
    monkeypatch.setattr(modules, "ops", reference_ops.OPS)
    model = upstream_model(name)
    description = from_nequip.describe(model)
    atoms = structures.triclinic(cases.TYPES)
    want = upstream.evaluate(model, atoms)
    assert np.sqrt((want.forces.numpy() ** 2).mean()) > 0.1
    assert max(errors(reference(description, atoms), want).values()) < 1e-10


def test_description_names_every_tensor_once(upstream_model):
    description = from_nequip.describe(upstream_model("zbl-cutoffs"))
    submodules = backend.parts(description, torch.float32)
    meta = backend.metadata(description, "float32", submodules)
    listed = meta["parameters"]["compute"] + meta["parameters"]["fp64"]
    named = [f"{part}.{name}" for part, module in submodules.items() for name, _ in module.named_buffers()]
    assert sorted(listed) == sorted(named)
    assert not any(True for module in submodules.values() for _ in module.parameters())
    for part, module in submodules.items():
        for name, value in module.named_buffers():
            expected = torch.float32 if f"{part}.{name}" in meta["parameters"]["compute"] else torch.float64
            assert value.dtype in (expected, torch.int32)
    assert meta["type_names"] == cases.TYPES and meta["atomic_numbers"] == [8, 1, 6]
    assert meta["pair_cutoffs"] == [[4.0, 2.6, 3.7], [3.0, 3.0, 3.0], [4.0, 4.0, 4.0]]
