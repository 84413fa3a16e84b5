"""Spherical attention over sequences, in linear time."""

from __future__ import annotations

import torch

from .. import multilinear_library as _library
from ..errors import ClebschError
from .stream import stream_attention

METHODS = ("auto", "linear", "stream")


def spherical_attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    multiplicity: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    eps: float = 0.0,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What :func:`spherical_attention` computes, from the formula by torch: quadratic in time and memory, any order of
    derivatives. A query whose norm is 0 gets zeros, without a gradient."""
    if offsets is not None:
        ends = offsets.tolist()
        runs = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        parts = [
            spherical_attention_reference(
                q[:, :, run],
                k[:, :, run],
                v[:, :, run],
                None if multiplicity is None else multiplicity[:, run],
                eps=eps,
                causal=causal,
            )
            for run in runs
        ]
        if not parts:
            return q.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_zeros(q.shape[:-1])
        return torch.cat([out for out, _ in parts], 2), torch.cat([norm for _, norm in parts], 2)
    if multiplicity is not None:
        k = k * multiplicity[:, None, :, None]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2)
    if causal:
        scores = scores.tril()
    square = scores.square().sum(-1) + eps
    some = square > 0
    norm = torch.where(some, torch.where(some, square, torch.ones_like(square)).sqrt(), torch.zeros_like(square))
    inverse = torch.where(some, 1 / torch.where(some, norm, torch.ones_like(norm)), torch.zeros_like(norm))
    return (scores @ v) * inverse[..., None], norm


def _setup(ctx, inputs, output) -> None:
    q, k, v, multiplicity, offsets, eps, causal, _ = inputs
    out, norm, sums = output
    ctx.mark_non_differentiable(sums)
    ctx.set_materialize_grads(False)
    ctx.eps, ctx.causal = eps, causal
    ctx.save_for_backward(q, k, v, multiplicity, offsets, out, norm, sums)


def _backward(ctx, grad, grad_norm, _):
    q, k, v, multiplicity, offsets, out, norm, sums = ctx.saved_tensors
    if grad is None and grad_norm is None:
        return (None,) * 8
    grad = torch.zeros_like(out) if grad is None else grad
    found = torch.ops.clebsch.spherical_attention_backward(
        grad, grad_norm, q, k, v, multiplicity, offsets, out, norm, sums, ctx.eps, ctx.causal
    )
    return *found[:3], None if multiplicity is None else found[3], None, None, None, None


def _setup_second(ctx, inputs, output) -> None:
    grad, grad_norm, q, k, v, multiplicity, offsets, _, _, _, ctx.eps, ctx.causal = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad, grad_norm, q, k, v, multiplicity, offsets)


def _backward_second(ctx, *grads):
    """Of the first gradient as a function of grad, q, k, v and multiplicity: composed of torch's operations. What the
    forward pass left (out, norm, sums) depends on them and gets no gradient of its own."""
    grad, grad_norm, q, k, v, multiplicity, offsets = ctx.saved_tensors
    saved = [grad, grad_norm, q, k, v, multiplicity]
    with torch.enable_grad():
        places = [at for at, x in enumerate(saved) if x is not None]
        x = [None if s is None else s.detach().requires_grad_() for s in saved]
        out, norm = _linear(x[2], x[3], x[4], x[5], offsets, ctx.eps, ctx.causal)
        of_both = (out * x[0]).sum() if x[1] is None else (out * x[0]).sum() + (norm * x[1]).sum()
        variables = [s for s in x[2:] if s is not None]
        first = torch.autograd.grad(of_both, variables, create_graph=True)
        used = [(f, g) for f, g in zip(first, grads, strict=False) if g is not None]
        if not used:
            return (None,) * 12
        second = torch.autograd.grad(
            [f for f, _ in used], [x[at] for at in places], [g for _, g in used], allow_unused=True
        )
    result = [None] * 12
    for at, value in zip(places, second, strict=True):
        result[at] = value
    return tuple(result)


def _linear(q, k, v, multiplicity, offsets, eps, causal):
    """The linear form by torch, in double precision; differentiable any number of times."""
    kind = q.dtype
    q, k, v = q.double(), k.double(), v.double()
    multiplicity = None if multiplicity is None else multiplicity.double()
    if offsets is not None:
        ends = offsets.tolist()
        parts = []
        for a, b in zip(ends[:-1], ends[1:], strict=True):
            m = None if multiplicity is None else multiplicity[:, a:b]
            parts.append(_linear(q[:, :, a:b], k[:, :, a:b], v[:, :, a:b], m, None, eps, causal))
        out, norm = (torch.cat([part[at] for part in parts], 2) for at in range(2))
    else:
        if multiplicity is not None:
            k = k * multiplicity[:, None, :, None]
        group = q.shape[1] // k.shape[1]
        if causal:
            q, k, v, length = *_in_chunks(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)), q.shape[2]
            sums = k.transpose(-1, -2) @ torch.cat((k, v), -1)
            both = torch.nn.functional.pad(sums[:, :, :-1], (0, 0, 0, 0, 1, 0)).cumsum(-3)
            scores = (q @ k.transpose(-1, -2)).tril()
            seen = k.square().sum(-1).cumsum(-1)
        else:
            both = (k.transpose(-1, -2) @ torch.cat((k, v), -1)).repeat_interleave(group, 1)
            scores, seen = None, 0.0
        gram, values = both.split((k.shape[-1], v.shape[-1]), -1)
        z = ((q @ gram) * q).sum(-1)
        out = q @ values
        if causal:
            z = z + scores.square().sum(-1)
            out = out + scores @ v
        # As the kernels: what is rounding counts as nothing.
        nothing = 3.6e-15 * (gram.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) + seen) * q.square().sum(-1)
        z = torch.where(z <= nothing, torch.zeros_like(z), z) + eps
        some = z > 0
        norm = torch.where(some, z, torch.ones_like(z)).sqrt()
        out = out * torch.where(some, 1 / norm, torch.zeros_like(norm))[..., None]
        norm = torch.where(some, norm, torch.zeros_like(norm))
        if causal:
            out, norm = out.flatten(2, 3)[:, :, :length], norm.flatten(2, 3)[:, :, :length]
    return out.to(kind), norm.to(torch.float64 if kind == torch.float64 else torch.float32)


def _in_chunks(*tensors, rows: int = 64):
    """(batch, heads, N, d) to (batch, heads, chunks, rows, d), with zeros behind the last row."""
    length = tensors[0].shape[2]
    chunks = max(1, -(-length // rows))
    padded = [torch.nn.functional.pad(x, (0, 0, 0, chunks * rows - length)) for x in tensors]
    return [x.unflatten(2, (chunks, rows)) for x in padded]


_library.add_derivatives(
    {
        "spherical_attention": (_setup, _backward),
        "spherical_attention_backward": (_setup_second, _backward_second),
    }
)


def spherical_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    multiplicity: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    eps: float = 0.0,
    method: str = "auto",
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``out_i = sum_j s_ij v_j / norm_i``, ``norm_i = sqrt(sum_j s_ij^2 + eps)``, ``s_ij = m_j q_i . k_j``.

    q (B, H, Nq, d), k (B, Hk, N, d), v (B, Hk, N, dv) of one dtype (float64, float32, float16, bfloat16) on one device,
    Hk divides H: query head h reads key head ``h // (H / Hk)``; d and dv up to 256. multiplicity (B, N) of the same
    dtype scales keys; 0 leaves a key out. offsets (S + 1,) int32, for sequences of different lengths: then B = 1,
    N = Nq, and rows offsets[s] to offsets[s + 1] attend to one another; they are checked on the CPU and trusted on a
    GPU. Returns out (B, H, Nq, dv) of q's dtype and norm (B, H, Nq), float64 for float64 and else float32. Both have
    gradients, and second ones. Where the norm is 0 (eps = 0, no key that the query sees), out and gradients are 0.

    causal: query i sees the keys j <= i of its sequence (N = Nq).

    Time is O(N d (d + dv)), causal too: the weights pass no nonlinearity but the norm, so they are never formed. A mask
    and a bias for every pair make the weights ``mask_ij (s_ij + bias_ij)`` and the time O(Nq N (d + dv)), without
    quadratic memory (:func:`clebsch.attention.stream_attention`). method: "linear", "stream", or "auto", which streams
    where a mask or a bias is given.
    """
    if method not in METHODS:
        raise ClebschError(f"spherical_attention: method: expected one of {', '.join(METHODS)}, got {method!r}")
    if method == "stream" or (method == "auto" and (mask is not None or bias is not None)):
        if causal:
            raise ClebschError("spherical_attention: causal=True is linear; with method=stream pass a mask")
        return stream_attention(q, k, v, multiplicity, offsets, eps, mask, bias)
    if mask is not None or bias is not None:
        raise ClebschError(
            "spherical_attention: method=linear cannot take a mask or bias a pair; use method=stream, or leave keys "
            "out with multiplicity 0"
        )
    for name, tensor in (("q", q), ("k", k), ("v", v), ("multiplicity", multiplicity), ("offsets", offsets)):
        optional = name in ("multiplicity", "offsets") and tensor is None
        if not optional and not isinstance(tensor, torch.Tensor):
            raise ClebschError(f"spherical_attention: {name}: expected a tensor, got {type(tensor).__name__}")
    _library.begin_call("spherical_attention")
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, multiplicity))
    given = q, k, v, multiplicity, offsets, float(eps), bool(causal), keep
    if torch.compiler.is_compiling():
        out, norm, _ = torch.ops.clebsch.spherical_attention(*given)
        return out, norm
    _library.refuse_tangents("spherical_attention", q, k, v, multiplicity)
    with _library.plain_errors():
        if keep and torch.ops.clebsch.spherical_attention_makes_sums_again(q, k, v, offsets):
            given = *given[:-1], False
        out, norm, _ = torch.ops.clebsch.spherical_attention(*given)
    return out, norm
