"""Problems of the triangle benchmark, our call, and what every contender is compared with. __main__.py, which imports
this, has put src/python into the path."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from clebsch.triangle import triangle_multiplicative_update, triangle_multiplicative_update_reference


def problem(batch, n, d, out, gate, dtype, masked, distribution, weight_dtype, device="cuda"):
    """x, mask and weights; leaderboard's scales."""
    random = torch.Generator(device=device).manual_seed(n + d)
    new = {"generator": random, "device": device}
    hidden = 128
    x = torch.randn(batch, n, n, d, **new)
    if distribution == "cauchy":
        x = torch.empty(batch, n, n, d, device=device).cauchy_(0, 2, generator=random)
    mask = (torch.rand(batch, n, n, **new) > 0.5) if masked else None
    width = hidden if gate == "before" else out
    sizes = {
        "norm_in_weight": (d,), "norm_in_bias": (d,), "p_in_weight": (2 * hidden, d), "g_in_weight": (2 * hidden, d),
        "norm_out_weight": (hidden,), "norm_out_bias": (hidden,), "p_out_weight": (out, hidden),
        "g_out_weight": (width, d),
    }  # fmt: skip
    weights = {}
    for name, size in sizes.items():
        weight = torch.randn(*size, **new)
        if len(size) == 2:
            weight /= math.sqrt(d if name == "p_out_weight" else hidden)
        weights[name] = weight.to(weight_dtype)
    return x.to(dtype), mask, weights


def ours(gate: str, precision: str) -> Callable:
    def call(x, mask, weights):
        return triangle_multiplicative_update(x, "outgoing", mask, gate=gate, precision=precision, **weights)

    return call


def expected(x, mask, weights, gate) -> torch.Tensor:
    """The first 32 lines in float64 (the others where there is memory): what every contender is compared with."""
    dtype = torch.float64 if x.numel() * 8 <= 2**30 else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = False
    w = {name: weight.to(dtype) for name, weight in weights.items()}
    with torch.no_grad():
        if x.numel() * 8 <= 2**30:
            return triangle_multiplicative_update_reference(x.to(dtype), "outgoing", mask, gate=gate, **w)
        hidden = w["p_in_weight"].shape[0] // 2
        right = torch.empty(*x.shape[:-1], hidden, device=x.device, dtype=dtype)
        left = None
        for first in range(0, x.shape[1], 64):
            y = x[:, first : first + 64].to(dtype)
            y = torch.nn.functional.layer_norm(y, y.shape[-1:], w["norm_in_weight"], w["norm_in_bias"])
            both = (y @ w["p_in_weight"].T) * (y @ w["g_in_weight"].T).sigmoid()
            if mask is not None:
                both = both * mask[:, first : first + 64, :, None]
            right[:, first : first + 64] = both[..., hidden:]
            if first == 0:
                left, gates = both[:, :32, :, :hidden], (y[:, :32] @ w["g_out_weight"].T).sigmoid()
        o = torch.einsum("bikh,bjkh->bijh", left, right)
        o = torch.nn.functional.layer_norm(o, (hidden,), w["norm_out_weight"], w["norm_out_bias"])
        return (o * gates) @ w["p_out_weight"].T if gate == "before" else (o @ w["p_out_weight"].T) * gates


def error_of(found: torch.Tensor, reference: torch.Tensor) -> tuple[float, bool]:
    """Root mean square, and whether all is within 2e-2 absolute + relative."""
    found = found[:, : reference.shape[1]].to(reference.dtype)
    difference = (found - reference).abs_()
    worst = (difference - 2e-2 * reference.abs()).max().item()
    return (difference.square().mean() / reference.square().mean()).sqrt().item(), worst <= 2e-2
