"""Neighbour lists for structures on one process: images folded onto their atoms, edge vectors keep the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .errors import ClebschError


@dataclass
class Edges:
    """Directed edges: receiver (centre) and sender (neighbour) (E,) int64, vector (E, 3) = sender - receiver."""

    receivers: Tensor
    senders: Tensor
    vectors: Tensor

    def __len__(self) -> int:
        return len(self.receivers)


@dataclass
class Pairs:
    """Directed pairs: receiver, sender (P,) int64, shift (P, 3) int32 in cell vectors, added to the sender."""

    receivers: Tensor
    senders: Tensor
    shifts: Tensor

    def __len__(self) -> int:
        return len(self.receivers)


def finite_positions(positions: ArrayLike) -> NDArray[np.float64]:
    positions = np.ascontiguousarray(positions, dtype=np.float64)
    if not np.all(np.isfinite(positions)):
        atom = int(np.argwhere(~np.isfinite(positions))[0, 0])
        raise ClebschError(f"expected finite positions, got {positions[atom].tolist()} for atom {atom}")
    return positions


def completed_cell(cell: ArrayLike, pbc: ArrayLike) -> NDArray[np.float64]:
    """The cell with a unit vector for every open direction that has none, so that it can be inverted."""
    cell = np.array(cell, dtype=np.float64).reshape(3, 3)
    pbc = np.broadcast_to(np.asarray(pbc, dtype=bool), (3,))
    empty = ~np.any(cell != 0.0, axis=1)
    if np.any(empty & pbc):
        raise ClebschError(
            f"expected a cell vector along every periodic direction, got cell={cell.tolist()}, pbc={pbc}"
        )
    if empty.all():
        return np.eye(3)
    # Unit vectors orthogonal to the given ones, from the full orthonormal basis of a QR decomposition.
    given = cell[~empty]
    basis = np.linalg.qr(given.T, mode="complete")[0].T
    cell[empty] = basis[len(given) :]
    if abs(np.linalg.det(cell)) < 1e-9 * np.prod(np.linalg.norm(cell, axis=1)):
        raise ClebschError(f"expected linearly independent cell vectors, got {cell.tolist()}")
    return cell


class NeighbourFinder:
    """Finds all pairs nearer than `cutoff` (Angstrom), self images included, with vesin."""

    def __init__(self, cutoff: float) -> None:
        try:
            import vesin
        except ImportError as error:
            raise ClebschError("the neighbour list needs the package vesin: pip install vesin") from error
        self.cutoff = float(cutoff)
        self._list = vesin.NeighborList

    def find(self, positions: ArrayLike, cell: ArrayLike, pbc: ArrayLike) -> Edges:
        positions = finite_positions(positions)
        periodic = np.broadcast_to(np.asarray(pbc, dtype=bool), (3,)).copy()
        box = completed_cell(cell, periodic)
        if len(positions) == 0:
            return Edges(
                torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), torch.empty(0, 3).double()
            )
        i, j, vectors = self._search(self.cutoff, positions, box, periodic, "ijD")
        return Edges(torch.from_numpy(i), torch.from_numpy(j), torch.from_numpy(vectors))

    def find_pairs(
        self, positions: NDArray[np.float64], box: NDArray[np.float64], pbc: ArrayLike, skin: float
    ) -> Pairs:
        """Pairs nearer than cutoff + skin of finite positions in a complete cell."""
        periodic = np.broadcast_to(np.asarray(pbc, dtype=bool), (3,)).copy()
        if len(positions) == 0:
            none = torch.empty(0, dtype=torch.int64)
            return Pairs(none, none, torch.empty(0, 3, dtype=torch.int32))
        i, j, shifts = self._search(self.cutoff + skin, positions, box, periodic, "ijS")
        return Pairs(torch.from_numpy(i), torch.from_numpy(j), torch.from_numpy(shifts.astype(np.int32)))

    def _search(self, cutoff: float, positions: Any, box: Any, periodic: Any, quantities: str) -> tuple[Any, Any, Any]:
        finder = self._list(cutoff=cutoff, full_list=True, sorted=True, n_threads=torch.get_num_threads())
        i, j, third = finder.compute(positions, box, periodic, quantities)
        return i.astype(np.int64), j.astype(np.int64), third


class NeighbourList:
    """Pairs of a structure that is calculated again and again: they hold until an atom has moved by half the skin.

    The first time a structure is seen its list has no skin, so that single calculations pay for none.
    """

    def __init__(self, cutoff: float, skin: float) -> None:
        if not skin >= 0:
            raise ClebschError(f"skin: expected a distance of at least 0 Angstrom, got {skin}")
        self._finder = NeighbourFinder(cutoff)
        self._skin = float(skin)
        self._held = -1.0  # skin of the list, -1: there is none
        self._system: tuple[Any, ...] = ()

    def forget(self) -> None:
        """The next update gives a new list."""
        self._held = -1.0

    def update(self, positions: ArrayLike, cell: ArrayLike, pbc: ArrayLike) -> Pairs | None:
        """For positions (N, 3) Angstrom: a new list, or None when the last one still holds; then see points, box."""
        positions = finite_positions(positions)
        periodic = np.broadcast_to(np.asarray(pbc, dtype=bool), (3,)).copy()
        self.box = completed_cell(cell, periodic)
        system = (len(positions), self.box.tobytes(), periodic.tobytes())
        known = system == self._system
        if known and self._held >= 0:
            self.points = positions - self._unwrapped
            moved = np.square(self.points - self._built_at).sum(axis=1).max(initial=0.0)
            if 4.0 * moved <= self._held**2:
                return None
        # Atoms that have left the cell are put back, so that shifts stay small however far they diffuse.
        cells = np.floor(positions @ np.linalg.inv(self.box)) * periodic
        self._unwrapped = cells @ self.box
        self.points = self._built_at = positions - self._unwrapped
        skin = self._skin if known else 0.0
        self.forget()  # there is none, should the search be interrupted
        pairs = self._finder.find_pairs(self.points, self.box, periodic, skin)
        self._held, self._system = skin, system
        return pairs
