"""The sampler with the exact law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .. import multilinear_library as _library
from ..errors import ClebschError


class Draw(NamedTuple):
    """Rows of a Khatri-Rao product A."""

    #: (count, N) int64: the row of every factor; -1 for the factor that was left out.
    indices: torch.Tensor
    #: (count, columns) float64: the rows of A.
    rows: torch.Tensor
    #: (count,) float64: 1 / (count p); the mean of ``(weights[:, None] * rows).T @ rows`` is A'A.
    weights: torch.Tensor
    #: of A, from the eigenvalues of its Gram matrix.
    rank: int


class KhatriRaoSampler:
    """Draws rows of ``A = U_1 (.) ... (.) U_N`` with probability leverage / rank(A), without forming A.

    ``factors``: matrices (rows_k, columns), float64 (others are converted, which makes a copy), all on the CPU or all
    on one GPU; on the CPU also ``torch.sparse_csr``. They are referred to, not copied, but for one in the memory of
    another: change them by :meth:`set_factor` and :meth:`set` alone. ``leaf_rows``: rows below which the tree ends, 0
    for the default. Calls of several threads take turns.

    Exactly the law of leverages, in time logarithmic in the rows: V. Bharadwaj et al., NeurIPS 2023 (arXiv 2301.12584),
    and chapter 3 of his dissertation. A sample follows from ``seed`` and its place, whatever the number of threads; a
    GPU draws the same rows, but for those of which rounding decides.

    Raises ClebschError for shapes that do not fit, and for a number that is not finite, with its place.
    """

    def __init__(self, factors: Sequence[torch.Tensor], leaf_rows: int = 0) -> None:
        _library.require()
        self._factors: list[torch.Tensor] = []
        for k, u in enumerate(factors):
            self._factors.append(_library.apart(_library.matrix(u, f"factor {k}"), self._factors))
        with _library.plain_errors():
            self._sampler = torch.classes.clebsch.KhatriRaoSampler(self._factors, leaf_rows)

    @property
    def factors(self) -> tuple[torch.Tensor, ...]:
        """The factors as they are drawn from."""
        return tuple(self._factors)

    def draw(self, count: int, exclude: int | None = None, seed: int = 0) -> Draw:
        """``count`` rows, with replacement, of the product without the factor ``exclude``."""
        with _library.plain_errors():
            return Draw(*self._sampler.draw(count, self._left_out(exclude), _library.signed(seed)))

    def scores(self, indices: torch.Tensor, exclude: int | None = None) -> torch.Tensor:
        """(count,) leverages of the rows with these indices (count, N) int64; the excluded factor's are not read."""
        with _library.plain_errors():
            return self._sampler.scores(_library.places(indices).contiguous(), self._left_out(exclude))[0]

    def law(self, exclude: int | None = None) -> torch.Tensor:
        """(product of the rows,) probabilities of all tuples, first index slowest, by going down to every leaf of every
        tree: for small products on the CPU, to look at what is drawn from."""
        with _library.plain_errors():
            return self._sampler.law(self._left_out(exclude))

    def set_factor(self, j: int, u: torch.Tensor) -> None:
        """Puts another matrix in the place of factor ``j`` and builds its tree: O(rows columns^2)."""
        others = [other for k, other in enumerate(self._factors) if k != j]
        u = _library.apart(_library.matrix(u, f"factor {j}"), others)
        with _library.plain_errors():
            self._sampler.set_factor(j, u)
        self._factors[j] = u

    def set(self, j: int, row: int, column: int, value: float) -> None:
        """Writes one entry of factor ``j``, the matrix itself included, and mends its tree: O(columns log rows)."""
        if not 0 <= j < len(self._factors):
            raise ClebschError(f"expected a factor of 0 to {len(self._factors) - 1}, got {j}")
        with _library.plain_errors():
            self._sampler.set(j, row, column, value)

    def bytes(self) -> int:
        """Memory beside the factors: about 4 bytes an entry of theirs."""
        return self._sampler.bytes()

    def _left_out(self, exclude: int | None) -> int:
        if exclude is not None and not 0 <= exclude < len(self._factors):
            raise ClebschError(f"exclude: expected a factor of 0 to {len(self._factors) - 1}, or None, got {exclude}")
        return -1 if exclude is None else exclude
