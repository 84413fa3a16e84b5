"""Text forms of problems (src/core/problem) and flat weights in the order they define."""

from __future__ import annotations

import torch
from torch import Tensor

from ..irreps import Irreps
from .description import AllegroNetwork, Density, Gate, Layer, LinearMap, PairRepulsion, ProductLayer, Radial


def number(value: float) -> str:
    """Seventeen digits: the text gives back the same double."""
    return f"{value:.17g}"


def interaction(layer: Layer | ProductLayer | AllegroNetwork) -> str:
    """The problem of the op that holds a layer's radial functions."""
    return allegro(layer) if isinstance(layer, AllegroNetwork) else convolution(layer)


def allegro(value: AllegroNetwork) -> str:
    def widths(weights: list[Tensor]) -> str:
        return "-".join(str(n) for n in [weights[0].shape[-2], *(w.shape[-1] for w in weights)])

    return (
        f"allegro scalars={value.scalars} channels={value.channels} lmax={value.lmax} "
        f"tensors={';'.join(map(str, value.tensors))} latents={';'.join(map(widths, value.latents))} "
        f"readout={widths(value.readout)} basis={value.basis} "
        f"network={widths([value.pair_weights, *value.shared_weights])}"
    )


def convolution(layer: Layer | ProductLayer) -> str:
    paths = ";".join(f"uvu:{p.in1},{p.in2},{p.out},{number(p.coefficient)}" for p in layer.paths)
    return (
        f"conv in1={layer.irreps_in} in2={layer.irreps_harmonics} out={layer.irreps_mid} paths={paths} "
        f"radial={radial(layer.radial)}"
    )


def density(value: Density) -> str:
    """A sum of one radial function over the neighbours: a convolution of ones."""
    return f"conv in1=1x0e in2=1x0e out=1x0e paths=uvu:0,0,0,1 radial={radial(value.radial)}"


def radial(value: Radial) -> str:
    widths = [len(value.roots)] + [w.shape[1] for w in value.weights]
    parts = [value.basis, number(value.prefactor), number(value.cutoff_p), "-".join(map(str, widths))]
    parts.append("silu" if value.norms is None else "norm-silu")
    if value.transform is not None:
        parts.append(value.transform.name)
    parts += ["cutoff-last"] * value.cutoff_last + ["density"] * value.density
    return ",".join(parts)


def radial_basis(value: Radial) -> Tensor:
    """The `basis` tensor (src/torch/ops.schema): fp64."""
    if value.transform is None:
        return value.roots.clone()
    return torch.cat([value.roots, value.roots.new_tensor(value.transform.parameters), value.transform.radii])


def radial_network(value: Radial) -> Tensor:
    """The `network` tensor: all weights in the order of src/core/problem/problem.h, RadialDescription."""
    if value.norms is None:
        return torch.cat([w.flatten() for w in value.weights])
    parts = [value.norms.first, value.weights[0]]
    for weight, (factors, shifts, biases) in zip(value.weights[1:], value.norms.others, strict=True):
        parts += [factors, shifts, weight, biases]
    return torch.cat([p.flatten() for p in parts])


def gate(value: Gate) -> str:
    return (
        f"gate scalars={value.scalars} gates={value.gates} gated={value.gated} "
        f"silu={number(value.silu)} tanh={number(value.tanh)}"
        + ("" if value.sigmoid is None else f" sigmoid={number(value.sigmoid)}")
    )


def pair_repulsion(value: PairRepulsion) -> str:
    text = f"zbl p={number(value.cutoff_p)} scale={number(value.scale)}"
    return text if value.screening is None else f"{text} screening={','.join(map(number, value.screening))}"


def linear(value: LinearMap) -> tuple[str, Tensor]:
    """Problem text and flat weight (weight_count,), or (types, weight_count) for a typed map.

    The weight is the concatenation over the blocks of out.simplify() of [channels of that irrep in `in`][channels].
    """
    types = next((w.shape[0] for _, _, w in value.blocks if w.dim() == 3), None)
    in_rows = _rows(value.irreps_in)
    flat: list[Tensor] = []
    start = 0
    for merged in value.irreps_out.simplify():
        # Original blocks of `out` that this merged block is made of, in order.
        columns: list[Tensor] = []
        count = 0
        while count < merged.mul:
            block = value.irreps_out[start]
            columns.append(_column(value, start, block.mul, in_rows.get(merged.irrep, []), types))
            count += block.mul
            start += 1
        weight = torch.cat(columns, dim=-1)
        if weight.shape[-2] > 0:
            flat.append(weight.flatten(-2))
    text = f"linear in={value.irreps_in.simplify()} out={value.irreps_out.simplify()}"
    return text, torch.cat(flat, dim=-1)


def _rows(irreps: Irreps) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """irrep -> [(block, channels)] in order."""
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for index, block in enumerate(irreps):
        rows.setdefault(block.irrep, []).append((index, block.mul))
    return rows


def _column(value: LinearMap, out: int, mul: int, rows: list[tuple[int, int]], types: int | None) -> Tensor:
    """The (.., channels in, mul) matrix that feeds one block of `out`; absent pairs of blocks are zero."""
    prefix = () if types is None else (types,)
    parts = []
    for index, channels in rows:
        matrix = torch.zeros(*prefix, channels, mul, dtype=torch.float64)
        for a, b, weight in value.blocks:
            if (a, b) == (index, out):
                matrix = matrix + weight
        parts.append(matrix)
    return torch.cat(parts, dim=-2) if parts else torch.zeros(*prefix, 0, mul, dtype=torch.float64)
