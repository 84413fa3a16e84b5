"""Slow reference of every op of src/torch/ops.schema in plain torch: the exact path, differentiable, no tables.

Written from the schema's comments and e3nn alone, so that an export can be judged without libclebsch, and libclebsch
without its own code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
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


def _multiply(h: Tensor, weights: Tensor, sizes: list[int]) -> Tensor:
    """A network without biases, silu between its layers; `weights` (flat) are its matrices, row-major [in][out]."""
    start = 0
    for k, (a, b) in enumerate(pairwise(sizes)):
        h = (torch.nn.functional.silu(h) if k else h) @ weights[start : start + a * b].reshape(a, b)
        start += a * b
    assert start == weights.numel()
    return h


def radial_network(r: Tensor, rc: float | Tensor, roots: Tensor, network: Tensor, radial: str) -> Tensor:
    """W (E, columns) of distances r (E) below the cutoffs rc, from the text of a problem's field `radial`."""
    kind, prefactor, p, widths, activation, *flags = radial.split(",")
    assert kind == "bessel" and activation == "silu" and set(flags) <= {"density"}, radial
    x = (r / rc)[:, None]
    h = float(prefactor) * torch.sin(roots * x) / x * cutoff(x, float(p))
    h = _multiply(h.to(network.dtype), network, [int(w) for w in widths.split("-")])
    return torch.tanh(h**2) if flags else h


def hermite_table(function: Callable[[Tensor], Tensor], rc: float, pieces: int, start: float = 0.4) -> Tensor:
    """(pieces + 1, 6, columns) as src/core/radial/radial_table.h describes them: row k + 1 is the quintic polynomial in
    t between the knots k and k + 1, uniform in s = sqrt(r), with the function's value, slope and curvature at both and
    zero for all three at rc. Row 0, for distances below `start`, is not a number: no test comes that close."""
    begin = start**0.5
    step = (rc**0.5 - begin) / pieces
    t = torch.arange(pieces, dtype=torch.float64)

    def along(k: Tensor) -> Tensor:
        return function((begin + k * step) ** 2)

    def slope(k: Tensor) -> Tensor:
        return torch.func.jvp(along, (k,), (torch.ones_like(k),))[1]

    first, second = torch.func.jvp(slope, (t,), (torch.ones_like(t),))
    ends = [torch.cat([v, torch.zeros_like(v[:1])]) for v in (along(t), first, second)]
    (f0, f1), (d0, d1), (c0, c1) = ((v[:-1], v[1:]) for v in ends)
    rows = [
        f0,
        d0,
        c0 / 2,
        10 * (f1 - f0) - 6 * d0 - 4 * d1 - 1.5 * c0 + 0.5 * c1,
        -15 * (f1 - f0) + 8 * d0 + 7 * d1 + 1.5 * c0 - c1,
        6 * (f1 - f0) - 3 * d0 - 3 * d1 - 0.5 * c0 + 0.5 * c1,
    ]
    table = torch.stack(rows, dim=1)
    return torch.cat([torch.full_like(table[:1], torch.nan), table])


def from_table(r: Tensor, rc: Tensor, table: Tensor, index: Tensor, start: float = 0.4) -> Tensor:
    """W (E, columns): table (tables, pieces + 1, 6, columns), `index` (E) the table of each edge."""
    pieces = table.shape[1] - 1
    u = (r.sqrt() - start**0.5) * (pieces / (rc.sqrt() - start**0.5))
    piece = u.detach().floor().long().clamp(-1, pieces - 1)
    rows = table[index.long(), piece + 1]
    powers = (u - piece)[:, None] ** torch.arange(6, dtype=r.dtype)
    return torch.einsum("ek,ekc->ec", powers, rows)


def radial_weights(r: Tensor, centre: Tensor, neighbour: Tensor, radial: list[Tensor], problem: str) -> Tensor:
    """W (E, columns), zero from each pair's cutoff on. r (E), types of receivers and senders (E)."""
    table, index, cutoffs, roots, network = radial
    rc = cutoffs[centre, neighbour]
    if table.numel():
        weights = from_table(r, rc, table, index[centre, neighbour])
    else:
        weights = radial_network(r, rc, roots, network, fields(problem)["radial"])
    return torch.where((r < rc)[:, None], weights, torch.zeros_like(weights))


def interaction(x, edge_vec, graph, types, radial, layer, problem):
    f = fields(problem)
    in1, in2, out = (Irreps.parse(f[k]) for k in ("in1", "in2", "out"))
    ids = edges(graph, layer)
    receivers, senders = graph[2][ids].long(), graph[1][ids].long()
    vec = edge_vec[ids]
    h = radial_weights(vec.norm(dim=1), types.long()[receivers], types.long()[senders], radial, problem).to(x.dtype)
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
    one = x.new_ones(x.shape[0], 1)
    return [
        interaction(x, edge_vec, graph, types, radial, layer, problem),
        interaction(one, edge_vec, graph, types, density, layer, density_problem),
    ]


def allegro_network(r: Tensor, rc: float | Tensor, roots: Tensor, network: Tensor, problem: str) -> Tensor:
    """The two-body part (E, columns) of edges of one ordered pair of types, whose network this is."""
    f = fields(problem)
    return radial_network(r, rc, roots, network, f"{f['basis']},{f['network']},silu")


def pair_network(network: Tensor, problem: str, pair: int, pairs: int) -> Tensor:
    """Of the flat `network` of allegro_energy the weights for one of `pairs` ordered pairs."""
    a, b = (int(w) for w in fields(problem)["network"].split("-")[:2])
    return torch.cat([network[pair * a * b : (pair + 1) * a * b], network[pairs * a * b :]])


def allegro_energy(edge_vec, graph, types, radial, weights, layer, problem):
    """From the text of src/core/problem/allegro_problem.h: sums over the edges of every row, (M)."""
    f = fields(problem)
    scalars, channels, lmax = (int(f[k]) for k in ("scalars", "channels", "lmax"))
    tensors = [Irreps.parse(text) for text in f["tensors"].split(";")]
    latents = [[int(w) for w in text.split("-")] for text in f["latents"].split(";")]
    dense, paths, norm = weights
    table, index, cutoffs, roots, network = radial
    types, paths, count = types.long(), paths.reshape(-1, channels), len(norm)
    ids = edges(graph, layer)
    vec = edge_vec[ids]
    rc = cutoffs[types[graph[2][ids].long()], types[graph[1][ids].long()]]
    within = vec.detach().norm(dim=1) < rc
    ids, vec, rc = ids[within], vec[within], rc[within]
    r, receivers = vec.norm(dim=1), graph[2][ids].long()
    pair = types[receivers] * count + types[graph[1][ids].long()]
    if table.numel():
        two_body = from_table(r, rc, table, index.flatten()[pair])
    else:
        two_body = r.new_zeros(len(r), int(f["network"].split("-")[-1]))
        for k in pair.unique().tolist():
            at = torch.nonzero(pair == k).flatten()
            own = pair_network(network, problem, k, count**2)
            two_body = two_body.index_add(0, at, allegro_network(r[at], rc[at], roots, own, problem))
    degree = torch.tensor([m for m in range(lmax + 1) for _ in range(2 * m + 1)])
    Y = o3.spherical_harmonics(list(range(lmax + 1)), vec, True, "component")

    def times_harmonics(w: Tensor) -> Tensor:  # [l][channels] -> (E, components, channels)
        return w.unflatten(1, (lmax + 1, channels))[:, degree] * Y[:, :, None]

    env_width = (lmax + 1) * channels
    every, env, tensor = two_body.split([scalars, env_width, env_width], dim=1)
    tensor = times_harmonics(tensor)
    begin = path = 0
    for k, widths in enumerate(latents):
        around = r.new_zeros(types.shape[0], len(degree), channels).index_add(0, receivers, times_harmonics(env))
        around = (around * norm[types][:, None, None])[receivers]
        inside, outside = tensors[k], tensors[k + 1]
        starts = [sum(2 * b.l + 1 for b in inside[:a]) for a in range(len(inside))]
        blocks = []
        for c in outside:
            value = r.new_zeros(len(r), 2 * c.l + 1, channels)
            for a, start in zip(inside, starts, strict=True):
                for m in range(lmax + 1):
                    if a.p * (-1) ** m == c.p and abs(a.l - m) <= c.l <= a.l + m:
                        part = tensor[:, start : start + 2 * a.l + 1], around[:, m * m : (m + 1) ** 2]
                        value = value + torch.einsum("eic,ejc,ijk,c->ekc", *part, w3j(a.l, m, c.l), paths[path])
                        path += 1
            blocks.append(value)
        tensor = torch.cat(blocks, dim=1)
        count = sum(a * b for a, b in pairwise(widths))
        out = _multiply(torch.cat([every, tensor[:, 0]], dim=1), dense[begin : begin + count], widths)
        begin += count
        every, env = torch.cat([every, out[:, :scalars]], dim=1), out[:, scalars:]
    energy = _multiply(every, dense[begin:], [int(w) for w in f["readout"].split("-")])[:, 0]
    return r.new_zeros(types.shape[0]).index_add(0, receivers, energy)


def _linear(x: Tensor, weight: Tensor, problem: str) -> Tensor:
    """weight (count,) or (rows, count)."""
    f = fields(problem)
    irreps_in, irreps_out = Irreps.parse(f["in"]).simplify(), Irreps.parse(f["out"]).simplify()
    blocks, start = [], 0
    for b in irreps_out:
        # All channels of the irrep, also where another one lies between its blocks.
        same = [block(x, irreps_in, i) for i, a in enumerate(irreps_in) if a.irrep == b.irrep]
        if not same:
            blocks.append(x.new_zeros(x.shape[0], 2 * b.l + 1, b.mul))
            continue
        h = torch.cat(same, dim=2)
        w = weight[..., start : start + h.shape[2] * b.mul].unflatten(-1, (h.shape[2], b.mul))
        start += h.shape[2] * b.mul
        blocks.append(h @ w)
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


#: Stands in for torch.ops.clebsch in clebsch.export.modules.
OPS = SimpleNamespace(
    interaction=interaction,
    interaction_density=interaction_density,
    allegro_energy=allegro_energy,
    symmetric_contraction=symmetric_contraction,
    dense=dense,
    linear=linear,
    species_linear=species_linear,
    gate=gate,
    pair_repulsion=pair_repulsion,
)
