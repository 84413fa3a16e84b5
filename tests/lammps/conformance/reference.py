"""Energy, forces and virial of a test's system from plain fp64 code: the reference ops of tests/parity instead of
libclebsch, all pairs of all images instead of a neighbour list, and Verlet's method instead of fix nve."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "unit"), str(HERE.parents[1] / "parity"), str(HERE.parents[2] / "src/python")]

from conformance_cases import MODELS, Case  # noqa: E402

import reference_ops  # noqa: E402
from clebsch.export import backend, mace_modules, modules  # noqa: E402

torch.set_num_threads(1)  # a few dozen atoms
for module in (modules, mace_modules):
    module.ops = reference_ops.OPS

#: LAMMPS's constants by units: what a force becomes as an acceleration of a mass of 1, and 0.1 fs.
FTM2V = {"metal": 1 / 1.0364269e-4, "real": 1 / 48.88821291**2}
TIMESTEP = {"metal": 0.0001, "real": 0.1}
STEPS = 4
#: Energy units per eV; kcal/mol as in src/core/units.h.
FACTOR = {"metal": 1.0, "real": 23.060549}


@dataclass
class System:
    """cell (3,3) rows and positions (N,3) in Angstrom, types (N) from 0, masses (N) in g/mol."""

    cell: np.ndarray
    positions: np.ndarray
    types: np.ndarray
    masses: np.ndarray


@dataclass
class Values:
    """Energy, forces (N,3) and the virial xx yy zz xy xz yz, with eV or what the units have instead."""

    energy: float
    forces: np.ndarray
    virial: np.ndarray


def read_data(path: Path) -> System:
    """A data file as make_systems.py writes it."""
    sections: dict[str, list[list[str]]] = {"": []}
    name = ""
    for line in path.read_text().splitlines()[1:]:
        words = line.partition("#")[0].split()
        if words and words[0][0].isalpha():
            name = words[0]
            sections[name] = []
        elif words:
            sections[name].append(words)
    cell = np.zeros((3, 3))
    for words in sections[""]:
        if words[-1] in ("xhi", "yhi", "zhi"):
            axis = "xyz".index(words[-1][0])
            assert float(words[0]) == 0.0, f"{path}: expected a box from 0, got {words[0]}"
            cell[axis, axis] = float(words[1])
        if words[-1] == "yz":
            cell[1, 0], cell[2, 0], cell[2, 1] = map(float, words[:3])
    atoms = np.array(sections["Atoms"], dtype=float)
    types = atoms[:, 1].astype(int) - 1
    masses = np.array([float(words[1]) for words in sections["Masses"]])
    return System(cell, atoms[:, 2:5], types, masses[types])


def edges_of(system: System, cutoff: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(receivers, senders, shifts in Angstrom) of all directed edges up to the cutoff, sorted by receiver."""
    heights = abs(np.linalg.det(system.cell)) * np.linalg.norm(np.linalg.inv(system.cell), axis=0)
    spread = np.ptp(system.positions @ np.linalg.inv(system.cell), axis=0)
    reach = [int(np.ceil(cutoff / h + s)) for h, s in zip(heights, spread, strict=True)]
    found = []
    for image in product(*(range(-n, n + 1) for n in reach)):
        shift = np.array(image) @ system.cell
        vectors = system.positions[None] + shift - system.positions[:, None]
        distance = np.linalg.norm(vectors, axis=2)
        for i, j in zip(*np.nonzero((distance < cutoff) & (distance > 1e-9)), strict=True):
            found.append((i, j, *shift))
    found.sort()
    table = np.array(found)
    return table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:]


def of_model(name: str, system: System) -> Values:
    """The model's part; atoms of types that it does not know are not there for it."""
    script, options = MODELS[name]
    description = importlib.import_module(script).describe(**options)
    known = np.nonzero(system.types < len(description.type_names))[0]
    part = System(system.cell, *(a[known] for a in (system.positions, system.types, system.masses)))
    receivers, senders, shifts = edges_of(part, description.r_max)
    count, layers = len(known), len(description.layers)
    positions, i, j = torch.tensor(part.positions), torch.tensor(receivers), torch.tensor(senders)
    vectors = (positions[j] + torch.tensor(shifts) - positions[i]).requires_grad_(True)
    rows = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(i, minlength=count).cumsum(0)])
    empty = torch.empty(0, dtype=torch.int32)
    graph = [rows.int(), j.int(), i.int(), empty, empty]
    graph += [torch.full((layers,), count, dtype=torch.int32), torch.tensor([count], dtype=torch.int32)]
    types = torch.tensor(part.types).int()
    parts = backend.parts(description, torch.float64)
    x = parts["embedding"](types)
    for k in range(layers):
        x = parts[f"layer{k}"](x, vectors, types, graph)
    energy = parts["energy"](x, types)
    if description.pair is not None:
        energy = energy + parts["pair"](vectors, types, graph)
    gradient = torch.autograd.grad(energy.sum(), vectors)[0].numpy()
    forces = np.zeros((len(system.types), 3))
    np.add.at(forces, known[receivers], gradient)
    np.add.at(forces, known[senders], -gradient)
    return Values(float(energy.detach().sum()), forces, virial_of(vectors.detach().numpy(), gradient))


def of_lj(pairs: dict, system: System) -> Values:
    """lj/cut without a shift; each directed edge has half of its pair."""
    receivers, senders, shifts = edges_of(system, max(cutoff for _, _, cutoff in pairs.values()))
    vectors = system.positions[senders] + shifts - system.positions[receivers]
    energy, gradient = 0.0, np.zeros_like(vectors)
    low = np.minimum(system.types[receivers], system.types[senders]) + 1
    high = np.maximum(system.types[receivers], system.types[senders]) + 1
    distance = np.linalg.norm(vectors, axis=1)
    for (a, b), (epsilon, sigma, cutoff) in pairs.items():
        mine = (low == a) & (high == b) & (distance < cutoff)
        r = distance[mine]
        attraction = (sigma / r) ** 6
        energy += float(np.sum(2 * epsilon * (attraction**2 - attraction)))
        slope = 2 * epsilon * (6 * attraction - 12 * attraction**2) / r
        gradient[mine] = (slope / r)[:, None] * vectors[mine]
    forces = np.zeros_like(system.positions)
    np.add.at(forces, receivers, gradient)
    np.add.at(forces, senders, -gradient)
    return Values(energy, forces, virial_of(vectors, gradient))


def virial_of(vectors: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """From edge vectors and dE/d edge vector: -sum of vector (x) gradient, docs/units.md."""
    w = -vectors.T @ gradient
    return np.array([w[0, 0], w[1, 1], w[2, 2], w[0, 1], w[0, 2], w[1, 2]])


def evaluate(case: Case, system: System) -> Values:
    parts = [of_model(case.model, system)]
    if case.lj:
        parts.append(of_lj(case.lj, system))
    factor = FACTOR[case.units]
    return Values(*(factor * sum(getattr(p, name) for p in parts) for name in ("energy", "forces", "virial")))


def run(case: Case) -> tuple[Values, Values]:
    """At the data file's positions, and after STEPS steps of Verlet's method from rest, in the case's units."""
    system = read_data(HERE / case.data)
    step = TIMESTEP[case.units]
    push = 0.5 * step * FTM2V[case.units] / system.masses[:, None]
    first = now = evaluate(case, system)
    velocities = np.zeros_like(system.positions)
    for _ in range(STEPS):
        velocities = velocities + push * now.forces
        system.positions = system.positions + step * velocities
        now = evaluate(case, system)
        velocities = velocities + push * now.forces
    return first, now
