"""The triangle multiplicative update as a function."""

from __future__ import annotations

import torch

from .. import multilinear_library as _library
from ..errors import ClebschError

_OP = "triangle_multiplicative_update"
_DIRECTIONS = ("outgoing", "incoming")
_GATES = ("after", "before")
_PRECISIONS = ("ieee", "tf32", "tf32x3", "fp16", "bf16")
_OF_TYPE = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_NAMES = tuple(
    f"{part}_{kind}"
    for part in ("norm_in", "p_in", "g_in", "norm_out", "p_out", "g_out")
    for kind in ("weight", "bias")
)


def _setup(ctx, inputs, output) -> None:
    x, mask, weights, *ctx.settings, ctx.keep = inputs
    _, left, right, o = output
    ctx.mark_non_differentiable(left, right, o)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, mask, left, right, o, *weights)


def _backward(ctx, grad, *_):
    of_x, of_mask, of_weights = ctx.needs_input_grad[:3]
    grad_x, grad_mask, grads = _gradients(ctx, grad, of_x, of_mask, of_weights)
    return grad_x, grad_mask, grads, *[None] * 6


def _gradients(ctx, grad, of_x: bool, of_mask: bool, of_weights: list[bool]) -> tuple:
    """Of x, of mask, and of every weight that is there; None where it is not wanted."""
    x, mask, left, right, o, *weights = ctx.saved_tensors
    if grad is None:
        return None, None, [None] * len(weights)
    if not ctx.keep:
        raise ClebschError(f"{_OP}: its gradient needs keep=True in the forward pass")
    given, *settings = ctx.settings
    wanted, next_weight = int(of_x) | int(of_mask) << 1, iter(of_weights)
    for at in range(len(_NAMES)):
        if given >> at & 1:
            wanted |= int(next(next_weight)) << (at + 2)
    grad_x, grad_mask, grads = torch.ops.clebsch.triangle_multiplicative_update_backward(
        grad, x, mask, weights, given, left, right, o, *settings, wanted
    )
    return (
        grad_x if of_x else None,
        grad_mask if of_mask else None,
        [g if wants else None for g, wants in zip(grads, of_weights, strict=True)],
    )


class _Eager(torch.autograd.Function):
    """What register_autograd makes of the op, without its search through arguments: that outlasts small kernels."""

    @staticmethod
    def forward(ctx, settings, x, mask, *weights):
        with torch._C._AutoDispatchBelowAutograd():
            out, left, right, o = torch.ops.clebsch.triangle_multiplicative_update(
                x, mask, list(weights), *settings, True
            )
        ctx.settings, ctx.keep = settings, True
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, mask, left, right, o, *weights)
        return out

    @staticmethod
    def backward(ctx, grad):
        _, of_x, of_mask, *of_weights = ctx.needs_input_grad
        if torch.is_grad_enabled():  # the gradient's own, which is refused there
            grad_x, grad_mask, grads = _gradients(ctx, grad, of_x, of_mask, of_weights)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                grad_x, grad_mask, grads = _gradients(ctx, grad, of_x, of_mask, of_weights)
        return None, grad_x, grad_mask, *grads


def _setup_second(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)


def _backward_second(ctx, *grads):
    raise ClebschError(
        f"{_OP}: second derivatives are not implemented; {_OP}_reference has them, at torch's memory and speed"
    )


_library.add_derivatives(
    {
        _OP: (_setup, _backward),
        f"{_OP}_backward": (_setup_second, _backward_second),
    }
)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ClebschError(f"{_OP}: {name}: expected {' or '.join(known)}, got {value!r}")


def _autocast_type(x: torch.Tensor) -> torch.dtype | None:
    kind = x.device.type
    if x.dtype == torch.float64 or kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def precision_name(precision: object) -> str | None:
    """The precision as the op has it, None for that of the data. Raises ClebschError for what is none."""
    name = getattr(precision, "name", precision)  # cuEquivariance has an enum
    name = name.lower() if isinstance(name, str) else name
    if name is None or name in ("default", "none"):
        return None
    _one_of("precision", name, _PRECISIONS)
    return name


def _mask(mask: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """As the op takes it: of booleans or of the type of sums, and of x's rows."""
    if mask is None:
        return None
    if not isinstance(mask, torch.Tensor):
        raise ClebschError(f"{_OP}: mask: expected a tensor, got {type(mask).__name__}")
    if mask.dtype != torch.bool:
        mask = mask.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    if mask.shape != x.shape[:-1]:
        try:
            mask = mask.expand(x.shape[:-1])
        except RuntimeError:
            raise ClebschError(
                f"{_OP}: mask must be (..., N, N) = {tuple(x.shape[:-1])} as x, or broadcast to it, got "
                f"{tuple(mask.shape)}"
            ) from None
    return mask


def _plain_weights(names: tuple[str, ...], weights: tuple) -> tuple[list[torch.Tensor], int]:
    """Those that are there, of one dtype, and the bits of their places."""
    given, found = 0, []
    for at, (name, weight) in enumerate(zip(names, weights, strict=True)):
        if weight is None:
            if name in ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight"):
                raise ClebschError(f"{_OP}: {name} is missing: only norms and biases may be left out")
            continue
        if not isinstance(weight, torch.Tensor):
            raise ClebschError(f"{_OP}: {name}: expected a tensor, got {type(weight).__name__}")
        given |= 1 << at
        found.append(weight)
    kind = found[0].dtype
    if any(weight.dtype != kind for weight in found):
        for weight in found:
            if weight.dtype not in (torch.float32, torch.float16, torch.bfloat16):
                return found, given  # the op says what is wrong
        found = [weight.float() for weight in found]
    return found, given


def triangle_multiplicative_update(
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
    precision: str | None = None,
    gate: str = "after",
) -> torch.Tensor:
    """The triangle multiplicative update of a pair tensor x (..., N, N, D); returns (..., N, N, D_out) of x's dtype.

    ::

        xn = norm(x);  [l | r] = mask (xn p_in^T) sigmoid(xn g_in^T)
        o[i, j] = sum_k l[i, k] r[j, k]  (outgoing),  sum_k l[k, i] r[k, j]  (incoming), for each of H channels
        out = (norm(o) p_out^T) sigmoid(xn g_out^T)    gate="after": AlphaFold, OpenFold, Boltz, cuEquivariance
        out = (norm(o) sigmoid(xn g_out^T)) p_out^T    gate="before": the TriMul leaderboard

    mask (..., N, N), booleans or numbers, may broadcast; 0 selects 0, whatever x is there. norm_in (D), p_in and g_in
    (2 H, D) with the left operand's rows first, norm_out (H), p_out (D_out, H), g_out (D_out, D), or (H, D) before the
    projection; biases of all, and weights of the norms, may be left out. x and weights are float32, float16 or
    bfloat16, not necessarily the same, or float64 all of them. On a GPU D, H and D_out are multiples of 16.

    precision of the products: "ieee", "tf32", "tf32x3" (two TF32 terms an operand), "fp16", "bf16"; None: autocast's
    dtype where it is on, else the 16-bit dtype that x has, else "ieee". Sums are in 32 bits, or in 64 for float64. The
    CPU rounds only l, r and o to 16 bits. Under autocast the result has its dtype.

    Gradients for x, a mask of numbers and every weight; none of second order, in forward mode or inside torch.func.
    """
    _one_of("direction", direction, _DIRECTIONS)
    _one_of("gate", gate, _GATES)
    if not isinstance(x, torch.Tensor):
        raise ClebschError(f"{_OP}: x: expected a tensor, got {type(x).__name__}")
    if x.dim() < 3:
        raise ClebschError(f"{_OP}: x must be (..., N, N, D), got {tuple(x.shape)}")
    weights, given = _plain_weights(
        _NAMES,
        (
            norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias,
            norm_out_weight, norm_out_bias, p_out_weight, p_out_bias, g_out_weight, g_out_bias,
        ),
    )  # fmt: skip
    autocast = _autocast_type(x)
    how = precision_name(precision) or _OF_TYPE.get(autocast or x.dtype, "ieee")
    mask = _mask(mask, x)
    _library.begin_call(_OP)
    keep = torch.is_grad_enabled() and (
        x.requires_grad or (mask is not None and mask.requires_grad) or any(weight.requires_grad for weight in weights)
    )
    settings = (given, direction == "incoming", gate == "before", float(eps), how)
    if torch.compiler.is_compiling():
        out = torch.ops.clebsch.triangle_multiplicative_update(x, mask, weights, *settings, keep)[0]
    else:
        _library.refuse_tangents(_OP, x, mask, *weights)
        with _library.plain_errors():
            if keep:
                out = _Eager.apply(settings, x, mask, *weights)
            else:
                with torch._C._AutoDispatchBelowAutograd():
                    out = torch.ops.clebsch.triangle_multiplicative_update(x, mask, weights, *settings, False)[0]
    return out if autocast is None else out.to(autocast)
