"""Radial distribution functions of water, by pair of elements."""

from __future__ import annotations

import numpy as np

PAIRS = (("O", "O"), ("O", "H"), ("H", "H"))


class Rdf:
    """Accumulates g_OO, g_OH and g_HH of frames in orthogonal periodic cells.

    All pairs count, also the two O-H bonds and the H-H pair of each molecule; r reaches at
    most half the shortest edge.
    """

    def __init__(self, symbols: list[str], r_max: float, width: float = 0.02):
        self.index = {e: np.flatnonzero(np.array(symbols) == e) for e in ("O", "H")}
        self.edges = np.arange(0.0, r_max + 0.5 * width, width)
        self.counts = {p: np.zeros(len(self.edges) - 1) for p in PAIRS}
        self.norm = dict.fromkeys(PAIRS, 0.0)

    def add(self, positions: np.ndarray, lengths: np.ndarray) -> None:
        """Adds a frame: positions (N, 3) and the cell's three edges, A."""
        if self.edges[-1] > 0.5 * np.min(lengths) + 1e-9:
            raise ValueError(f"expected r_max at most half the edge {np.min(lengths)}, got {self.edges[-1]}")
        for a, b in PAIRS:
            i, j = self.index[a], self.index[b]
            d = positions[i][:, None] - positions[j][None]
            d -= lengths * np.round(d / lengths)
            r = np.sqrt((d * d).sum(-1))
            if a == b:
                r = r[np.triu_indices(len(i), 1)]
            self.counts[a, b] += np.histogram(r, self.edges)[0]
            # Ideal-gas pair count per A^3 of shell
            self.norm[a, b] += r.size / np.prod(lengths)

    def result(self) -> np.ndarray:
        """Columns r (A, centre of the bin), g_OO, g_OH, g_HH."""
        shell = 4 / 3 * np.pi * np.diff(self.edges**3)
        r = 0.5 * (self.edges[1:] + self.edges[:-1])
        return np.column_stack([r] + [self.counts[p] / (self.norm[p] * shell) for p in PAIRS])
