"""Randomised alternating least squares for the CP decomposition of a tensor that is given by its entries on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..errors import ClebschError
from .khatri_rao import KhatriRaoSampler
from .product_law import ProductLawSampler

#: Tensors of up to so many entries remember those that were asked for.
REMEMBERED = 2**27


@dataclass
class CpTensor:
    """``T[i_1 ... i_N] = sum_r sigma_r prod_k U_k[i_k, r]``, columns of the factors of norm one."""

    sigma: torch.Tensor
    factors: list[torch.Tensor]

    @property
    def rank(self) -> int:
        """Terms of the sum."""
        return len(self.sigma)

    def at(self, indices: torch.Tensor) -> torch.Tensor:
        """(count,) entries at indices (count, N)."""
        product = self.sigma.expand(len(indices), -1)
        for k, u in enumerate(self.factors):
            product = product * u[indices[:, k]]
        return product.sum(1)

    def norm(self) -> float:
        """Euclidean norm of the tensor."""
        gram = math.prod(u.T @ u for u in self.factors)
        return float((self.sigma @ gram @ self.sigma).clamp(min=0).sqrt())


class _Entries:
    """Asks the callback for each entry once, as far as there is memory to know."""

    def __init__(self, shape: tuple[int, ...], callback: Callable, device: torch.device) -> None:
        self.shape, self.callback, self.device, self.asked = shape, callback, device, 0
        size = math.prod(shape)
        self.known = torch.full((size,), torch.nan, dtype=torch.float64, device=device) if size <= REMEMBERED else None
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        self.strides = torch.tensor(strides if self.known is not None else [0] * len(shape), device=device)

    def _ask(self, indices: torch.Tensor) -> torch.Tensor:
        if len(indices) == 0:
            return torch.empty(0, dtype=torch.float64, device=self.device)
        values = torch.as_tensor(self.callback(indices), dtype=torch.float64, device=self.device)
        if values.shape != (len(indices),):
            raise ClebschError(f"entries: expected {len(indices)} values, got shape {tuple(values.shape)}")
        if not bool(torch.isfinite(values).all()):
            place = indices[(~torch.isfinite(values)).nonzero()[0, 0]].tolist()
            raise ClebschError(f"entries: expected finite values, got one that is not at {place}")
        self.asked += len(indices)
        return values

    def __call__(self, indices: torch.Tensor) -> torch.Tensor:
        if self.known is None:
            return self._ask(indices)
        flat = indices @ self.strides
        missing = torch.isnan(self.known[flat])
        new, first = torch.unique(flat[missing], return_inverse=True)
        if len(new):
            places = torch.empty(len(new), dtype=torch.int64, device=self.device)
            places[first] = missing.nonzero()[:, 0]
            self.known[new] = self._ask(indices[places])
        return self.known[flat]


def cp_als(
    shape: Sequence[int],
    entries: Callable[[torch.Tensor], torch.Tensor],
    rank: int,
    samples: int,
    rounds: int = 10,
    sampler: str = "exact",
    seed: int = 0,
    start: CpTensor | None = None,
    weigh: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ridge: float = 1e-12,
    device: str | torch.device = "cpu",
    watch: Callable[[int, CpTensor, int], bool | None] | None = None,
) -> CpTensor:
    """Fits ``rank`` terms to the tensor of this shape whose entries ``entries`` gives: indices (count, N) -> (count,).

    A round goes through the modes; mode j is a least squares problem whose design is the Khatri-Rao product of the
    other factors, of which ``samples`` rows are drawn: by their leverage (``sampler="exact"``), by the product of the
    factors' leverages (``"product"``, ``"hybrid"``). Algorithm 10 of V. Bharadwaj's dissertation (STS-CP). Each drawn
    row needs the shape[j] entries of a fibre; an entry is asked for once where the tensor has at most 2^27.

    ``weigh``: importance of entries from their values, >= 0, for example ``exp(-V / kT)``. ``ridge``: multiple of the
    mean squared column norm that is added, against columns that cancel each other. ``watch(round, tensor, asked)`` is
    called after every round with the number of entries asked for; True ends. ``seed``: 0 to 2^32 - 1.

    Raises ClebschError for sizes without sense, and for an entry that is not finite, with its indices.
    """
    shape = tuple(shape)
    if len(shape) < 2 or min(shape) < 1 or rank < 1 or samples < rank:
        raise ClebschError(
            f"cp_als: expected two modes or more, rank >= 1 and samples >= rank, got {shape}, {rank}, {samples}"
        )
    if sampler not in ("exact", "product", "hybrid"):
        raise ClebschError(f"cp_als: sampler: expected exact, product or hybrid, got {sampler!r}")
    if not 0 <= seed < 2**32:
        raise ClebschError(f"cp_als: seed: expected 0 to 2^32 - 1, got {seed}")
    if not 0 <= ridge < math.inf:
        raise ClebschError(f"cp_als: ridge: expected a number of at least 0, got {ridge}")
    device = torch.device(device)
    if start is None:
        random = torch.Generator().manual_seed(seed)
        factors = [torch.randn(size, rank, dtype=torch.float64, generator=random).to(device) for size in shape]
        start = CpTensor(torch.ones(rank, dtype=torch.float64, device=device), [u / u.norm(dim=0) for u in factors])
    elif [tuple(u.shape) for u in start.factors] != [(size, rank) for size in shape]:
        raise ClebschError(f"cp_als: start: expected factors of {shape} rows and {rank} columns")
    tensor = CpTensor(start.sigma.clone(), [u.clone() for u in start.factors])
    kind = KhatriRaoSampler if sampler == "exact" else lambda u: ProductLawSampler(u, hybrid=sampler == "hybrid")
    draws, known = kind(tensor.factors), _Entries(shape, entries, device)
    for number in range(rounds):
        for j, size in enumerate(shape):
            drawn = draws.draw(samples, exclude=j, seed=(seed << 32) + number * len(shape) + j)
            # A tuple that was drawn twice counts twice.
            indices, place = torch.unique(drawn.indices, dim=0, return_inverse=True)
            weights = torch.zeros(len(indices), dtype=torch.float64, device=device).index_add_(0, place, drawn.weights)
            rows = drawn.rows.new_empty((len(indices), rank))
            rows[place] = drawn.rows
            fibres = indices[:, None].repeat(1, size, 1)
            fibres[:, :, j] = torch.arange(size, device=device)
            right = known(fibres.reshape(-1, len(shape))).reshape(len(indices), size)
            solved = _least_squares(rows, right, weights, weigh, ridge)
            norms = solved.norm(dim=0)
            tensor.sigma = norms
            # A term that has died begins anew: its column would make the product deficient.
            safe = torch.where(norms > 0, norms, torch.ones_like(norms))
            tensor.factors[j] = torch.where(norms > 0, solved / safe, torch.full_like(solved, size**-0.5))
            draws.set_factor(j, tensor.factors[j])
        if watch is not None and watch(number, tensor, known.asked):
            break
    return tensor


def _least_squares(
    rows: torch.Tensor, right: torch.Tensor, weights: torch.Tensor, weigh: Callable | None, ridge: float
) -> torch.Tensor:
    """(size, rank): least squares of right (rows, size) by rows (rows, rank)."""
    rank = rows.shape[1]
    root = weights.sqrt()[:, None]
    design = root * rows
    small = math.sqrt(ridge * float(design.square().sum()) / rank)
    eye = torch.eye(rank, dtype=rows.dtype, device=rows.device)
    if weigh is None:
        stacked = torch.cat([design, small * eye])
        target = torch.cat([root * right, right.new_zeros(rank, right.shape[1])])
        return torch.linalg.lstsq(stacked, target, driver="gels").solution.T
    # Another design for every index of the mode.
    importance = weigh(right)
    if importance.shape != right.shape or not bool((importance >= 0).all() and torch.isfinite(importance).all()):
        raise ClebschError(
            f"cp_als: weigh: expected {tuple(right.shape)} finite numbers of at least 0, got "
            f"{tuple(importance.shape)}, from {float(importance.min())} to {float(importance.max())}"
        )
    importance = importance.sqrt()
    solved = []
    for i in range(right.shape[1]):
        own = importance[:, i : i + 1]
        part = own * design
        level = math.sqrt(ridge * max(float(part.square().sum()), 1e-300) / rank)
        stacked = torch.cat([part, level * eye])
        target = torch.cat([own * root * right[:, i : i + 1], right.new_zeros(rank, 1)])
        solved.append(torch.linalg.lstsq(stacked, target, driver="gels").solution[:, 0])
    return torch.stack(solved)
