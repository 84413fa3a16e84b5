"""The triangle multiplicative update as a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import ClebschError
from .update import precision_name, triangle_multiplicative_update

_PARTS = ("norm_in", "p_in", "g_in", "norm_out", "p_out", "g_out")


def outgoing(module: nn.Module) -> bool:
    """The direction of a module of OpenFold (`_outgoing`) or Boltz (its class's name)."""
    direction = getattr(module, "_outgoing", None)
    if direction is not None:
        return bool(direction)
    name = type(module).__name__
    if "Outgoing" in name or "Incoming" in name:
        return "Outgoing" in name
    raise ClebschError(f"expected a module of OpenFold or Boltz with a direction, got {name}")


def plain(module: nn.Module, part: str) -> nn.Module:
    """A layer of the module, of which the weight and bias are read and which is not called itself. Raises ClebschError
    for one that does more with its weight, such as an adapter."""
    inner = module._modules.get(part)
    if inner is not None and ("weight" in inner._parameters or parametrize.is_parametrized(inner, "weight")):
        return inner
    raise ClebschError(
        f"{type(module).__name__}: {part}: expected a layer whose weight is a parameter, got a {type(inner).__name__}: "
        "the kernels read weights and do not call layers; merge an adapter into the weight, or leave this module out"
    )


def eps_of(module: nn.Module, first: str, second: str) -> float:
    """That of both norms. Raises ClebschError where they differ."""
    a, b = (getattr(module._modules[part], "eps", 1e-5) for part in (first, second))
    if a != b:
        raise ClebschError(f"{type(module).__name__}: expected one eps of both norms, got {a} and {b}")
    return a


def openfold_weights(module: nn.Module) -> dict[str, Tensor | None]:
    """Weights of OpenFold's module by the names of :func:`triangle_multiplicative_update`; its fused one too."""

    fused = "linear_ab_p" in module._modules
    found: dict[str, Tensor | None] = {}
    for ours, theirs in (
        ("norm_in", ("layer_norm_in",)),
        ("p_in", ("linear_ab_p",) if fused else ("linear_a_p", "linear_b_p")),
        ("g_in", ("linear_ab_g",) if fused else ("linear_a_g", "linear_b_g")),
        ("norm_out", ("layer_norm_out",)),
        ("p_out", ("linear_z",)),
        ("g_out", ("linear_g",)),
    ):
        layers = [plain(module, part) for part in theirs]
        for kind in ("weight", "bias"):
            values = [getattr(layer, kind, None) for layer in layers]
            found[f"{ours}_{kind}"] = values[0] if len(values) == 1 or values[0] is None else torch.cat(values)
    return found


def boltz_weights(module: nn.Module) -> dict[str, Tensor | None]:
    """Weights of Boltz's module, or of ours, by the names of :func:`triangle_multiplicative_update`."""
    found = {}
    for part in _PARTS:
        inner = plain(module, part)
        found[f"{part}_weight"], found[f"{part}_bias"] = inner.weight, getattr(inner, "bias", None)
    return found


class TriangleMultiplicativeUpdate(nn.Module):
    """x (..., N, N, d), mask (..., N, N) or None to (..., N, N, out): :func:`triangle_multiplicative_update`.

    Parameters are norm_in, p_in, g_in, norm_out, p_out and g_out with weight and, with bias=True, bias (norms always
    have one): the names and shapes of Boltz, whose state_dict loads. The kernels read them and call none of these
    layers. As in AlphaFold gates start with zeros (bias ones) and p_out with zeros, so that a residual block starts as
    the identity.
    """

    def __init__(
        self,
        d: int,
        hidden: int | None = None,
        direction: str = "outgoing",
        gate: str = "after",
        bias: bool = False,
        out: int | None = None,
        eps: float = 1e-5,
        precision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        hidden = d if hidden is None else hidden
        out = d if out is None else out
        if direction not in ("outgoing", "incoming"):
            raise ClebschError(
                f"TriangleMultiplicativeUpdate: direction: expected outgoing or incoming, got {direction!r}"
            )
        if gate not in ("after", "before"):
            raise ClebschError(f"TriangleMultiplicativeUpdate: gate: expected after or before, got {gate!r}")
        precision_name(precision)
        self.direction, self.gate, self.eps, self.precision = direction, gate, eps, precision
        place = {"device": device, "dtype": dtype}
        self.norm_in = nn.LayerNorm(d, eps, **place)
        self.p_in = nn.Linear(d, 2 * hidden, bias, **place)
        self.g_in = nn.Linear(d, 2 * hidden, bias, **place)
        self.norm_out = nn.LayerNorm(hidden, eps, **place)
        self.p_out = nn.Linear(hidden, out, bias, **place)
        self.g_out = nn.Linear(d, hidden if gate == "before" else out, bias, **place)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in (self.norm_in, self.norm_out):
            part.reset_parameters()
        nn.init.trunc_normal_(self.p_in.weight, std=self.p_in.in_features**-0.5)
        for part in (self.g_in, self.g_out, self.p_out):
            nn.init.zeros_(part.weight)
        for part, start in ((self.p_in, 0.0), (self.g_in, 1.0), (self.g_out, 1.0), (self.p_out, 0.0)):
            if part.bias is not None:
                nn.init.constant_(part.bias, start)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return triangle_multiplicative_update(
            x,
            self.direction,
            mask,
            **boltz_weights(self),
            eps=self.eps,
            precision=self.precision,
            gate=self.gate,
        )

    def extra_repr(self) -> str:
        return f"direction={self.direction}, gate={self.gate}, precision={self.precision}"

    @classmethod
    def from_cuequivariance(
        cls,
        direction: str = "outgoing",
        eps: float = 1e-5,
        precision: str | None = None,
        gate: str = "after",
        **weights,
    ) -> TriangleMultiplicativeUpdate:
        """A module with copies of the tensors that cuequivariance_torch.triangle_multiplicative_update takes, given by
        its names (p_in_weight=... and so on). Norms that are left out are ones and zeros."""
        for name in ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight"):
            if weights.get(name) is None:
                raise ClebschError(
                    f"TriangleMultiplicativeUpdate: {name} is missing: only norms and biases may be left out"
                )
            if not isinstance(weights[name], Tensor) or weights[name].dim() != 2:
                got = tuple(weights[name].shape) if isinstance(weights[name], Tensor) else type(weights[name]).__name__
                raise ClebschError(f"TriangleMultiplicativeUpdate: {name}: expected a matrix, got {got}")
        p_in, p_out = weights["p_in_weight"], weights["p_out_weight"]
        bias = any(weights.get(f"{part}_bias") is not None for part in ("p_in", "g_in", "p_out", "g_out"))
        module = cls(
            p_in.shape[1], p_in.shape[0] // 2, direction, gate, bias, p_out.shape[0], eps, precision,
            device=p_in.device, dtype=p_in.dtype,
        )  # fmt: skip
        own = dict(boltz_weights(module))
        with torch.no_grad():
            for part in ("p_in", "g_in", "p_out", "g_out"):
                if own[f"{part}_bias"] is not None:
                    own[f"{part}_bias"].zero_()
            for name, value in weights.items():
                if name not in own:
                    raise ClebschError(f"TriangleMultiplicativeUpdate: expected one of {', '.join(own)}, got {name}")
                if value is None:
                    continue
                if own[name].shape != value.shape:
                    raise ClebschError(
                        f"TriangleMultiplicativeUpdate: {name}: expected {tuple(own[name].shape)}, got "
                        f"{tuple(value.shape)}"
                    )
                own[name].copy_(value)
        return module

    @classmethod
    def from_openfold(cls, module: nn.Module, precision: str | None = None) -> TriangleMultiplicativeUpdate:
        """A module with copies of the weights of an OpenFold TriangleMultiplicationOutgoing or -Incoming, fused or
        not."""
        return cls._from(module, openfold_weights(module), eps_of(module, "layer_norm_in", "layer_norm_out"), precision)

    @classmethod
    def from_boltz(cls, module: nn.Module, precision: str | None = None) -> TriangleMultiplicativeUpdate:
        """A module with copies of the weights of a Boltz TriangleMultiplicationOutgoing or -Incoming."""
        return cls._from(module, boltz_weights(module), eps_of(module, "norm_in", "norm_out"), precision)

    @classmethod
    def _from(cls, module: nn.Module, weights: dict, eps: float, precision: str | None):
        direction = "outgoing" if outgoing(module) else "incoming"
        return cls.from_cuequivariance(direction, eps, precision, **weights)
