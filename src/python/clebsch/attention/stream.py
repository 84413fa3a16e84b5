"""Attention that streams over keys, with a mask and a bias a pair: quadratic in time, linear in memory."""

from __future__ import annotations

import torch

from .. import multilinear_library as _library
from ..errors import ClebschError

NORMALISATIONS = ("l2", "softmax")


def stream_attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    multiplicity: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    eps: float = 0.0,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    normalise: str = "l2",
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What :func:`stream_attention` computes, from the formula by torch: quadratic in memory too, any order of
    derivatives. A query that sees no key gets zeros, without a gradient."""
    sequences, heads, queries, d = q.shape
    keys = k.shape[2]
    if multiplicity is not None:
        k = k * multiplicity[:, None, :, None]
    group = heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    x = _scale(scale, normalise, d) * (q @ k.transpose(-1, -2))
    x = x if bias is None else x + bias
    seen = torch.ones((queries, keys), dtype=torch.bool, device=q.device)
    if offsets is not None:
        sequence = torch.bucketize(torch.arange(queries, device=q.device), offsets[1:].to(q.device), right=True)
        seen = sequence[:, None] == sequence[None, :]
    if normalise == "softmax":
        seen = seen if mask is None else seen & mask
        x = torch.where(seen, x, -torch.inf)
        norm = x.logsumexp(-1)
        some = norm > -torch.inf
        w = torch.where(seen, (x - torch.where(some, norm, torch.zeros_like(norm))[..., None]).exp(), 0)
        return w @ v, norm
    x = torch.where(seen, x if mask is None else x * mask, 0)
    square = x.square().sum(-1) + eps
    some = square > 0
    norm = torch.where(some, torch.where(some, square, torch.ones_like(square)).sqrt(), torch.zeros_like(square))
    inverse = torch.where(some, 1 / torch.where(some, norm, torch.ones_like(norm)), torch.zeros_like(norm))
    return (x @ v) * inverse[..., None], norm


def _scale(scale: float | None, normalise: str, d: int) -> float:
    return float(scale) if scale is not None else 1.0 if normalise == "l2" else d**-0.5


def _setup(ctx, inputs, output) -> None:
    q, k, v, multiplicity, offsets, mask, bias, *ctx.numbers = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, multiplicity, offsets, mask, bias, *output)


def _backward(ctx, grad, grad_norm):
    q, k, v, multiplicity, offsets, mask, bias, out, norm = ctx.saved_tensors
    if grad is None and grad_norm is None:
        return (None,) * 10
    grad = torch.zeros_like(out) if grad is None else grad
    wants_bias = bias is not None and ctx.needs_input_grad[6]
    *found, of_multiplicity, of_bias = torch.ops.clebsch.stream_attention_backward(
        grad, grad_norm, q, k, v, multiplicity, offsets, mask, bias, out, norm, *ctx.numbers, wants_bias
    )
    of_multiplicity = None if multiplicity is None else of_multiplicity
    return *found, of_multiplicity, None, None, of_bias if wants_bias else None, None, None, None


def _setup_second(ctx, inputs, output) -> None:
    grad, grad_norm, q, k, v, multiplicity, offsets, mask, bias, _, _, *ctx.numbers, ctx.wants_bias = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad, grad_norm, q, k, v, multiplicity, offsets, mask, bias)


def _backward_second(ctx, *grads):
    """Of the first gradient as a function of grad, q, k, v, multiplicity and bias: composed of torch's operations in
    double precision. What the forward pass left (out, norm) depends on them and gets no gradient of its own."""
    grad, grad_norm, q, k, v, multiplicity, offsets, mask, bias = ctx.saved_tensors
    eps, scale, normalise = ctx.numbers
    saved = [grad, grad_norm, q, k, v, multiplicity, bias]
    with torch.enable_grad():
        x = [None if s is None else s.detach().requires_grad_() for s in saved]
        wide = [None if s is None else s.double() for s in x]
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.double()
        out, norm = stream_attention_reference(
            *wide[2:6], offsets, eps, mask, wide[6], normalise=NORMALISATIONS[normalise], scale=scale
        )
        loss = (out * wide[0]).sum()
        if wide[1] is not None:
            loss = loss + torch.where(norm > -torch.inf, norm * wide[1], 0).sum()
        variables = [x[2], x[3], x[4], x[5], x[6] if ctx.wants_bias else None]
        places = [at for at, s in enumerate(variables) if s is not None]
        first = torch.autograd.grad(loss, [variables[at] for at in places], create_graph=True)
        used = [(f, grads[at]) for f, at in zip(first, places, strict=True) if grads[at] is not None]
        if not used:
            return (None,) * 15
        given = [at for at, s in enumerate(x) if s is not None]
        second = torch.autograd.grad(
            [f for f, _ in used], [x[at] for at in given], [g for _, g in used], allow_unused=True
        )
    result = [None] * 7
    for at, value in zip(given, second, strict=True):
        result[at] = value
    return *result[:6], None, None, result[6], None, None, None, None, None, None


_library.add_derivatives(
    {
        "stream_attention": (_setup, _backward),
        "stream_attention_backward": (_setup_second, _backward_second),
    }
)


def stream_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    multiplicity: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    eps: float = 0.0,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    normalise: str = "l2",
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A normalised contraction, with ``x_ij = scale m_j q_i . k_j + bias_ij``:

    - ``normalise="l2"``: ``out_i = sum_j w_ij v_j / norm_i``, ``w_ij = mask_ij x_ij``,
      ``norm_i = sqrt(sum_j w_ij^2 + eps)``; scale is 1 unless it is given;
    - ``normalise="softmax"``: ``out_i = sum_j exp(x_ij) v_j / sum_j exp(x_ij)`` over the keys where the mask is True;
      norm is ``log sum_j exp(x_ij)``, -infinity where a query sees no key; scale is ``d ** -0.5`` unless it is given,
      and eps is not used.

    Tensors as in :func:`clebsch.attention.spherical_attention`. mask: bool, or numbers of q's dtype (L2 alone); bias:
    numbers of q's dtype. Both broadcast to (B, H, Nq, N); with offsets rows count the whole tensor. They are read in
    place by their strides: an expanded tensor costs no memory. Time is O(Nq N (d + dv)), memory that of the results.
    q, k, v, multiplicity and bias have gradients, and second ones, which are composed of torch's operations in double
    precision and take quadratic memory. A mask has none. A bias's gradient is as large as the bias that is passed, so
    pass what broadcasts, not what was expanded. Where the norm is 0 (L2) or a query sees no key, out and gradients are
    0. On a GPU float16 and bfloat16 with head sizes that are multiples of 16 up to 128 take 16-bit tensor cores, for
    which weights are rounded to 16 bits. Everything else computes in double precision.
    """
    if normalise not in NORMALISATIONS:
        raise ClebschError(
            f"spherical_attention: normalise: expected one of {', '.join(NORMALISATIONS)}, got {normalise!r}"
        )
    for name, tensor, optional in (
        ("q", q, False), ("k", k, False), ("v", v, False), ("mask", mask, True), ("bias", bias, True),
        ("multiplicity", multiplicity, True), ("offsets", offsets, True),
    ):  # fmt: skip
        if not isinstance(tensor, torch.Tensor) and not (optional and tensor is None):
            raise ClebschError(f"spherical_attention: {name}: expected a tensor, got {type(tensor).__name__}")
    if mask is not None and mask.requires_grad:
        raise ClebschError(
            "spherical_attention: mask: expected a tensor without a gradient, got one that requires it: "
            "detach it, masks are not differentiated"
        )
    _library.begin_call("stream_attention")
    head_size = q.shape[-1] if q.dim() > 0 else 1
    numbers = float(eps), _scale(scale, normalise, max(head_size, 1)), NORMALISATIONS.index(normalise)
    if torch.compiler.is_compiling():
        return torch.ops.clebsch.stream_attention(q, k, v, multiplicity, offsets, mask, bias, *numbers)
    _library.refuse_tangents("stream_attention", q, k, v, multiplicity, bias)
    with _library.plain_errors():
        return torch.ops.clebsch.stream_attention(q, k, v, multiplicity, offsets, mask, bias, *numbers)
