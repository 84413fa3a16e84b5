"""Random structures to try a model on, without ASE or a neighbour list package (export may run where neither is)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Probe:
    """Positions (N, 3) and cell (3, 3) in Angstrom, types (N,), and the edges within the cutoff.

    shifts (E, 3) are cell counts: vectors = positions[senders] + shifts @ cell - positions[receivers].
    """

    positions: Tensor
    cell: Tensor
    types: Tensor
    receivers: Tensor
    senders: Tensor
    shifts: Tensor

    @property
    def vectors(self) -> Tensor:
        return self.positions[self.senders] + self.shifts @ self.cell - self.positions[self.receivers]

    def moved(self, positions: Tensor, cell: Tensor | None = None) -> Probe:
        """The same edges after a displacement (or strain, with a new cell)."""
        cell = self.cell if cell is None else cell
        return Probe(positions, cell, self.types, self.receivers, self.senders, self.shifts)


def random_structure(types: int, cutoff: float, seed: int, side: int = 2, density: float | None = None) -> Probe:
    """A rattled cubic lattice of side^3 atoms of random types in a sheared periodic cell.

    density: atoms per cubic Angstrom; the default keeps neighbours some 2 Angstrom apart, or within the cutoff of a
    very short-ranged model. Every cell vector is shorter than twice the cutoff in the default, so images count.
    """
    generator = torch.Generator().manual_seed(seed)
    spacing = min(2.0, 0.55 * cutoff) if density is None else density ** (-1.0 / 3.0)
    steps = torch.arange(side, dtype=torch.float64) * spacing
    positions = torch.cartesian_prod(steps, steps, steps).reshape(-1, 3)
    positions = positions + 0.08 * spacing * torch.randn(positions.shape, generator=generator, dtype=torch.float64)
    shear = torch.tensor([[1.0, 0.0, 0.0], [0.15, 1.0, 0.0], [-0.1, 0.05, 1.0]], dtype=torch.float64)
    cell = side * spacing * shear
    positions = positions @ shear
    kinds = torch.randint(0, types, (len(positions),), generator=generator)
    kinds[: min(types, len(kinds))] = torch.arange(min(types, len(kinds)))
    receivers, senders, shifts = all_pairs(positions, cell, cutoff)
    return Probe(positions, cell, kinds, receivers, senders, shifts)


def structures_of_all(types: int, cutoff: float, seeds: int) -> Iterator[Probe]:
    """`seeds` random structures, or as many more as it takes for every type to occur."""
    places = 8  # atoms of a random structure
    for seed in range(max(seeds, -(-types // places))):
        probe = random_structure(types, cutoff, seed)
        if types > places:
            probe.types = (torch.arange(places) + places * seed) % types
        yield probe


def all_pairs(positions: Tensor, cell: Tensor, cutoff: float) -> tuple[Tensor, Tensor, Tensor]:
    """Every pair nearer than `cutoff` in a periodic cell, by trying all images: receivers, senders, shifts."""
    heights = 1.0 / torch.linalg.inv(cell).norm(dim=0)
    reach = [int(torch.ceil(cutoff / h)) + 1 for h in heights]
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for image in itertools.product(*(range(-r, r + 1) for r in reach)):
        shift = torch.tensor(image, dtype=torch.float64)
        distance = torch.cdist(positions, positions + shift @ cell, compute_mode="donot_use_mm_for_euclid_dist")
        near = distance < cutoff
        if image == (0, 0, 0):
            near.fill_diagonal_(False)
        i, j = torch.nonzero(near, as_tuple=True)
        found.append((i, j, shift.expand(len(i), 3)))
    receivers, senders, shifts = (torch.cat(columns) for columns in zip(*found, strict=True))
    order = torch.argsort(receivers, stable=True)
    return receivers[order], senders[order], shifts[order]
