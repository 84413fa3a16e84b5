"""Slow reference of every op of src/torch/ops.schema in plain torch: the exact path, differentiable, no tables.

Written from the schema's comments and e3nn alone, so that an export can be judged without libclebsch, and libclebsch
without its own code.
"""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace

import torch
from e3nn import o3
from torch import Tensor

from clebsch.irreps import Irreps


def layout(irreps: Irreps) -> list[tuple[int, int, int]]:
    """(offset, stride, mul) of every block in the channel-fastest layout (src/core/math/irreps.h)."""
    places, start, i = [], 0, 0
    blocks = list(irreps)
    while i < len(blocks):
        j = i
        while j < len(blocks) and blocks[j].irrep == blocks[i].irrep:
            j += 1
        stride = sum(b.mul for b in blocks[i:j])
        offset = start
        for b in blocks[i:j]:
            places.append((offset, stride, b.mul))
            offset += b.mul
        start += stride * (2 * blocks[i].l + 1)
        i = j
    return places


def block(x: Tensor, irreps: Irreps, index: int) -> Tensor:
    """(rows, 2l+1, mul) of one block."""
    offset, stride, mul = layout(irreps)[index]
    parts = [x[:, offset + m * stride : offset + m * stride + mul] for m in range(2 * irreps[index].l + 1)]
    return torch.stack(parts, dim=1)


def assemble(blocks: list[Tensor], irreps: Irreps, rows: int, like: Tensor) -> Tensor:
    """The inverse of block(): columns in layout order."""
    out = like.new_zeros(rows, irreps.dim)
    columns, values = [], []
    for index, value in enumerate(blocks):
        offset, stride, mul = layout(irreps)[index]
        for m in range(2 * irreps[index].l + 1):
            columns.append(torch.arange(offset + m * stride, offset + m * stride + mul))
            values.append(value[:, m])
    if not columns:
        return out
    return out.index_add(1, torch.cat(columns), torch.cat(values, dim=1))


@cache
def fields(problem: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in problem.split(" ")[1:] if part)


@cache
def w3j(l1: int, l2: int, l3: int) -> Tensor:
    return o3.wigner_3j(l1, l2, l3, dtype=torch.float64)


def edges(graph: list[Tensor], layer: int) -> Tensor:
    """Ids of the edges of computed rows."""
    count = int(graph[0][-1])
    rows = int(graph[5][layer]) if layer >= 0 else graph[0].numel() - 1
    return torch.nonzero(graph[2][:count] < rows).flatten()


def keep_rows(x: Tensor, graph: list[Tensor], layer: int) -> Tensor:
    if layer < 0:
        return x
    mask = torch.arange(x.shape[0]) < int(graph[5][layer])
    return torch.where(mask[:, None], x, torch.zeros_like(x))


def cutoff(x: Tensor, p: float) -> Tensor:
    f = 1 - (p + 1) * (p + 2) / 2 * x**p + p * (p + 2) * x ** (p + 1) - p * (p + 1) / 2 * x ** (p + 2)
    return f * (x < 1)


def layers_of(h: Tensor, network: Tensor, sizes: list[int]) -> Tensor:
    """A network without biases, silu between its layers, whose matrices [in][out] lie one after the other."""
    start = 0
    for k, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
        if k:
            h = torch.nn.functional.silu(h)
        h = h @ network[start : start + a * b].reshape(a, b)
        start += a * b
    assert start == network.numel()
    return h


def bessel(x: Tensor, roots: Tensor, prefactor: str, p: str) -> Tensor:
    """(edges, 1) fractions of the cutoff to (edges, roots)."""
    return float(prefactor) * torch.sin(roots * x) / x * cutoff(x, float(p))


def interaction(x, edge_vec, graph, types, radial, layer, problem):
    f = fields(problem)
    in1, in2, out = (Irreps.parse(f[k]) for k in ("in1", "in2", "out"))
    _, _, cutoffs, roots, network = radial
    basis, prefactor, p, widths, _, *options = f["radial"].split(",")
    assert basis == "bessel" and options in ([], ["density"]), f["radial"]
    ids = edges(graph, layer)
    receivers, senders = graph[2][ids].long(), graph[1][ids].long()
    vec = edge_vec[ids]
    r = vec.norm(dim=1, keepdim=True)
    xr = r / cutoffs[types.long()[receivers], types.long()[senders]][:, None]
    within = (xr < 1).to(x.dtype)
    h = layers_of(bessel(xr, roots, prefactor, p).to(x.dtype), network, [int(w) for w in widths.split("-")])
    if options:
        h = torch.tanh(h**2)
    h = h * within
    lmax = in2[-1].l
    Y = o3.spherical_harmonics(list(range(lmax + 1)), vec, True, "component").to(x.dtype)
    messages = [x.new_zeros(len(ids), 2 * b.l + 1, b.mul) for b in out]
    column = 0
    for path in f["paths"].split(";"):
        mode, rest = path.split(":")
        assert mode == "uvu"
        a, b, c, coefficient = rest.split(",")
        a, b, c = int(a), int(b), int(c)
        mul = in1[a].mul
        values = torch.einsum(
            "eiu,ej,eu,ijk->eku",
            block(x, in1, a)[senders],
            Y[:, b * b : (b + 1) ** 2],
            h[:, column : column + mul],
            w3j(in1[a].l, in2[b].l, out[c].l).to(x.dtype) * float(coefficient),
        )
        messages[c] = messages[c] + values
        column += mul
    result = assemble(messages, out, len(ids), x)
    return x.new_zeros(x.shape[0], out.dim).index_add(0, receivers, result)


def interaction_density(x, edge_vec, graph, types, radial, density, layer, problem, density_problem):
    ones = torch.ones(x.shape[0], 1, dtype=x.dtype)
    return [
        interaction(x, edge_vec, graph, types, radial, layer, problem),
        interaction(ones, edge_vec, graph, types, density, layer, density_problem),
    ]


def _linear(x: Tensor, weight: Tensor, problem: str) -> Tensor:
    """weight (count,) or (rows, count)."""
    f = fields(problem)
    irreps_in, irreps_out = Irreps.parse(f["in"]).simplify(), Irreps.parse(f["out"]).simplify()
    blocks, start = [], 0
    for b in irreps_out:
        sources = [block(x, irreps_in, i) for i, a in enumerate(irreps_in) if a.irrep == b.irrep]
        if not sources:
            blocks.append(x.new_zeros(x.shape[0], 2 * b.l + 1, b.mul))
            continue
        channels = torch.cat(sources, dim=-1)
        rows = channels.shape[-1]
        w = weight[..., start : start + rows * b.mul].unflatten(-1, (rows, b.mul))
        start += rows * b.mul
        blocks.append(channels @ w)
    assert start == weight.shape[-1]
    return assemble(blocks, irreps_out, x.shape[0], x)


def dense(x, weight):
    return torch.matmul(x, weight)


def linear(x, weight, graph, layer, problem):
    return keep_rows(_linear(x, weight, problem), graph, layer)


def species_linear(x, weight, types, graph, layer, problem):
    return keep_rows(_linear(x, weight[types.long()], problem), graph, layer)


def symmetric_contraction(x, coefficients, types, graph, layer, problem):
    f = fields(problem)
    channels = Irreps.parse(f["in"])[0].mul
    x = x.reshape(x.shape[0], -1, channels)
    values, k = [], 0
    for terms in f["terms"].split(";"):
        value = torch.zeros_like(x[:, 0])
        for term in filter(None, terms.split(",")):
            value = value + coefficients[types.long(), k] * x[:, [int(i) for i in term.split(".")]].prod(1)
            k += 1
        values.append(value)
    return keep_rows(torch.cat(values, dim=1), graph, layer)


def gate(x, graph, layer, problem):
    f = fields(problem)
    scalars, gates, gated = (Irreps.parse(f[k]) for k in ("scalars", "gates", "gated"))
    whole = scalars + gates + gated

    def activate(index: int) -> Tensor:
        value = block(x, whole, index)[:, 0]
        if whole[index].p == 1 and index >= len(scalars) and "sigmoid" in f:
            return float(f["sigmoid"]) * torch.sigmoid(value)
        if whole[index].p == 1:
            return float(f["silu"]) * torch.nn.functional.silu(value)
        return float(f["tanh"]) * torch.tanh(value)

    out = [activate(i)[:, None] for i in range(len(scalars))]
    n = len(scalars)
    factors = [activate(n + i) for i in range(len(gates))]
    factor = torch.cat(factors, dim=1) if factors else x[:, :0]
    start = 0
    for i, b in enumerate(gated):
        out.append(block(x, whole, n + len(gates) + i) * factor[:, None, start : start + b.mul])
        start += b.mul
    return keep_rows(assemble(out, scalars + gated, x.shape[0], x), graph, layer)


def pair_repulsion(edge_vec, graph, types, parameters, problem):
    match = re.fullmatch(r"zbl p=(\S+) scale=(\S+)(?: screening=(\S+))?", problem)
    p, scale = map(float, match.groups()[:2])
    screening = match.group(3) or ("0.23,0.46850,0.02817,0.20162,0.28022,0.40290,0.50986,0.94229,0.18175,3.19980")
    exponent, length, *terms = map(float, screening.split(","))
    cutoffs, charges = parameters
    ids = edges(graph, -1)
    i, j = graph[2][ids].long(), graph[1][ids].long()
    r = edge_vec[ids].norm(dim=1)
    zi, zj = charges[types.long()[i]], charges[types.long()[j]]
    x = (zi**exponent + zj**exponent) * r / length
    psi = sum(c * torch.exp(-d * x) for c, d in zip(terms[::2], terms[1::2], strict=True))
    rc = cutoffs[types.long()[i], types.long()[j]]
    energy = scale * zi * zj / r * psi * cutoff(r / rc, p)
    return edge_vec.new_zeros(types.shape[0]).index_add(0, i, energy)


def _coupled(tensors: Tensor, environment: Tensor, weights: Tensor, before: Irreps, lmax: int, after: Irreps) -> Tensor:
    """A product of src/core/problem/allegro_problem.h: (edges, components, channels) each; weights (paths, channels)"""
    places = [(sum(2 * b.l + 1 for b in list(before)[:a]), block) for a, block in enumerate(before)]
    columns, path = [], 0
    for c in after:
        value = tensors.new_zeros(tensors.shape[0], 2 * c.l + 1, tensors.shape[2])
        for start, b in places:
            for l2 in range(lmax + 1):
                if b.p * (-1) ** l2 != c.p or not abs(b.l - l2) <= c.l <= b.l + l2:
                    continue
                left, right = tensors[:, start : start + 2 * b.l + 1], environment[:, l2**2 : (l2 + 1) ** 2]
                coupling = w3j(b.l, l2, c.l).to(tensors.dtype)
                value = value + torch.einsum("eic,ejc,ijk,c->ekc", left, right, coupling, weights[path])
                path += 1
        columns.append(value)
    assert path == weights.shape[0]
    return torch.cat(columns, dim=1)


def allegro_energy(edge_vec, graph, types, radial, weights, layer, problem):
    f = fields(problem)
    scalars, channels, lmax = (int(f[k]) for k in ("scalars", "channels", "lmax"))
    tensors = [Irreps.parse(text) for text in f["tensors"].split(";")]
    latents = [[int(w) for w in text.split("-")] for text in f["latents"].split(";")]
    readout, sizes = ([int(w) for w in f[k].split("-")] for k in ("readout", "network"))
    basis, prefactor, p = f["basis"].split(",")
    assert basis == "bessel", f["basis"]
    _, _, cutoffs, roots, network = radial
    dense, paths, norm = weights
    kind = types.long()
    ids = edges(graph, layer)
    r = edge_vec[ids].norm(dim=1)
    pair_cutoffs = cutoffs[kind[graph[2][ids].long()], kind[graph[1][ids].long()]]
    ids, r, pair_cutoffs = (values[r < pair_cutoffs] for values in (ids, r, pair_cutoffs))
    i, j = graph[2][ids].long(), graph[1][ids].long()

    first, pairs = sizes[0] * sizes[1], cutoffs.numel()
    shared = network[pairs * first :]
    h = bessel((r / pair_cutoffs)[:, None], roots, prefactor, p).to(network.dtype)
    columns = network.new_zeros(len(ids), sizes[-1])
    for pair in range(pairs):
        mine = torch.nonzero(kind[i] * cutoffs.shape[1] + kind[j] == pair).flatten()
        own = torch.cat([network[pair * first : (pair + 1) * first], shared])
        columns = columns.index_add(0, mine, layers_of(h[mine], own, sizes))
    degree = torch.tensor([l for l in range(lmax + 1) for _ in range(2 * l + 1)])  # noqa: E741
    Y = o3.spherical_harmonics(list(range(lmax + 1)), edge_vec[ids], True, "component").to(network.dtype)[:, :, None]
    latent, environment, features = columns.split([scalars, (lmax + 1) * channels, (lmax + 1) * channels], dim=1)
    features = features.reshape(-1, lmax + 1, channels)[:, degree] * Y
    latent, start, path = [latent], 0, 0
    for k, widths in enumerate(latents):
        around = environment.reshape(-1, lmax + 1, channels)[:, degree] * Y
        around = torch.zeros(len(kind), *around.shape[1:], dtype=around.dtype).index_add(0, i, around)
        around = around * norm.to(around.dtype)[kind][:, None, None]
        count = sum(
            abs(b.l - l2) <= c.l <= b.l + l2 and b.p * (-1) ** l2 == c.p
            for c in tensors[k + 1]
            for b in tensors[k]
            for l2 in range(lmax + 1)
        )
        own = paths[path : path + count * channels].reshape(count, channels)
        features = _coupled(features, around[i], own, tensors[k], lmax, tensors[k + 1])
        path += count * channels
        size = sum(a * b for a, b in zip(widths, widths[1:], strict=False))
        result = layers_of(torch.cat([*latent, features[:, 0]], dim=1), dense[start : start + size], widths)
        start += size
        latent.append(result[:, :scalars])
        environment = result[:, scalars:]
    energy = layers_of(torch.cat(latent, dim=1), dense[start:], readout).double()
    return torch.zeros(len(kind), dtype=torch.float64).index_add(0, i, energy[:, 0])


#: Stands in for torch.ops.clebsch in clebsch.export.modules.
OPS = SimpleNamespace(
    interaction=interaction,
    interaction_density=interaction_density,
    symmetric_contraction=symmetric_contraction,
    allegro_energy=allegro_energy,
    dense=dense,
    linear=linear,
    species_linear=species_linear,
    gate=gate,
    pair_repulsion=pair_repulsion,
)
