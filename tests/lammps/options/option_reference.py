"""Energies, forces and virials in plain torch, fp64: nothing of LAMMPS, of libclebsch or of its neighbour lists.

The models are the descriptions from which the test models are written (tests/unit/tiny_*.py), run with the slow ops of
tests/parity/reference_ops.py. Edges come from all distances between atoms and images.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "parity"), str(TESTS / "unit"), str(TESTS.parent / "src/python")]

import tiny_allegro  # noqa: E402
import tiny_mace  # noqa: E402
import tiny_model  # noqa: E402

import reference_ops  # noqa: E402
from clebsch.export import backend, mace_modules, modules  # noqa: E402
from clebsch.export.description import Description, PairRepulsion  # noqa: E402


def invariant_mace() -> Description:
    """tiny_mace with coefficients that are the same for all components of a vector, without which its energy depends on
    how the box is turned and its virial is not symmetric; and with a repulsive term."""
    description = tiny_mace.describe()
    for layer in description.layers:
        c = layer.coefficients  # of the monomials 0 00 11 22 33; 1 01; 2 02; 3 03
        c[:, 3] = c[:, 4] = c[:, 2]
        c[:, [7, 9]], c[:, [8, 10]] = c[:, [5]], c[:, [6]]
    charges = torch.tensor([8.0, 1.0], dtype=torch.float64)
    return replace(description, pair=PairRepulsion(charges, 7.1998225, 6.0))


#: What the models are made of: message passing, message passing with densities, strictly local; all with a repulsive
#: term, because random weights alone may attract without end.
DESCRIPTIONS = {
    "nequip": lambda: tiny_model.describe(dtype="float64", lmax=1, layers=2, zbl=1),
    "mace": invariant_mace,
    "allegro": lambda: tiny_allegro.describe(dtype="float64"),
}
#: A LAMMPS style calls this with the ids of receivers and senders of edges; True: the edge is left out.
Excluded = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass
class Atoms:
    """Atoms of a frame, sorted by id: `types` count from 1, cell rows are vectors, `periodic` of each."""

    ids: np.ndarray
    types: np.ndarray
    positions: np.ndarray
    cell: np.ndarray
    periodic: tuple[bool, bool, bool]


@dataclass
class Values:
    """Of a frame: energy of each atom (N) in eV, forces (N,3) in eV/Angstrom, virial (3,3) in eV, sum of f_i r_i."""

    atomic: np.ndarray
    forces: np.ndarray
    virial: np.ndarray

    def __add__(self, other: Values) -> Values:
        return Values(self.atomic + other.atomic, self.forces + other.forces, self.virial + other.virial)

    def scaled(self, factor: float) -> Values:
        return Values(factor * self.atomic, factor * self.forces, factor * self.virial)


def write_model(kind: str, path: Path) -> None:
    backend.write(DESCRIPTIONS[kind](), path, "float64")


def neighbours(atoms: Atoms, cutoff: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(receivers, senders, vectors from receiver to sender) of all pairs within the cutoff, sorted by receiver."""
    heights = 1 / np.linalg.norm(np.linalg.inv(atoms.cell), axis=0)
    fractions = atoms.positions @ np.linalg.inv(atoms.cell)
    fractions -= np.floor(fractions) * np.array(atoms.periodic)
    x = fractions @ atoms.cell
    images = [range(-n, n + 1) for n in np.where(atoms.periodic, np.ceil(cutoff / heights), 0).astype(int)]
    found = []
    for image in product(*images):
        delta = x[None] - x[:, None] + np.array(image) @ atoms.cell
        near = (delta**2).sum(axis=2) < cutoff**2
        if image == (0, 0, 0):
            np.fill_diagonal(near, False)
        i, j = np.nonzero(near)
        found.append((i, j, delta[i, j]))
    i, j, vectors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(i, kind="stable")
    return i[order], j[order], vectors[order]


@contextlib.contextmanager
def slow_ops() -> Iterator[None]:
    """The exporter's modules run those of tests/parity/reference_ops.py meanwhile."""
    ops = reference_ops.OPS
    with mock.patch.object(modules, "ops", ops), mock.patch.object(mace_modules, "ops", ops):
        yield


class Reference:
    """A model in fp64. pieces: of every radial table, in the order in which LAMMPS's log names them; without, radial
    functions are exact."""

    def __init__(self, kind: str, pieces: tuple[int, ...] = ()) -> None:
        self.description = DESCRIPTIONS[kind]()
        self.parts = backend.parts(self.description, torch.float64)
        self.layers = len(self.description.layers)
        entries = backend.metadata(self.description, "float64", self.parts)["radial"]
        if pieces:
            assert len(pieces) == len(entries), (pieces, entries)
            for count, entry in zip(pieces, entries, strict=True):
                self._tabulate(entry["module"], entry["problem"], count)

    def _tabulate(self, path: str, problem: str, pieces: int) -> None:
        """Fills `table` and `table_index`: a table for every ordered pair of types."""
        name, _, rest = path.partition(".")
        module = self.parts[name].get_submodule(rest)
        types = len(self.description.type_names)
        fields, tables = reference_ops.fields(problem), []
        for pair in range(types**2):
            rc = float(module.cutoffs[divmod(pair, types)])
            if problem.startswith("allegro"):
                own = reference_ops.pair_network(module.network, problem, pair, types**2)

                def function(r: Tensor, own=own, rc=rc) -> Tensor:
                    return reference_ops.allegro_network(r, rc, module.basis, own, problem)
            else:

                def function(r: Tensor, rc=rc) -> Tensor:
                    return reference_ops.radial_network(r, rc, module.basis, module.network, fields["radial"])

            tables.append(reference_ops.hermite_table(function, rc, pieces))
        module.table = torch.stack(tables)
        module.table_index = torch.arange(types**2, dtype=torch.int32).reshape(types, types)

    def __call__(self, atoms: Atoms, names: tuple[str | None, ...], excluded: Excluded | None = None) -> Values:
        """names: the model's type of each type of LAMMPS, None: its atoms are not the model's."""
        known = [self.description.type_names.index(name) if name else -1 for name in names]
        kinds = np.array([known[t - 1] for t in atoms.types], dtype=int)
        mine = np.nonzero(kinds >= 0)[0]
        part = Atoms(atoms.ids[mine], atoms.types[mine], atoms.positions[mine], atoms.cell, atoms.periodic)
        receivers, senders, vectors = neighbours(part, self.description.r_max)
        if excluded is not None:
            kept = ~excluded(part.ids[receivers], part.ids[senders])
            receivers, senders, vectors = receivers[kept], senders[kept], vectors[kept]
        inner = self._evaluate(kinds[mine], receivers, senders, vectors)
        values = Values(np.zeros(len(kinds)), np.zeros((len(kinds), 3)), inner.virial)
        values.atomic[mine], values.forces[mine] = inner.atomic, inner.forces
        return values

    def alone(self, names: tuple[str | None, ...]) -> np.ndarray:
        """Energies (types of LAMMPS) of isolated atoms; zero for types that are not the model's."""
        types = np.array([self.description.type_names.index(name) for name in names if name])
        none = np.zeros(0, dtype=int)
        energies = iter(self._evaluate(types, none, none, np.zeros((0, 3))).atomic)
        return np.array([next(energies) if name else 0.0 for name in names])

    def _evaluate(self, kinds: np.ndarray, receivers: np.ndarray, senders: np.ndarray, vectors: np.ndarray) -> Values:
        count = len(kinds)
        if count == 0:
            return Values(np.zeros(0), np.zeros((0, 3)), np.zeros((3, 3)))
        edge_vec = torch.tensor(vectors, requires_grad=True)
        centre, neighbour = torch.tensor(receivers), torch.tensor(senders)
        row_ptr = torch.zeros(count + 1, dtype=torch.int32)
        row_ptr[1:] = torch.bincount(centre, minlength=count).cumsum(0)
        none = torch.empty(0, dtype=torch.int32)
        graph = [row_ptr, neighbour.int(), centre.int(), none, none]
        graph += [torch.full((self.layers,), count, dtype=torch.int32), torch.tensor([count], dtype=torch.int32)]
        types = torch.tensor(kinds, dtype=torch.int32)
        with slow_ops():
            x = self.parts["embedding"](types)
            for k in range(self.layers):
                x = self.parts[f"layer{k}"](x, edge_vec, types, graph)
            energy = self.parts["energy"](x, types)
            if "pair" in self.parts:
                energy = energy + self.parts["pair"](edge_vec, types, graph)
        gradient = torch.zeros_like(edge_vec)
        if energy.requires_grad:
            gradient = torch.autograd.grad(energy.sum(), edge_vec)[0]
        forces = torch.zeros(count, 3, dtype=torch.float64).index_add(0, centre, gradient)
        forces = forces.index_add(0, neighbour, -gradient)
        virial = -(edge_vec.detach().T @ gradient)
        return Values(energy.detach().numpy(), forces.numpy(), virial.numpy())


@cache
def reference_of(kind: str, pieces: tuple[int, ...] = ()) -> Reference:
    return Reference(kind, pieces)


@dataclass(frozen=True)
class LennardJones:
    """pair_style lj/cut: (epsilon, sigma) of pairs of types i <= j, eV and Angstrom; other pairs do not interact."""

    cutoff: float
    pairs: dict[tuple[int, int], tuple[float, float]] = field(hash=False)

    def commands(self, style: str = "") -> str:
        return "".join(f"pair_coeff {i} {j} {style} {e} {s}\n" for (i, j), (e, s) in self.pairs.items())

    def __call__(self, atoms: Atoms) -> Values:
        i, j, vectors = neighbours(atoms, self.cutoff)
        low, high = np.minimum(atoms.types[i], atoms.types[j]), np.maximum(atoms.types[i], atoms.types[j])
        known = [self.pairs.get(pair, (0.0, 1.0)) for pair in zip(low.tolist(), high.tolist(), strict=True)]
        epsilon, sigma = np.array(known).reshape(-1, 2).T
        r2 = (vectors**2).sum(axis=1)
        six = (sigma**2 / r2) ** 3
        energy = 4 * epsilon * (six**2 - six)
        force = (-24 * epsilon * (2 * six**2 - six) / r2)[:, None] * vectors  # on i
        atomic, forces = np.zeros(len(atoms.ids)), np.zeros((len(atoms.ids), 3))
        np.add.at(atomic, i, energy / 2)
        np.add.at(forces, i, force)
        return Values(atomic, forces, -vectors.T @ force / 2)
