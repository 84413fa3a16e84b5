"""Attention over the edges of a graph: signed weights, weights of unit length, or softmax."""

from __future__ import annotations

import torch

from .. import multilinear_library as _library
from ..errors import ClebschError
from .edge_rows import EdgeRows

NORMALISATIONS = ("none", "l2", "softmax")
#: Where a receiver's weights fade as its last neighbour leaves: docs/attention.md says how it was chosen.
EPS = 1e-2


def graph_attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None,
    senders: torch.Tensor,
    receivers: torch.Tensor,
    envelope: torch.Tensor | None = None,
    normalise: str = "l2",
    eps: float = EPS,
    scale: float | None = None,
) -> torch.Tensor:
    """What :func:`graph_attention` computes, from the formula by torch: with the scores of all pairs, an edge or not,
    and any order of derivatives. Several edges between two nodes are not told apart from one, so there may be none."""
    v = k if v is None else v
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = _scale(normalise, scale, q.shape[2]) * torch.einsum("rhd,shd->hrs", q, k)
    f = torch.ones(senders.shape[0], dtype=q.dtype, device=q.device) if envelope is None else envelope
    factors = torch.zeros(q.shape[0], k.shape[0], dtype=q.dtype, device=q.device)
    factors = factors.index_put((receivers.long(), senders.long()), f)
    if normalise == "softmax":
        seen = torch.zeros_like(factors).index_put((receivers.long(), senders.long()), torch.ones_like(f)) > 0
        weights = factors * torch.where(seen, scores, torch.zeros_like(scores)).exp()
        divisor = weights.sum(-1) + eps
    else:
        weights = factors * scores
        square = weights.square().sum(-1) + eps
        some = square > 0
        divisor = torch.where(some, torch.where(some, square, torch.ones_like(square)).sqrt(), torch.zeros_like(square))
    out = torch.einsum("hrs,shv->rhv", weights, v)
    if normalise == "none":
        return out
    some = (divisor > 0).T[..., None]
    divisor = divisor.T[..., None]
    return torch.where(some, out / torch.where(some, divisor, torch.ones_like(divisor)), torch.zeros_like(out))


def _scale(normalise: str, scale: float | None, d: int) -> float:
    return float(scale) if scale is not None else 1.0 if normalise == "none" else d**-0.5


# Autograd of the op: the gradient is a kernel, and its own gradient is composed of dot products and sums over edges,
# each of which is differentiated into the others.
def _setup(ctx, inputs, output) -> None:
    q, k, v, envelope, row_ptr, senders, col_ptr, col_edge, col_receivers, *ctx.numbers = inputs
    out, norm = output
    ctx.mark_non_differentiable(norm)
    ctx.save_for_backward(q, k, v, envelope, row_ptr, senders, col_ptr, col_edge, col_receivers, out, norm)


def _backward(ctx, grad, _):
    q, k, v, envelope, *rows, out, norm = ctx.saved_tensors
    wanted = envelope is not None and ctx.needs_input_grad[3]
    found = torch.ops.clebsch.graph_attention_backward(grad, q, k, v, envelope, *rows, out, norm, *ctx.numbers, wanted)
    return *found[:2], None if v is None else found[2], found[3] if wanted else None, *[None] * 8


def _setup_second(ctx, inputs, output) -> None:
    grad, q, k, v, envelope, *rows = inputs
    *rows, _, norm, normalise, eps, scale, wanted = rows
    ctx.numbers = normalise, eps, scale, wanted
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad, q, k, v, envelope, *rows, norm)


def _backward_second(ctx, *grads):
    """Of the first gradient as a function of grad, q, k, v and the envelope. What the forward pass left depends on them
    and gets no gradient of its own."""
    grad, q, k, v, envelope, *rows, norm = ctx.saved_tensors
    normalise, eps, scale, wanted = ctx.numbers
    saved = [grad, q, k, v, envelope]
    real = torch.float64 if q.dtype == torch.float64 else torch.float32
    with torch.enable_grad():
        x = [None if s is None else s.detach().to(real).requires_grad_() for s in saved]
        out = _composed(*x[1:], rows, norm, normalise, eps, scale)
        variables = [x[1], x[2], x[3], x[4] if wanted else None]
        pairs = [(s, g) for s, g in zip(variables, grads, strict=True) if s is not None and g is not None]
        if not pairs:
            return (None,) * 16
        first = torch.autograd.grad((out * x[0]).sum(), [s for s, _ in pairs], create_graph=True)
        places = [at for at, s in enumerate(x) if s is not None]
        second = torch.autograd.grad(first, [x[at] for at in places], [g.to(real) for _, g in pairs], allow_unused=True)
    result = [None] * 16
    for at, value in zip(places, second, strict=True):
        result[at] = None if value is None else value.to(saved[at].dtype)
    return tuple(result)


def _composed(q, k, v, envelope, rows, norm, normalise, eps, scale):
    """The op by dot products and sums over edges."""
    v = k if v is None else v
    heads = q.shape[1]
    scores = scale * torch.ops.clebsch.graph_dots(q, k, *rows)
    one = torch.ones(k.shape[0], 1, 1, dtype=q.dtype, device=q.device)

    def sum_of(weights, values):
        return torch.ops.clebsch.graph_sums(weights, values, *rows, heads, False)

    if NORMALISATIONS[normalise] == "softmax":
        # The logarithm of the sum is a constant that numerator and divisor share.
        shift = torch.ops.clebsch.graph_dots(norm.detach()[..., None], one, *rows)
        exponents = scores - shift
        if envelope is None:
            weights = exponents.exp()
        else:
            # An edge that the envelope all but hides may have a score whose exponential is infinite.
            f = envelope[:, None]
            some = f > 0
            seen = torch.where(some, exponents, torch.zeros_like(exponents))
            seen = (seen + torch.where(some, f, torch.ones_like(f)).log()).exp()
            weights = torch.where(some, seen, f * exponents.clamp(max=80).exp())
        divisor = sum_of(weights, one) + eps * (-norm.detach()[..., None]).exp()
    else:
        weights = scores if envelope is None else scores * envelope[:, None]
        if NORMALISATIONS[normalise] == "none":
            return sum_of(weights, v)
        square = sum_of(weights.square(), one) + eps
        some = square > 0
        divisor = torch.where(some, square, torch.ones_like(square)).sqrt()
        divisor = torch.where(some, divisor, torch.zeros_like(divisor))
    some = divisor > 0
    return sum_of(weights, v) * torch.where(some, 1 / torch.where(some, divisor, torch.ones_like(divisor)), 0.0)


def _setup_dots(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward_dots(ctx, grad):
    a, b, *rows = ctx.saved_tensors
    of_a, of_b = ctx.needs_input_grad[:2]
    return (
        torch.ops.clebsch.graph_sums(grad, b, *rows, a.shape[1], False) if of_a else None,
        torch.ops.clebsch.graph_sums(grad, a, *rows, b.shape[1], True) if of_b else None,
        *[None] * 5,
    )


def _setup_sums(ctx, inputs, output) -> None:
    *tensors, ctx.heads, ctx.transposed = inputs
    ctx.save_for_backward(*tensors)


def _backward_sums(ctx, grad):
    weights, x, *rows = ctx.saved_tensors
    # Dot products have the heads of the weights: those of the receivers' side.
    ends = (x, grad) if ctx.transposed else (grad, x)
    of_weights, of_x = ctx.needs_input_grad[:2]
    return (
        torch.ops.clebsch.graph_dots(*ends, *rows) if of_weights else None,
        torch.ops.clebsch.graph_sums(weights, grad, *rows, x.shape[1], not ctx.transposed) if of_x else None,
        *[None] * 7,
    )


_library.add_derivatives(
    {
        "graph_attention": (_setup, _backward),
        "graph_attention_backward": (_setup_second, _backward_second),
        "graph_dots": (_setup_dots, _backward_dots),
        "graph_sums": (_setup_sums, _backward_sums),
    }
)


def graph_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None = None,
    senders: torch.Tensor | None = None,
    receivers: torch.Tensor | None = None,
    envelope: torch.Tensor | None = None,
    normalise: str = "l2",
    eps: float = EPS,
    scale: float | None = None,
    rows: EdgeRows | None = None,
) -> torch.Tensor:
    """Each receiver's sum over its edges of the senders' values, weighted by ``s_e = scale q_r . k_s``, f_e an
    envelope::

        none:     out_r = sum_e f_e s_e v_s
        l2:       out_r = sum_e f_e s_e v_s / sqrt(sum_e (f_e s_e)^2 + eps)
        softmax:  out_r = sum_e f_e exp(s_e) v_s / (sum_e f_e exp(s_e) + eps)

    q (n_receivers, H, d), k (n_senders, Hk, d), v (n_senders, Hk, dv), or without the axis of heads; of one dtype
    (float64, float32, float16, bfloat16) on one device; Hk divides H: query head h reads key head ``h // (H / Hk)``;
    d and dv up to 512. v None, or k itself: values are the keys, and each is read once. senders, receivers (E,) int32
    or int64 in any order; or ``rows``, an :class:`EdgeRows` made of them, which spares a call sorting and checking
    (and on a GPU a wait). envelope (E,), in the order of the edges given, of q's dtype or, for 16-bit numbers, of
    float32; not negative where softmax is taken. Returns out (n_receivers, H, dv) of q's dtype; receivers without
    edges get zeros. eps, not negative: with more than 0, as is the default, out is as smooth as the envelope where a
    receiver's last neighbour leaves. scale: 1 for none, else ``d ** -0.5``.

    Gradients of q, k, v and the envelope, and second ones; sums have a fixed order. Raises ClebschError.
    """
    if normalise not in NORMALISATIONS:
        raise ClebschError(
            f"graph_attention: normalise: expected one of {', '.join(NORMALISATIONS)}, got {normalise!r}"
        )
    tensors = [("q", q), ("k", k)] + ([] if v is None else [("v", v)])
    for name, tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ClebschError(f"graph_attention: {name}: expected a tensor, got {type(tensor).__name__}")
        if tensor.dim() != q.dim() or tensor.dim() not in (2, 3):
            raise ClebschError(
                f"graph_attention: {name}: expected (nodes, heads, d), or (nodes, d) for one head and then of all, got "
                f"{tuple(tensor.shape)}"
            )
    v = None if v is k else v
    plain = q.dim() == 2
    if plain:
        q, k, v = q[:, None], k[:, None], None if v is None else v[:, None]
    if rows is None:
        if senders is None or receivers is None:
            raise ClebschError("graph_attention: expected senders and receivers, or rows=EdgeRows(...)")
        rows = EdgeRows(senders, receivers, q.shape[0], k.shape[0])
    elif senders is not None or receivers is not None:
        raise ClebschError("graph_attention: expected senders and receivers or rows, got both")
    if (rows.n_receivers, rows.n_senders) != (q.shape[0], k.shape[0]):
        raise ClebschError(
            f"graph_attention: rows: expected edges from {k.shape[0]} senders to {q.shape[0]} receivers, as k and q "
            f"have rows, got {rows.n_senders} and {rows.n_receivers}"
        )
    if envelope is not None:
        if not isinstance(envelope, torch.Tensor):
            raise ClebschError(f"graph_attention: envelope: expected a tensor, got {type(envelope).__name__}")
        if envelope.dtype == q.dtype and q.dtype in (torch.float16, torch.bfloat16):
            envelope = envelope.float()
        if envelope.shape == (rows.n_edges,):
            envelope = rows.sorted(envelope)
    _library.begin_call("graph_attention")
    differentiated = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, envelope))
    by_sender = (rows.col_ptr, rows.col_edge, rows.col_receivers) if differentiated else (None,) * 3
    arguments = (
        q, k, v, envelope, rows.row_ptr, rows.senders, *by_sender, NORMALISATIONS.index(normalise), float(eps),
        _scale(normalise, scale, q.shape[2]),
    )  # fmt: skip
    if torch.compiler.is_compiling():
        out, _ = torch.ops.clebsch.graph_attention(*arguments)
    else:
        _library.refuse_tangents("graph_attention", q, k, v, envelope)
        with _library.plain_errors():
            out, _ = torch.ops.clebsch.graph_attention(*arguments)
    return out[:, 0] if plain else out
