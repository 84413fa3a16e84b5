"""Spherical attention as a layer of a network."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import ClebschError
from .spherical import spherical_attention

VALUES = ("free", "shared")


class SphericalAttention(nn.Module):
    """``x + Wo attention(Wq n, Wk n, values)``, n = RMSNorm(x): the layer of the gene network of V. Abbott et al.
    (docs/attention.md), with weights that are signed and have unit L2 norm over the keys.

    features: of x. heads, key_heads: of queries and of keys and values; key_heads (None: heads) divides heads, whose
    groups share a key head. head_size: of each, None: features / heads. values: "free", a map of n; or "shared", one
    learned vector for all keys and heads, with which a score's sign says whether a key raises or lowers the output,
    and no value can take that sign over. residual, norm: whether x is added, and normalised before. eps: under the
    root of the attention's norm. Raises ClebschError for sizes that do not fit.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        key_heads: int | None = None,
        head_size: int | None = None,
        values: str = "free",
        residual: bool = True,
        norm: bool = True,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        key_heads = heads if key_heads is None else key_heads
        if heads < 1 or key_heads < 1 or heads % key_heads:
            raise ClebschError(
                f"SphericalAttention: key_heads: expected a divisor of the {heads} heads, got {key_heads}"
            )
        if head_size is None and features % heads:
            raise ClebschError(
                f"SphericalAttention: features: expected a multiple of the {heads} heads, got {features}; or give "
                "head_size"
            )
        if values not in VALUES:
            raise ClebschError(f"SphericalAttention: values: expected one of {', '.join(VALUES)}, got {values!r}")
        self.heads, self.key_heads, self.eps, self.residual = heads, key_heads, float(eps), residual
        self.head_size = features // heads if head_size is None else head_size
        self.norm = nn.RMSNorm(features) if norm else nn.Identity()
        self.to_q = nn.Linear(features, heads * self.head_size, bias=False)
        self.to_k = nn.Linear(features, key_heads * self.head_size, bias=False)
        self.to_v = nn.Linear(features, key_heads * self.head_size, bias=False) if values == "free" else None
        self.value = None if values == "free" else nn.Parameter(torch.ones(self.head_size))
        self.to_out = nn.Linear(heads * self.head_size, features, bias=False)

    def _by_head(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """(B, N, heads d) to (B, heads, N, d)"""
        return x.unflatten(-1, (heads, self.head_size)).transpose(1, 2)

    def queries_and_keys(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, heads, N, d) and (B, key_heads, N, d) of x (B, N, features)."""
        n = self.norm(x)
        return self._by_head(self.to_q(n), self.heads), self._by_head(self.to_k(n), self.key_heads)

    def attend(
        self, x: torch.Tensor, multiplicity: torch.Tensor | None = None, offsets: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What the heads see, (B, N, heads d), before it is mixed."""
        q, k = self.queries_and_keys(x)
        if self.to_v is None:
            v = self.value.expand(k.shape).to(k.dtype)
        else:
            v = self._by_head(self.to_v(self.norm(x)), self.key_heads)
        if multiplicity is not None:
            multiplicity = multiplicity.to(k.dtype)  # under autocast x's projections are in 16 bits
        out, _ = spherical_attention(q, k, v, multiplicity, offsets, self.eps)
        return out.transpose(1, 2).flatten(2)

    def forward(
        self, x: torch.Tensor, multiplicity: torch.Tensor | None = None, offsets: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x (B, N, features); multiplicity (B, N) scales keys, offsets are prefix sums of sequences that lie one behind
        another, as in spherical_attention. Returns (B, N, features)."""
        y = self.to_out(self.attend(x, multiplicity, offsets))
        return x + y if self.residual else y

    def weights(self, x: torch.Tensor, multiplicity: torch.Tensor | None = None) -> torch.Tensor:
        """The signed weights of every query over the keys, (B, heads, N, N), to be looked at: quadratic in N."""
        q, k = self.queries_and_keys(x)
        if multiplicity is not None:
            k = k * multiplicity[:, None, :, None]
        scores = q @ k.repeat_interleave(self.heads // self.key_heads, 1).transpose(-1, -2)
        return scores / (scores.square().sum(-1, keepdim=True) + self.eps).sqrt()
