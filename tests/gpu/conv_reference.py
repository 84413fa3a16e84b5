"""Reference convolution in plain torch, any dtype and device, and random graphs: what GPU kernels are tested against.

The coupling coefficients come from e3nn, so the library's own tables are tested too.
"""

import dataclasses
import sys
from pathlib import Path as FilePath

import torch
from e3nn import o3

sys.path[:0] = [str(FilePath(__file__).resolve().parents[2] / "src/python")]

from clebsch import library  # noqa: E402


def named_problems(start):
    """The problems of core/problem/named_problems.cpp whose text begins so, longest first; none without libclebsch.

    The longest take longest to compile."""
    library.load()
    try:
        named = torch.classes.clebsch.Model.named_problems()
    except RuntimeError:  # not loaded; conftest.py says why
        return {}
    return dict(sorted(((n, t) for n, t in named.items() if t.startswith(start)), key=lambda item: -len(item[1])))


@dataclasses.dataclass
class Path:
    in1: int
    in2: int
    out: int
    weighted: bool
    coefficient: float
    mode: str = "uvu"
    weights: int = 0  # columns of W


class Problem:
    """The text form of core/problem/problem.h ("conv in1=... in2=... out=... paths=..."); in2 of one channel."""

    def __init__(self, text):
        self.text = text
        fields = dict(word.split("=", 1) for word in text.split()[1:])
        self.in1, self.in2, self.out = (o3.Irreps(fields[name]) for name in ("in1", "in2", "out"))
        self.paths = []
        for item in fields["paths"].split(";"):
            mode, numbers = item.split(":")
            a, b, c, coefficient = numbers.split(",")
            if mode not in ("uvu", "uvu0", "uvw"):
                raise ValueError(f"expected uvu, uvu0 or uvw paths, got {mode}")
            p = Path(int(a), int(b), int(c), mode != "uvu0", float(coefficient), mode[:3])
            p.weights = 0 if mode == "uvu0" else self.in1[p.in1].mul * (self.out[p.out].mul if mode == "uvw" else 1)
            self.paths.append(p)
        self.weight_count = sum(p.weights for p in self.paths)

    def blocks(self, irreps):
        """(offset, stride, mul, dim) of every block in the channel-fastest layout (src/core/math/irreps.h)."""
        merged, where = [], []
        for mul, ir in irreps:
            if merged and merged[-1][1] == ir:
                where.append((len(merged) - 1, merged[-1][0]))
                merged[-1][0] += mul
            else:
                where.append((len(merged), 0))
                merged.append([mul, ir])
        starts, total = [], 0
        for mul, ir in merged:
            starts.append(total)
            total += mul * ir.dim
        return [
            (starts[m] + first, merged[m][0], mul, ir.dim) for (m, first), (mul, ir) in zip(where, irreps, strict=True)
        ]

    def columns(self, block, device):
        """Column numbers (dim, mul) of a block."""
        offset, stride, mul, dim = block
        return offset + stride * torch.arange(dim, device=device)[:, None] + torch.arange(mul, device=device)[None]


def reference(problem, x, y, w, senders, receivers, rows, chunk=20000):
    """out (rows, out.dim()): sum over edges at their receiver. Differentiable."""
    out = x.new_zeros(rows, problem.out.dim)
    in1, in2, blocks_out = problem.blocks(problem.in1), problem.blocks(problem.in2), problem.blocks(problem.out)
    column = 0
    for p in problem.paths:
        l1, l2, l3 = problem.in1[p.in1].ir.l, problem.in2[p.in2].ir.l, problem.out[p.out].ir.l
        c = p.coefficient * o3.wigner_3j(l1, l2, l3, dtype=torch.float64, device=x.device).to(x.dtype)
        mul = problem.in1[p.in1].mul
        columns1, columns2 = problem.columns(in1[p.in1], x.device), problem.columns(in2[p.in2], x.device)[:, 0]
        columns3 = problem.columns(blocks_out[p.out], x.device)
        for s in range(0, senders.numel(), chunk):
            e = slice(s, s + chunk)
            message = torch.einsum("ijk,eiu,ej->eku", c, x[senders[e]][:, columns1], y[e][:, columns2])
            weights = w[e, column : column + p.weights]
            if p.mode == "uvw":
                message = torch.einsum("eku,euw->ekw", message, weights.unflatten(1, (mul, -1)))
            elif p.weighted:
                message = message * weights[:, None]
            flat = columns3.reshape(-1)
            out = out.index_put(
                (receivers[e][:, None], flat[None]), message.reshape(message.shape[0], -1), accumulate=True
            )
        column += p.weights
    return out


@dataclasses.dataclass
class Graph:
    """Edges sorted by receiver, as the ops want them; `list` is the op's argument."""

    rows: int
    nodes: int
    senders: torch.Tensor
    receivers: torch.Tensor
    list: list

    @property
    def edges(self):
        return self.senders.numel()


def make_graph(degrees, nodes, padding=0, layer_rows=None, transpose=True, seed=0, senders=None, device="cuda"):
    """Row i has degrees[i] edges from random senders below `nodes`; `padding` unused edges at the end hold index -7."""
    generator = torch.Generator().manual_seed(seed)
    rows = len(degrees)
    degrees = torch.as_tensor(degrees, dtype=torch.int64)
    edges = int(degrees.sum())
    if senders is None:
        senders = torch.randint(0, max(nodes, 1), (edges,), generator=generator)
    receivers = torch.repeat_interleave(torch.arange(rows), degrees)
    row_ptr = torch.zeros(rows + 1, dtype=torch.int32)
    row_ptr[1:] = torch.cumsum(degrees, 0)

    def padded(t):
        return torch.cat([t.to(torch.int32), torch.full((padding,), -7, dtype=torch.int32)])

    empty = torch.zeros(0, dtype=torch.int32)
    col_ptr, col_edge = empty, empty
    if transpose:
        col_edge = padded(torch.argsort(senders.cpu(), stable=True))
        col_ptr = torch.zeros(nodes + 1, dtype=torch.int32)
        col_ptr[1:] = torch.cumsum(torch.bincount(senders.cpu(), minlength=nodes), 0)
    limit = torch.tensor([rows if layer_rows is None else layer_rows], dtype=torch.int32)
    tensors = [row_ptr, padded(senders.cpu()), padded(receivers), col_ptr, col_edge, limit, limit.clone()]
    return Graph(rows, nodes, senders.to(device), receivers.to(device), [t.to(device) for t in tensors])


def block_errors(problem, irreps, got, expected):
    """Largest relative error ||got - expected|| / ||expected|| over the blocks of `irreps`, each compared by itself."""
    worst = 0.0
    for block in problem.blocks(irreps):
        columns = problem.columns(block, got.device).reshape(-1)
        if not columns.numel() or not got.numel():
            continue
        a, b = got[:, columns].double(), expected[:, columns].double()
        scale = b.norm()
        error = float((a - b).norm() / scale) if scale > 0 else float((a - b).abs().max())
        worst = max(worst, error if error == error else float("inf"))
    return worst
