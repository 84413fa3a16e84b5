"""What tests and benchmarks of `interaction` share: random radial functions and tables, graphs with geometry, calls.

The op on the CPU in fp64 is the reference (itself tested against slow loops, tests/unit/cpu_interaction_test.cpp).
Tables come from the library: there is one formula for them.
"""

import dataclasses
import itertools
import math
import os

import torch
from conv_reference import Problem, block_errors, make_graph, named_problems

TABLE_START = 0.4  # Angstrom, kTableStart of src/core/radial/radial_table.h
PIECES = 96  # kTablePieces of the same file
SPLINE_PIECES = 64  # kPiecesOfSplines of src/model/run/radial_tables.cpp
NONE = torch.zeros(0, dtype=torch.int32)
# 120 times the quintic B-splines of a piece, coefficients of 1, t .. t^5 (kSplinePieces, core/radial/radial_spline.h).
SPLINE = [
    [1, -5, 10, -10, 5, -1],
    [26, -50, 20, 20, -20, 5],
    [66, 0, -60, 0, 30, -10],
    [26, 50, 20, -20, -20, 10],
    [1, 5, 10, 10, 5, -5],
    [0, 0, 0, 0, 0, 1],
]


#: Norms of differences over norms, each block of irreps by itself; single numbers against the RMS ten times looser.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def radial_problems():
    """The registry's problems with radial functions inside: {name: text}."""
    return {name: text for name, text in named_problems("conv ").items() if " radial=" in text}


def knot(k, cutoff, pieces):
    """Distance (A) of the k-th of pieces + 1 knots."""
    start = math.sqrt(TABLE_START)
    return (start + k * (math.sqrt(cutoff) - start) / pieces) ** 2


@dataclasses.dataclass
class Radial:
    """Radial functions of one problem; all tensors fp64 on the CPU."""

    table: torch.Tensor
    table_index: torch.Tensor
    cutoffs: torch.Tensor
    basis: torch.Tensor
    network: torch.Tensor  # of the first table
    spline: torch.Tensor | None = None  # what the GPU's kernels read instead of `table`, the same functions

    def list(self, dtype, device, exact=False):
        """The op's argument `radial`; exact: without a table, so that the op evaluates the network itself."""
        table = self.table
        if self.spline is not None and torch.device(device).type == "cuda":
            table = self.spline
        if exact:
            table = table[:0]
        tensors = [table.to(dtype), self.table_index, self.cutoffs, self.basis, self.network.to(dtype)]
        return [t.to(device) for t in tensors]

    @property
    def pieces(self):
        return self.table.shape[1] - 1


def random_networks(text, count, seed):
    """(basis, networks (count, weights)) like those of a fresh model: variance 1 / fan-in, 2 / fan-in after silu."""
    fields = dict(word.split("=", 1) for word in text.split()[1:])
    widths = [int(w) for w in fields["radial"].split(",")[3].split("-")]
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for k, (rows, columns) in enumerate(itertools.pairwise(widths)):
        scale = math.sqrt((1 if k == 0 else 2) / rows)
        layers.append(scale * torch.randn(count, rows * columns, generator=generator, dtype=torch.float64))
    basis = math.pi * torch.arange(1, widths[0] + 1, dtype=torch.float64)
    return basis, torch.cat(layers, 1)


def splines_for(tables):
    """Whether the library reads so many tables as splines (interaction_splines)."""
    asked = os.environ.get("CLEBSCH_CUDA_INTERACTION", "").split(",")
    return "spline=1" in asked or (tables > 1 and "spline=0" not in asked)


def make_radial(text, pair_cutoffs, pieces=PIECES, seed=1, networks=1, symmetric=False):
    """Tables for a (T, T) matrix of cutoffs, one for every ordered pair (symmetric: unordered), in reverse order.

    pieces: None for as many as the library takes in float32. networks: 1 for all tables, or None for one each.
    """
    pair_cutoffs = torch.as_tensor(pair_cutoffs, dtype=torch.float64)
    types = pair_cutoffs.shape[0]
    index, cutoffs = torch.zeros(types, types, dtype=torch.int32), []
    for i, j in reversed(list(itertools.product(range(types), repeat=2))):
        if symmetric and i > j:
            continue
        index[i, j] = len(cutoffs)
        if symmetric:
            index[j, i] = len(cutoffs)
        cutoffs.append(pair_cutoffs[i, j])
    cutoffs = torch.stack(cutoffs)
    basis, weights = random_networks(text, networks or len(cutoffs), seed)
    splines = splines_for(len(cutoffs))
    pieces = pieces or (SPLINE_PIECES if splines else PIECES)
    table = torch.classes.clebsch.Model.radial_tables(text, cutoffs, basis, weights, pieces)
    spline = None
    if splines:
        spline = torch.classes.clebsch.Model.spline_tables(table)
        table[:, 1:] = spline_pieces(spline, pieces)
    return Radial(table, index, pair_cutoffs, basis, weights[0], spline)


def spline_pieces(spline, pieces):
    """Polynomials (tables, pieces, 6, columns) of splines (tables, 3 + pieces + 5, 1, columns)."""
    basis = torch.tensor(SPLINE, dtype=torch.float64) / 120
    return torch.stack([basis.T @ spline[:, 3 + p : 9 + p, 0] for p in range(pieces)], dim=1)


def random_vectors(distances, generator):
    """Edge vectors of these lengths in random directions."""
    v = torch.randn(len(distances), 3, generator=generator, dtype=torch.float64)
    return v / v.norm(dim=1, keepdim=True) * distances[:, None]


@dataclasses.dataclass
class Case:
    """Operands of one call, fp64 on the CPU; dtypes and devices are chosen when it runs."""

    problem: Problem
    graph: list  # the op's argument, CPU
    edges: int  # true count; capacity may be more, filled with NaN
    edge_vec: torch.Tensor
    types: torch.Tensor
    radial: Radial
    x: torch.Tensor
    grad_out: torch.Tensor
    layer: int = 0

    def rounded(self, dtype):
        """The same case with features that `dtype` can hold, so that a comparison sees the op's own error alone."""
        return dataclasses.replace(
            self, x=self.x.to(dtype).double(), grad_out=self.grad_out.to(dtype).double(), radial=self.radial
        )

    def operands(self, dtype, device, transpose=True, exact=False):
        graph = [t.to(device) for t in self.graph]
        if not transpose:
            graph[3] = graph[4] = NONE.to(device)
        return Operands(
            self,
            self.x.to(device, dtype),
            self.edge_vec.to(device),
            graph,
            self.types.to(device),
            self.radial.list(dtype, device, exact),
            self.grad_out.to(device, dtype),
        )


@dataclasses.dataclass
class Operands:
    """A case on its device: `forward()`, `backward(mask)` call the op without autograd."""

    case: Case
    x: torch.Tensor
    edge_vec: torch.Tensor
    graph: list
    types: torch.Tensor
    radial: list
    grad_out: torch.Tensor

    def rest(self):
        return self.graph, self.types, self.radial, self.case.layer, self.case.problem.text

    def forward(self):
        return torch.ops.clebsch.interaction(self.x, self.edge_vec, *self.rest())

    def backward(self, mask=(True, True)):
        """[grad_x, grad_edge_vec of the true edges]; None where not wanted."""
        grads = torch.ops.clebsch.interaction_backward(self.grad_out, self.x, self.edge_vec, *self.rest(), mask)
        grads = [g if wanted else None for g, wanted in zip(grads, mask, strict=True)]
        if mask[1]:
            grads[1] = grads[1][: self.case.edges]
        return grads

    def results(self, mask=(True, True)):
        return [self.forward(), *self.backward(mask)]


def make_case(
    text,
    degrees,
    nodes,
    types=1,
    cutoffs=None,
    pieces=PIECES,
    padding=0,
    layer_rows=None,
    seed=0,
    distances=None,
    vectors=None,
    senders=None,
    radial=None,
    node_types=None,
    networks=1,
):
    """Random operands on a graph of conv_reference.make_graph.

    Distances are uniform from 0.25 A to 1.05 times the cutoff of each edge's pair of types unless `distances` or
    `vectors` (E,3) are given.
    """
    problem = Problem(text)
    generator = torch.Generator().manual_seed(seed + 77)
    graph = make_graph(degrees, nodes, padding, layer_rows, True, seed, senders, "cpu")
    if node_types is None:
        node_types = torch.randint(0, types, (nodes,), generator=generator).int()
    if radial is None:
        if cutoffs is None:  # per-pair cutoffs, not symmetric
            k = torch.arange(types, dtype=torch.float64)
            cutoffs = 5.0 - 0.31 * k[:, None] - 0.17 * k[None]
        radial = make_radial(text, cutoffs, pieces, seed + 1, networks)
    if vectors is None:
        if distances is None:
            limit = radial.cutoffs[node_types[graph.receivers].long(), node_types[graph.senders].long()]
            uniform = torch.rand(graph.edges, generator=generator, dtype=torch.float64)
            distances = 0.25 + (1.05 * limit - 0.25) * uniform
        vectors = random_vectors(distances, generator)
    edge_vec = torch.full((graph.edges + padding, 3), float("nan"), dtype=torch.float64)
    edge_vec[: graph.edges] = vectors
    x = torch.randn(nodes, problem.in1.dim, generator=generator, dtype=torch.float64)
    g = torch.randn(nodes, problem.out.dim, generator=generator, dtype=torch.float64)
    return Case(problem, graph.list, graph.edges, edge_vec, node_types, radial, x, g)


DEGREES = [0, 1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193, 255, 256, 0, 257, 511, 513, 2000]


def axis_vectors(distances):
    """Exactly these lengths, along the axes in turn: three edges a distance and sign."""
    vectors = torch.zeros(len(distances), 6, 3, dtype=torch.float64)
    for i in range(3):
        vectors[:, i, i], vectors[:, i + 3, i] = distances, -distances
    return vectors.reshape(-1, 3)


def on_knots(text):
    """Every knot of a table of 24 pieces, points next to them, below the first, at and beyond the cutoff."""
    at = [knot(k, 5.0, 24) for k in range(25)]
    r = torch.tensor([0.05, 0.2, 0.399999] + at + [5.0, 5.0 * (1 - 1e-13), 5.5, 9.0], dtype=torch.float64)
    r = torch.cat([r, r * (1 + 1e-13), r * (1 - 1e-13)])
    vectors = axis_vectors(r)
    degrees = [60] * (len(vectors) // 60) + [len(vectors) % 60]
    return make_case(text, degrees, len(degrees) + 3, cutoffs=[[5.0]], pieces=24, vectors=vectors)


def graphs():
    """{name: function of a problem's text that makes the case}."""
    generator = torch.Generator().manual_seed(1)
    uneven = torch.randint(0, 90, (37,), generator=generator)
    uneven[::5] = 0
    return {
        "three types, ghosts": lambda text: make_case(text, uneven, 53, types=3, networks=None),
        "fewer rows, padding": lambda text: make_case(text, uneven, 53, types=2, padding=41, layer_rows=20),
        "chunk borders": lambda text: make_case(text, DEGREES, 31),
        # Several, so that no block of few channels sums to nearly nothing by chance: then fp32 would look wrong.
        "long receivers": lambda text: make_case(text, [3000, 1, 1700, 0, 1500, 1300], 7, types=2, pieces=32),
        "on knots": on_knots,
        "no edges": lambda text: make_case(text, [0, 0, 0], 4),
        "no rows": lambda text: make_case(text, [], 3),
        "no atoms": lambda text: make_case(text, [], 0),
        "one atom": lambda text: make_case(text, [0], 1),
        "one atom and its images": lambda text: make_case(text, [12], 1),
        "no row computed": lambda text: make_case(text, [5, 6], 4, layer_rows=0, padding=2),
    }


def replayed(operands, *more):
    """(results, eager): of a CUDA graph replayed after x, edge_vec, the rows to compute and `more` have other contents
    in the same tensors, and the same without a graph."""
    with torch.cuda.stream(torch.cuda.Stream()):
        operands.results()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results = operands.results()
    operands.x.mul_(0.7)
    operands.edge_vec.mul_(1.02)
    operands.graph[5].fill_(4)
    for tensor in more:
        tensor.mul_(-2)
    captured.replay()
    torch.cuda.synchronize()
    return results, operands.results()


def relative(got, expected):
    """(norm of the difference over the norm, largest difference over the RMS); infinite when not a number."""
    if not got.numel():
        return 0.0, 0.0
    difference, scale = got.double() - expected, float(expected.norm())
    errors = (float(difference.norm()), float(difference.abs().max()))
    if scale > 0:
        errors = (errors[0] / scale, errors[1] * expected.numel() ** 0.5 / scale)
    return tuple(e if e == e else float("inf") for e in errors)


def compare(case, got, expected):
    """Largest error of `relative`'s first kind, and of the second divided by ten."""
    got = [None if t is None else t.cpu() for t in got]
    problem = case.problem
    blocks = [block_errors(problem, problem.out, got[0], expected[0])]
    if got[1] is not None:
        blocks.append(block_errors(problem, problem.in1, got[1], expected[1]))
    pairs = [relative(a, b) for a, b in zip(got, expected, strict=True) if a is not None]
    return max(blocks + [p[0] for p in pairs] + [p[1] / 10 for p in pairs])
