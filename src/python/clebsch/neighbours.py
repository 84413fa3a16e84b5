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
