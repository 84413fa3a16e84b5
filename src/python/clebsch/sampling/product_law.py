"""The sampler whose law is the product of the factors' own leverages, behind the interface of the exact one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch

from .. import multilinear_library as _library
from ..errors import ClebschError
from .khatri_rao import Draw


class ProductLawSampler:
    """Draws rows of ``U_1 (.) ... (.) U_N`` with probability ``prod_k leverage_k(i_k) / rank_k``.

    Cheap, but the weights spread: least squares needs of the order of columns^(N-1) rows, where the exact law needs
    columns. It is here to compare with. B. Larsen and T. Kolda, SIAM J. Matrix Anal. Appl. 43 (2022) 1488.

    ``hybrid``: every tuple whose probability is at least 1 / count is taken for certain, with weight 1, and the others
    are drawn from the rest of the law. Larsen and Kolda draw until a tuple is not among the certain ones; here the
    inverse of the rest's distribution function is evaluated, so that a draw ends however small the rest is. Where
    there is no rest, fewer than ``count`` rows come back.
    """

    def __init__(self, factors: Sequence[torch.Tensor], hybrid: bool = False) -> None:
        if not factors:
            raise ClebschError("ProductLawSampler: expected at least one factor, got none")
        _library.require()
        self.hybrid = hybrid
        self._factors = [_library.matrix(u, f"factor {k}") for k, u in enumerate(factors)]
        self._law: list[torch.Tensor] = [torch.empty(0)] * len(factors)
        self._sums: list[torch.Tensor] = [torch.empty(0)] * len(factors)
        for k, u in enumerate(self._factors):
            self.set_factor(k, u)

    def set_factor(self, j: int, u: torch.Tensor) -> None:
        """Puts another matrix in the place of factor ``j``."""
        if not 0 <= j < len(self._factors):
            raise ClebschError(f"expected a factor of 0 to {len(self._factors) - 1}, got {j}")
        u = _library.matrix(u, f"factor {j}")
        if u.shape[1] != self._factors[0].shape[1]:
            raise ClebschError(f"factor {j} has {u.shape[1]} columns, the others {self._factors[0].shape[1]}")
        dense = u.to_dense() if u.layout == torch.sparse_csr else u
        low, high = torch.aminmax(dense, dim=0)
        largest = torch.maximum(-low, high)
        if not bool(torch.isfinite(largest).all()):
            row, column = (~torch.isfinite(dense)).nonzero()[0].tolist()
            raise ClebschError(
                f"factor {j}: expected finite numbers, got {dense[row, column]} in row {row}, column {column}"
            )
        scaled = dense / torch.where(largest > 0, largest, torch.ones_like(largest))
        gram = scaled.T @ scaled
        inverse = torch.where(gram.diagonal() > 0, gram.diagonal(), 1.0).rsqrt()
        values, vectors = torch.linalg.eigh(inverse[:, None] * gram * inverse)
        counts = values > 8 * u.shape[1] * torch.finfo(torch.float64).eps * values[-1]
        rank = int(counts.sum())
        if rank == 0 or not bool(values[-1] > 0):
            raise ClebschError(f"rank 0: factor {j} is zero, so every row of the product is")
        scores = (scaled @ (inverse[:, None] * vectors[:, counts] / values[counts].sqrt())).square_().sum(1)
        self._factors[j] = dense
        self._law[j] = scores / scores.sum()
        self._sums[j] = self._law[j].cumsum(0)

    def draw(self, count: int, exclude: int | None = None, seed: int = 0) -> Draw:
        """As :meth:`KhatriRaoSampler.draw`; ``rank`` is the product of the factors' ranks' bound, the columns."""
        if count <= 0:
            raise ClebschError(f"count: expected a positive number of rows, got {count}")
        drawn = self._drawn(exclude)
        device = self._factors[0].device
        uniforms = {k: torch.ops.clebsch.philox_uniform(_library.signed(seed), k, 1, count) for k in drawn}
        certain = self._certain(drawn, 1.0 / count) if self.hybrid else torch.empty((0, len(drawn)), dtype=torch.int64)
        if len(certain):
            indices, weights = self._draw_rest(certain, drawn, uniforms, count)
        else:
            found = [self._invert(self._sums[k], uniforms[k].to(device)) for k in drawn]
            indices = torch.stack(found, 1)
            weights = 1.0 / (count * self._probability(indices, drawn))
        rows = torch.ones((len(indices), self._factors[0].shape[1]), dtype=torch.float64, device=device)
        full = torch.full((len(indices), len(self._factors)), -1, dtype=torch.int64, device=device)
        for place, k in enumerate(drawn):
            rows *= self._factors[k][indices[:, place]]
            full[:, k] = indices[:, place]
        return Draw(full, rows, weights, self._factors[0].shape[1])

    def scores(self, indices: torch.Tensor, exclude: int | None = None) -> torch.Tensor:
        """(count,) probabilities of the rows with these indices (count, N)."""
        drawn, indices = self._drawn(exclude), _library.places(indices)
        if indices.dim() != 2 or indices.shape[1] != len(self._factors) or indices.dtype != torch.int64:
            raise ClebschError(
                f"indices: expected int64 of shape (count, {len(self._factors)}), got {indices.dtype} of "
                f"{tuple(indices.shape)}"
            )
        for k in drawn if len(indices) else ():
            low, high = (int(end) for end in torch.aminmax(indices[:, k]))
            if low < 0 or high >= len(self._law[k]):
                raise ClebschError(
                    f"indices: expected a row of 0 to {len(self._law[k]) - 1} of factor {k}, got "
                    f"{low if low < 0 else high}"
                )
        return self._probability(indices[:, drawn], drawn)

    def _drawn(self, exclude: int | None) -> list[int]:
        if exclude is not None and not 0 <= exclude < len(self._factors):
            raise ClebschError(f"exclude: expected a factor of 0 to {len(self._factors) - 1}, or None, got {exclude}")
        drawn = [k for k in range(len(self._factors)) if k != exclude]
        if not drawn:
            raise ClebschError("exclude: the only factor cannot be left out")
        return drawn

    def _probability(self, indices: torch.Tensor, drawn: list[int]) -> torch.Tensor:
        product = torch.ones(len(indices), dtype=torch.float64, device=indices.device)
        for place, k in enumerate(drawn):
            product *= self._law[k][indices[:, place]]
        return product

    @staticmethod
    def _invert(sums: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """The first index whose sum is above the uniform number: never one of probability zero."""
        at = torch.searchsorted(sums, uniforms * sums[-1], right=True)
        last = torch.searchsorted(sums, sums[-1:])  # of those with a share
        return torch.minimum(at, last)

    def _certain(self, drawn: list[int], least: float) -> torch.Tensor:
        """(m, N') tuples of probability >= least, of which there are at most 1 / least."""
        device = self._factors[0].device
        tuples = torch.empty((1, 0), dtype=torch.int64, device=device)
        shares = torch.ones(1, dtype=torch.float64, device=device)
        largest = [float(self._law[k].max()) for k in drawn]
        for place, k in enumerate(drawn):
            rest = 1.0
            for later in largest[place + 1 :]:
                rest *= later
            # Of this factor's rows only those that can still reach `least` with the best of the others.
            rows = (self._law[k] * float(shares.max()) * rest >= least).nonzero()[:, 0]
            product = shares[:, None] * self._law[k][rows][None]
            a, b = (product * rest >= least).nonzero(as_tuple=True)
            if len(a) == 0:
                return torch.empty((0, len(drawn)), dtype=torch.int64, device=device)
            tuples, shares = torch.cat([tuples[a], rows[b][:, None]], 1), product[a, b]
        return tuples

    def _draw_rest(
        self, certain: torch.Tensor, drawn: list[int], uniforms: dict[int, torch.Tensor], count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The certain tuples and draws from the law of the others."""
        device = certain.device
        shares = self._probability(certain, drawn)
        mass = float(shares.sum())
        samples = count - len(certain)
        ones = torch.ones(len(certain), dtype=torch.float64, device=device)
        if samples <= 0 or 1.0 - mass <= 1e-13:
            return certain, ones
        # Factor by factor: given the rows so far, row i has the probability law(i) less the share of the certain
        # tuples that begin so. Samples that have left the certain tuples' beginnings draw from the law itself.
        nodes = torch.zeros(samples, dtype=torch.int64)
        rows = []
        for place, level in enumerate(_levels(certain.cpu(), [self._law[k].cpu() for k in drawn])):
            sums, uniform = self._sums[drawn[place]].cpu(), uniforms[drawn[place]][:samples].cpu()
            row = self._invert(sums, uniform)
            inside = (nodes >= 0).nonzero()[:, 0]
            row[inside] = level.invert(sums, nodes[inside], uniform[inside])
            nodes[inside] = level.child(nodes[inside], row[inside])
            rows.append(row)
        others = torch.stack(rows, 1).to(device)
        weights = (1.0 - mass) / (samples * self._probability(others, drawn))
        return torch.cat([certain, others]), torch.cat([ones, weights])


class _Level:
    """Of the tree of beginnings of certain tuples: the rows that follow each beginning ("node") of one length, and the
    running sums of what they take of the law of the next row."""

    def __init__(self, parent: torch.Tensor, row: torch.Tensor, share: torch.Tensor, rows: int) -> None:
        self.rows, self.keys = rows, parent * rows + row
        self.first = torch.searchsorted(parent, torch.arange(int(parent[-1]) + 1))
        # Differences of sums over all nodes: with more digits than the shares have.
        running = numpy.cumsum(share.numpy(), dtype=numpy.longdouble)
        before = (running - share.numpy())[self.first.numpy()]
        self.parts = torch.from_numpy((running - before[parent.numpy()]).astype(numpy.float64))

    def taken(self) -> torch.Tensor:
        """(nodes,) what all rows that follow take."""
        return self.parts[torch.cat([self.first[1:], torch.tensor([len(self.parts)])]) - 1]

    def child(self, node: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        """The node of the next level; -1 where the row does not follow."""
        key = node * self.rows + row
        at = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[at] == key, at, -1)

    def invert(self, sums: torch.Tensor, node: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """The first row at which the law's sum, less what is taken, is above the uniform part of all of it."""

        def upto(row: torch.Tensor) -> torch.Tensor:
            at = torch.searchsorted(self.keys, node * self.rows + row, right=True)
            return sums[row] - torch.where(at > self.first[node], self.parts[at - 1], 0.0)

        low, high = torch.zeros_like(node), torch.full_like(node, self.rows - 1)
        target = uniform * upto(high)
        for _ in range(self.rows.bit_length()):
            middle = (low + high) // 2
            above = upto(middle) > target
            high = torch.where(above, middle, high)
            low = torch.where(above, low, torch.minimum(middle + 1, high))
        return low


def _levels(certain: torch.Tensor, laws: list[torch.Tensor]) -> list[_Level]:
    """The tree of certain (m, N) tuples, from the first factor to the last. Nodes are in the order of their tuples, so
    that a row that follows has the number of the node that it leads to."""
    levels = []
    tuples = torch.unique(certain, dim=0)
    taken = torch.ones(len(tuples), dtype=torch.float64)
    for place in reversed(range(len(laws))):
        row = tuples[:, place]
        if place > 0:
            tuples, parent = torch.unique(tuples[:, :place], dim=0, return_inverse=True)
        else:
            parent = torch.zeros_like(row)
        levels.append(_Level(parent, row, laws[place][row] * taken, len(laws[place])))
        taken = levels[-1].taken()
    return levels[::-1]
