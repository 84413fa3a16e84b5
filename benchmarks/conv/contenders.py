"""The libraries that are compared, each behind the same few attributes.

Operands are drawn in one common layout, Clebsch's own (channel fastest, core/math/irreps.h). A library gets them in the
layout and order it likes best, by index tensors, and its results are put back before they are compared: no transpose
is timed, for anyone.
"""

import dataclasses
import importlib
import math
from collections.abc import Callable

import torch
from e3nn import o3


@dataclasses.dataclass
class Contender:
    """One way of computing a convolution: out = forward(x, y, w), differentiable.

    order: per operand ("x", "y", "w", "out"), own[:, k] = common[:, order[k]]; missing: the common layout.
    double: replaces autograd's double backward, (x, y, w, g, tx, ty, tw) -> gradients of <t, grad> by (x, y, w, g).
    schedule: CLEBSCH_CUDA_SCHEDULE while it runs.
    """

    library: str
    version: str
    mode: str
    forward: Callable
    order: dict = dataclasses.field(default_factory=dict)
    double: Callable | None = None
    double_only: bool = False
    schedule: str = ""

    @property
    def label(self):
        return f"{self.library} {self.mode}"

    def to_own(self, which, t):
        return t[:, self.order[which]].contiguous() if which in self.order else t.detach()

    def to_common(self, which, t):
        if which not in self.order:
            return t
        out = torch.empty_like(t)
        out[:, self.order[which]] = t
        return out


def mul_ir_order(problem, irreps, device):
    """Columns of the common layout in e3nn's order, [channel][component] a block."""
    return torch.cat([problem.columns(block, device).T.reshape(-1) for block in problem.blocks(irreps)])


def mul_ir(problem, device):
    operands = {"x": problem.in1, "y": problem.in2, "out": problem.out}
    return {name: mul_ir_order(problem, irreps, device) for name, irreps in operands.items()}


def instructions(problem, normalised):
    """e3nn's; the last entry makes the path's coefficient right, without normalisation or beside e3nn's default one."""
    result = []
    for p in problem.paths:
        weight = p.coefficient**2
        if normalised:
            fan_in = sum(problem.in1[q.in1].mul if q.mode == "uvw" else 1 for q in problem.paths if q.out == p.out)
            weight *= fan_in / (2 * problem.out[p.out].ir.l + 1)
            weight = 1.0 if abs(weight - 1) < 1e-12 else weight
        result.append((p.in1, p.in2, p.out, p.mode, p.weighted, weight))
    return result


class Case:
    """What a contender is made for."""

    def __init__(self, name, problem, graph, dtype, device, schedules=(), plans_only=False):
        self.name, self.problem, self.graph, self.dtype, self.device = name, problem, graph, dtype, device
        self.schedules, self.plans_only = schedules, plans_only
        self.uvu = all(p.mode == "uvu" for p in problem.paths)


def clebsch(case):
    op, backward = torch.ops.clebsch.tensor_product_conv, torch.ops.clebsch.tensor_product_conv_backward
    text = case.problem.text
    version = torch.classes.clebsch.Model.version()
    for mode in ("deterministic", "atomic") if case.device == "cuda" else ("deterministic",):
        tensors = list(case.graph.list)
        if mode == "atomic":
            tensors[3] = tensors[4] = torch.zeros(0, dtype=torch.int32, device=case.device)

        def forward(x, y, w, tensors=tensors):
            return op(x, y, w, tensors, -1, text)

        def composed(x, y, w, g, tx, ty, tw, tensors=tensors):
            """Second derivatives by the product rule: three forward and three backward calls and sums."""
            gg = op(tx, y, w, tensors, -1, text) + op(x, ty, w, tensors, -1, text) + op(x, y, tw, tensors, -1, text)
            _, y1, w1 = backward(g, tx, y, w, tensors, -1, text, [False, True, True])
            x2, _, w2 = backward(g, x, ty, w, tensors, -1, text, [True, False, True])
            x3, y3, _ = backward(g, x, y, tw, tensors, -1, text, [True, True, False])
            return x2 + x3, y1 + y3, w1 + w2, gg

        if not case.plans_only:
            yield Contender("clebsch", version, mode, forward)
        if all(p.weighted for p in case.problem.paths) and not case.plans_only:
            yield Contender("clebsch composed", version, mode, forward, double=composed, double_only=True)
        for schedule in case.schedules:
            yield Contender(f"clebsch {schedule}", version, mode, forward, schedule=schedule)


def e3nn(case):
    problem, graph = case.problem, case.graph
    before = torch.get_default_dtype()
    torch.set_default_dtype(case.dtype)  # of the coefficients that it keeps
    product = o3.TensorProduct(
        problem.in1,
        problem.in2,
        problem.out,
        instructions(problem, False),
        irrep_normalization="none",
        path_normalization="none",
        shared_weights=False,
        internal_weights=False,
    ).to(case.device, case.dtype)
    torch.set_default_dtype(before)

    def forward(x, y, w):
        return x.new_zeros(graph.rows, problem.out.dim).index_add_(0, graph.receivers, product(x[graph.senders], y, w))

    yield Contender("e3nn", importlib.metadata.version("e3nn"), "atomic", forward, mul_ir(problem, case.device))


def openequivariance(case, layout="mul_ir"):
    import numpy as np
    import openequivariance as oeq

    problem, graph = case.problem, case.graph
    kind = {torch.float32: np.float32, torch.float64: np.float64}[case.dtype]
    description = oeq.TPProblem(
        problem.in1,
        problem.in2,
        problem.out,
        instructions(problem, True),
        shared_weights=False,
        internal_weights=False,
        irrep_dtype=kind,
        weight_dtype=kind,
        layout=layout,
    )
    transpose = torch.argsort(graph.senders * graph.nodes + graph.receivers)
    for mode in ("atomic", "deterministic"):
        op = oeq.TensorProductConv(description, deterministic=mode == "deterministic")
        numbers = torch.arange(problem.weight_count, device=case.device, dtype=torch.float64)[None]
        order = mul_ir(problem, case.device)
        if layout == "ir_mul":  # blocks are not merged
            operands = {"x": problem.in1, "y": problem.in2, "out": problem.out}
            order = {
                name: torch.cat([problem.columns(block, case.device).reshape(-1) for block in problem.blocks(irreps)])
                for name, irreps in operands.items()
            }
        order["w"] = op.reorder_weights_from_e3nn(numbers, True)[0].long()
        more = (transpose,) if mode == "deterministic" else ()

        def forward(x, y, w, op=op, more=more):
            return op(x, y, w, graph.receivers, graph.senders, *more)

        name = "openequivariance" + (" ir_mul" if layout == "ir_mul" else "")
        yield Contender(name, oeq.__version__ or "?", mode, forward, order)


def openequivariance_ir_mul(case):
    return openequivariance(case, "ir_mul")


def flashtp(case):
    if not case.uvu:
        raise NotImplementedError("uvu paths alone")
    import flashTP_e3nn

    problem, graph = case.problem, case.graph
    op = flashTP_e3nn.uvu_TP(
        problem.in1, problem.in2, problem.out, instructions(problem, True), device="cuda", dtype=case.dtype
    )
    senders, receivers = graph.senders.int(), graph.receivers.int()
    yield Contender(
        "flashtp",
        flashTP_e3nn.__version__,
        "atomic",
        lambda x, y, w: op(x, y, w, senders, receivers),
        mul_ir(problem, case.device),
    )


def cuequivariance(case):
    """Its `uniform_1d` method with gather and scatter in the kernel, as its MACE and NequIP integrations use it.

    All operands are pieces of as many channels as the greatest common divisor of the multiplicities, which is what its
    documentation advises for uneven ones.
    """
    if not case.uvu:
        raise NotImplementedError("uvu paths alone")
    import cuequivariance as cue
    import cuequivariance_torch as cuet

    problem, graph = case.problem, case.graph
    piece = math.gcd(*(mul for mul, _ in problem.in1))
    product = cue.SegmentedTensorProduct.from_subscripts("u,u,,u")
    order, first = {}, {}
    for operand, name, irreps in ((1, "x", problem.in1), (3, "out", problem.out)):
        columns = []
        for b, block in enumerate(problem.blocks(irreps)):
            mul, dim = block[2:]
            first[name, b] = len(columns)
            numbers = problem.columns(block, case.device)
            for part in range(0, mul, piece):
                for i in range(dim):
                    columns.append(numbers[i, part : part + piece])
                    product.add_segment(operand, (piece,))
        order[name] = torch.cat(columns)
    for _ in range(problem.in2.dim):
        product.add_segment(2, ())
    weights = 0
    y_columns = [problem.columns(block, "cpu")[:, 0].tolist() for block in problem.blocks(problem.in2)]
    for p in problem.paths:
        d1, d3 = problem.in1[p.in1].ir.dim, problem.out[p.out].ir.dim
        l1, l2, l3 = problem.in1[p.in1].ir.l, problem.in2[p.in2].ir.l, problem.out[p.out].ir.l
        coupling = p.coefficient * o3.wigner_3j(l1, l2, l3, dtype=torch.float64)
        for part in range(problem.in1[p.in1].mul // piece):
            product.add_segment(0, (piece,))
            for i, j, k in (coupling.abs() > 1e-9).nonzero().tolist():
                product.add_path(
                    weights,
                    first["x", p.in1] + part * d1 + i,
                    y_columns[p.in2][j],
                    first["out", p.out] + part * d3 + k,
                    c=float(coupling[i, j, k]),
                )
            weights += 1
    polynomial = cue.SegmentedPolynomial.eval_last_operand(product)
    op = cuet.SegmentedPolynomial(
        polynomial, math_dtype=case.dtype, method="uniform_1d" if case.device == "cuda" else "naive"
    ).to(case.device)
    template = torch.empty(graph.rows, 1, device=case.device, dtype=case.dtype)

    def forward(x, y, w):
        return op([w, x, y], {1: graph.senders}, {0: template}, {0: graph.receivers})[0]

    yield Contender("cuequivariance", cuet.__version__, "atomic", forward, order)


LIBRARIES = {
    "clebsch": clebsch,
    "e3nn": e3nn,
    "openequivariance": openequivariance,
    "openequivariance-ir_mul": openequivariance_ir_mul,
    "flashtp": flashtp,
    "cuequivariance": cuequivariance,
}
