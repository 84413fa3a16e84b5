"""Factors of the sampler's benchmarks, and how good a sketch is."""

from __future__ import annotations

import math

import torch


def normal_factors(rows: int, columns: int, count: int, device: str, seed: int = 1) -> list[torch.Tensor]:
    """Normal numbers, float64."""
    random = torch.Generator(device=device).manual_seed(seed)
    return [torch.randn(rows, columns, dtype=torch.float64, device=device, generator=random) for _ in range(count)]


def spiked_factors(rows: int, columns: int, count: int, device: str, seed: int) -> list[torch.Tensor]:
    """The factors of section 3.4.2: normal numbers, columns of norm one, then one entry in a hundred times ten."""
    random = torch.Generator(device=device).manual_seed(seed + 2_000_000)
    factors = normal_factors(rows, columns, count, device, seed)
    for u in factors:
        u /= u.norm(dim=0)
        u *= torch.where(torch.rand(rows, columns, device=device, generator=random) < 0.01, 10.0, 1.0)
    return factors


def gram_of(factors: list[torch.Tensor]) -> torch.Tensor:
    """(columns, columns): A'A."""
    return math.prod(u.T @ u for u in factors)


def whitening(gram: torch.Tensor) -> torch.Tensor:
    """(columns, rank): A times it has orthonormal columns; gram: A'A."""
    scale = gram.diagonal().rsqrt()
    values, vectors = torch.linalg.eigh(gram * scale[:, None] * scale)
    counts = values > 1e-12 * values[-1]
    return scale[:, None] * vectors[:, counts] / values[counts].sqrt()


def condition(drawn, basis: torch.Tensor) -> float:
    """kappa(SQ) of section 3.6.10."""
    values = torch.linalg.svdvals(drawn.weights.sqrt()[:, None] * drawn.rows @ basis)
    return float(values[0] / values[-1])


def residual(drawn, gram: torch.Tensor, right: torch.Tensor, sides: list[torch.Tensor]) -> float:
    """Residual of least squares with the drawn rows over the smallest, for a right side that is the Kronecker product
    of `sides`, vectors of norm one. gram: A'A; right: A' times the right side."""
    entries = math.prod(c[drawn.indices[:, k]] for k, c in enumerate(sides))
    root = drawn.weights.sqrt()
    # Columns of norm one for both.
    scale = gram.diagonal().rsqrt()
    exact = scale * torch.linalg.lstsq(gram * scale[:, None] * scale, (scale * right)[:, None]).solution[:, 0]
    sketched = root[:, None] * drawn.rows * scale
    q, r = torch.linalg.qr(sketched)
    found = scale * torch.linalg.solve_triangular(r, (q.T @ (root * entries))[:, None], upper=True)[:, 0]

    def square(x: torch.Tensor) -> float:
        return float(1.0 + x @ gram @ x - 2 * x @ right)

    return math.sqrt(square(found) / square(exact))
