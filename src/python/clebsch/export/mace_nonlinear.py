"""Reading RealAgnosticResidualNonLinearInteractionBlock: LayerNorm networks of ordered pairs, the gate of messages."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..errors import ExportRefused
from ..irreps import Block, Irreps
from .description import Density, Gate, GatedMessage, LinearMap, NormLayers, Radial
from .mace_parts import fp64, linear_map
from .mace_radial import Basis


def nonlinear_radial(interaction: torch.nn.Module, basis: Basis, kept: list[int]) -> Radial:
    """The radial functions of the convolution, a network for every ordered pair of the kept types."""
    return _radial(interaction.conv_tp_weights, interaction, basis, kept)


def nonlinear_density(interaction: torch.nn.Module, basis: Basis, kept: list[int]) -> Density:
    """message / (alpha + beta * density), both trained."""
    radial = replace(_radial(interaction.density_fn, interaction, basis, kept), density=True)
    return Density(radial, alpha=float(interaction.alpha), beta=float(interaction.beta))


def _radial(network: torch.nn.Module, interaction: torch.nn.Module, basis: Basis, kept: list[int]) -> Radial:
    """RadialMLP of [basis, embedding of the sender's type, embedding of the receiver's]: the embeddings' share of the
    first layer is a bias of the pair."""
    layers = list(network.net)
    linears, norms = layers[0::3], layers[1::3]
    for norm, activation in zip(norms, layers[2::3], strict=True):
        if type(norm).__name__ != "LayerNorm" or norm.eps != 1e-5 or type(activation).__name__ != "SiLU":
            raise ExportRefused("RadialMLP", "expected Linear, LayerNorm (eps 1e-5) and SiLU in turn")
    source, target = (_embedding(m, kept) for m in (interaction.source_embedding, interaction.target_embedding))
    first = fp64(linears[0].weight)
    functions, width = len(basis.roots), source.shape[1]
    of_source = source @ first[:, functions : functions + width].T
    of_target = target @ first[:, functions + width :].T
    pairs = of_target[:, None, :] + of_source[None, :, :] + fp64(linears[0].bias)  # [centre][neighbour]
    weights = [first[:, :functions].T.contiguous()] + [fp64(m.weight).T.contiguous() for m in linears[1:]]
    others = [
        (fp64(norm.weight), fp64(norm.bias), fp64(linear.bias)) for norm, linear in zip(norms, linears[1:], strict=True)
    ]
    return replace(basis.radial(weights), norms=NormLayers(pairs, others))


def _embedding(module: torch.nn.Module, kept: list[int]) -> Tensor:
    """(types, channels) of a Linear on one-hot types."""
    value = linear_map(module)
    return value.blocks[0][2][kept]


def gated_message(interaction: torch.nn.Module, linear_in: LinearMap, features: Irreps) -> GatedMessage:
    """What happens to the message after its normalisation; features: of x, which may go on behind linear_in's input."""
    module = interaction.equivariant_nonlin
    scalars, gates, gated = (
        Irreps.parse(str(i)) for i in (module.irreps_scalars, module.irreps_gates, module.irreps_gated)
    )
    if any(block.irrep != (0, 1) for block in scalars):
        raise ExportRefused("RealAgnosticResidualNonLinearInteractionBlock", f"expected even scalars, got {scalars}")
    _check_activation(module._act_scalar, torch.nn.functional.silu, "silu")
    if len(gated):
        _check_activation(module._act_gate, torch.sigmoid, "sigmoid")
    gate = Gate(scalars, gates, gated, float(module._scalar_cst), 1.0, float(module._gate_cst))
    residual = linear_map(interaction.linear_res)
    residual = _after(linear_in, LinearMap(residual.irreps_in, gate.irreps_in, split_columns(residual, gate)))
    last = linear_map(interaction.linear_2)
    return GatedMessage(
        residual=LinearMap(features, residual.irreps_out, residual.blocks),
        gate=gate,
        linear=LinearMap(gate.irreps_out, last.irreps_out, _same_order(last, gate.irreps_out)),
    )


def _check_activation(found, expected, name: str) -> None:
    probe = torch.linspace(-4.0, 4.0, 17, dtype=torch.float64)
    if not torch.allclose(found(probe), expected(probe), rtol=1e-12, atol=1e-12):
        raise ExportRefused("gate", f"expected {name} in RealAgnosticResidualNonLinearInteractionBlock")


def split_columns(value: LinearMap, gate: Gate) -> list[tuple[int, int, Tensor]]:
    """Blocks of a map into the sorted, simplified input of the gate as blocks into scalars + gates + gated."""
    blocks = []
    used: dict[tuple[int, int], int] = {}
    for position, target in enumerate(gate.irreps_in):
        start = used.get(target.irrep, 0)
        used[target.irrep] = start + target.mul
        blocks += [
            (a, position, weight[:, start : start + target.mul])
            for a, b, weight in value.blocks
            if value.irreps_out[b].irrep == target.irrep
        ]
    assert all(used[block.irrep] == block.mul for block in value.irreps_out), (used, value.irreps_out)
    return blocks


def _after(first: LinearMap, second: LinearMap) -> LinearMap:
    """second after first."""
    assert tuple(first.irreps_out) == tuple(second.irreps_in), (first.irreps_out, second.irreps_in)
    blocks = [(a, c, w1 @ w2) for a, b, w1 in first.blocks for b2, c, w2 in second.blocks if b == b2]
    return LinearMap(first.irreps_in, second.irreps_out, blocks)


def _same_order(value: LinearMap, irreps: Irreps) -> list[tuple[int, int, Tensor]]:
    """The blocks, after checking that the map's input is these irreps as they are."""
    own: tuple[Block, ...] = tuple(value.irreps_in)
    assert own == tuple(irreps), (own, irreps)
    return value.blocks
