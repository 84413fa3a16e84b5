"""What the triangle multiplicative update computes, by torch's operations."""

from __future__ import annotations

import torch
from torch.nn.functional import layer_norm, linear


def triangle_multiplicative_update_reference(
    x: torch.Tensor,
    direction: str = "outgoing",
    mask: torch.Tensor | None = None,
    norm_in_weight: torch.Tensor | None = None,
    norm_in_bias: torch.Tensor | None = None,
    p_in_weight: torch.Tensor | None = None,
    p_in_bias: torch.Tensor | None = None,
    g_in_weight: torch.Tensor | None = None,
    g_in_bias: torch.Tensor | None = None,
    norm_out_weight: torch.Tensor | None = None,
    norm_out_bias: torch.Tensor | None = None,
    p_out_weight: torch.Tensor | None = None,
    p_out_bias: torch.Tensor | None = None,
    g_out_weight: torch.Tensor | None = None,
    g_out_bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    gate: str = "after",
) -> torch.Tensor:
    """:func:`triangle_multiplicative_update` composed of torch's operations, in x's dtype; derivatives of any order.

    Its arguments but `precision`. It keeps some ten tensors of x's size for its gradient.
    """
    hidden = p_in_weight.shape[0] // 2
    xn = layer_norm(x, x.shape[-1:], norm_in_weight, norm_in_bias, eps)
    both = linear(xn, p_in_weight, p_in_bias) * linear(xn, g_in_weight, g_in_bias).sigmoid()
    if mask is not None:
        weight = mask.to(x.dtype)[..., None]
        # 0 selects 0, also where infinities and NaN are behind it.
        both = torch.where((weight == 0) & ~both.isfinite(), torch.zeros_like(both), both) * weight
    left, right = both.split(hidden, -1)
    formula = "...ikh,...jkh->...ijh" if direction == "outgoing" else "...kih,...kjh->...ijh"
    o = torch.einsum(formula, left, right)
    o = layer_norm(o, (hidden,), norm_out_weight, norm_out_bias, eps)
    gates = linear(xn, g_out_weight, g_out_bias).sigmoid()
    if gate == "before":
        return linear(o * gates, p_out_weight, p_out_bias)
    return linear(o, p_out_weight, p_out_bias) * gates
