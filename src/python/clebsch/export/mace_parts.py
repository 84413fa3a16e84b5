"""Reading the pieces of a MACE layer: e3nn linear maps, tensor product paths, the radial network, readouts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import coupling_sign
from ..errors import ExportRefused
from ..irreps import Irreps
from .description import Path
from .nequip_parts import linear_map, self_connection

__all__ = ["fp64", "linear_map", "mlp_weights", "paths_of", "readout_vector", "self_connection", "silu_constant"]


def fp64(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64).clone()


def paths_of(product: torch.nn.Module) -> tuple[Irreps, list[Path]]:
    """Output irreps (not simplified) and paths of `conv_tp`, in the order of the weights' columns.

    Upstream's edge vectors point from sender to receiver, ours the other way: harmonics of odd degree change sign. So
    do some couplings of e3nn 0.4.4 (coupling_sign.py).
    """
    first, second, out = (Irreps.parse(str(i)) for i in (product.irreps_in1, product.irreps_in2, product.irreps_out))
    paths = []
    for ins in product.instructions:
        if ins.connection_mode != "uvu" or not ins.has_weight:
            raise ExportRefused("conv_tp", f"expected weighted uvu paths, got {ins.connection_mode}")
        sign = -1.0 if second[ins.i_in2].l % 2 else 1.0
        sign *= coupling_sign.of_product(product, first[ins.i_in1].l, second[ins.i_in2].l, out[ins.i_out].l)
        paths.append(Path(ins.i_in1, ins.i_in2, ins.i_out, sign * float(ins.path_weight)))
    return out, paths


def mlp_weights(module: torch.nn.Module) -> list[Tensor]:
    """Weights (in, out) of e3nn's FullyConnectedNet, its normalisation and that of silu folded in; silu between."""
    weights = []
    factor = 1.0  # what normalises the activation before this layer
    for layer in module.children():
        act = getattr(layer, "act", None)
        scale = 1.0 / math.sqrt(float(layer.h_in) * float(layer.var_in))
        weights.append(fp64(layer.weight) * (factor * scale))
        if act is None:
            weights[-1] = weights[-1] * math.sqrt(float(layer.var_out))
            factor = 1.0
        else:
            factor = _silu_factor(act) * math.sqrt(float(layer.var_out))
    return weights


def silu_constant(activation: torch.nn.Module) -> float:
    """e3nn's normalize2mom constant of an Activation with silu alone."""
    return _silu_factor(activation.acts[0])


def _silu_factor(act: torch.nn.Module | None) -> float:
    """The constant, after checking by value that the function inside is silu."""
    if act is None:  # e3nn's word for no activation
        raise ExportRefused("gate", "expected silu, got None")
    probe = torch.linspace(-4.0, 4.0, 17, dtype=torch.float64)
    if not torch.allclose(act.f(probe), torch.nn.functional.silu(probe), rtol=1e-12, atol=1e-12):
        raise ExportRefused("gate", f"expected silu, got {getattr(act.f, '__name__', act.f)}")
    return 1.0 if act._is_id else float(act.cst)


def readout_vector(module: torch.nn.Module, irreps: Irreps, head: int) -> Tensor | None:
    """(channels, 1): the energy a LinearReadoutBlock reads from the even scalars; None for another class."""
    if type(module).__name__ != "LinearReadoutBlock":
        return None
    value = linear_map(module.linear)
    scalar = [(a, w) for a, _, w in value.blocks]
    if len(scalar) != 1 or value.irreps_in[scalar[0][0]].irrep != (0, 1):
        raise ExportRefused("readout", f"expected one block of even scalars, got {value.irreps_in} of {irreps}")
    return scalar[0][1][:, head : head + 1]
