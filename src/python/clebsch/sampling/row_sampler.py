"""The tree over the rows of one matrix."""

from __future__ import annotations

import torch

from .. import multilinear_library as _library


class RowSampler:
    """Draws row i of ``u`` (rows, columns) with probability proportional to ``u_i' (h h' * y) u_i``, for any h.

    ``*`` is the product entry by entry; ``y`` (columns, columns), symmetric positive semidefinite, on the CPU, is ones
    without it. Lemma 3.3.2 of V. Bharadwaj's dissertation: build O(rows columns^2), draw O(columns^2 log rows).
    """

    def __init__(self, u: torch.Tensor, leaf_rows: int = 0, y: torch.Tensor | None = None) -> None:
        _library.require()
        self.u = _library.matrix(u, "u")
        form = None if y is None else _library.matrix(y, "y")
        with _library.plain_errors():
            self._sampler = torch.classes.clebsch.RowSampler(self.u, leaf_rows, form)

    def draw(self, h: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """(count,) int64: a row for every ``h`` (count, columns) and number in [0, 1) of ``uniforms`` (count,)."""
        with _library.plain_errors():
            return self._sampler.draw(h.contiguous(), uniforms.contiguous())

    def law(self, h: torch.Tensor) -> torch.Tensor:
        """(rows,) probabilities for one ``h`` (columns,), by going down to every leaf. On the CPU."""
        with _library.plain_errors():
            return self._sampler.law(h.contiguous())

    def set(self, row: int, column: int, value: float) -> None:
        """Writes an entry of ``u`` and mends the tree in O(columns log rows)."""
        with _library.plain_errors():
            self._sampler.set(row, column, value)

    def rebuild(self) -> None:
        """Builds the tree anew: after ``u`` was written, or when rounding of many :meth:`set` may have added up."""
        with _library.plain_errors():
            self._sampler.rebuild()

    def bytes(self) -> int:
        """Memory beside ``u``."""
        return self._sampler.bytes()
