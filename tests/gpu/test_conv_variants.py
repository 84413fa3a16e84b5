"""Runs every variant of the convolution kernels once on small graphs, for compute-sanitizer to watch; compares nothing.

Operands are made on the CPU and nothing but Clebsch runs on the GPU. With PYTORCH_NO_CUDA_MEMORY_CACHING=1, which
scripts/gpu-tests sets under the sanitizer, every tensor is an allocation of its own and its borders are watched.
"""

import dataclasses
import functools
import itertools

import pytest
import torch
from conv_reference import Problem, make_graph, named_problems

# First those that between them have every feature: uneven, several blocks, uvw, weightless.
PROBLEMS = ("test-uneven", "test-uvw", "test-weightless", "mace-l1", "test-one-channel", "test-parity", "test-unsorted",
            "nequip-S", "nequip-M")  # fmt: skip
PLANS = ("", "stages=2", "prefetch=1,ahead=4", "units=4", "code=60", "receivers=2,tile=8", "hoist=0",
         "prefetch=0,ahead=0", "stages=4,units=2", "integers=1", "integers=1,stored=1",
         "integers=1,stored=1,registers=80", "integers=1,lanes=0,copies=0,sender=0")  # fmt: skip
EVERYTHING = (True, True, True)
# Their double backward is compiled in a second or two: it is run under every plan.
SMALL = ("test-uneven", "test-uvw", "test-weightless", "mace-l1", "test-one-channel")
TEXTS = named_problems("conv ")


@dataclasses.dataclass(frozen=True)
class Case:
    problem: str
    dtype: str
    graph: str = "uneven"
    plan: str = ""
    mask: tuple = EVERYTHING
    deterministic: bool = True

    @property
    def double(self):
        """Second derivatives too. They are summed by torch, which also adds up what lies beyond the edges."""
        return self.mask == EVERYTHING and self.graph != "padded" and (not self.plan or self.problem in SMALL)

    def __str__(self):
        mask = "".join("xyw"[i] for i in range(3) if self.mask[i]) or "none"
        mode = "deterministic" if self.deterministic else "atomic"
        return f"{self.problem} {self.dtype} {self.graph} {self.plan or 'default'} {mask} {mode}"


def all_cases():
    """Every plan of every problem in both modes and number types, then other graphs and choices of gradients."""
    dtypes, modes = ("float32", "float64"), (True, False)
    plans = [Case(p, d, plan=s, deterministic=m)
             for p in PROBLEMS for s in PLANS for m in modes for d in dtypes]  # fmt: skip
    graphs = [Case(p, d, graph=g, deterministic=m)
              for g in ("padded", "long", "empty") for p in PROBLEMS for m in modes for d in dtypes]  # fmt: skip
    masks = [Case(p, d, mask=k) for k in itertools.product((False, True), repeat=3) if k != EVERYTHING
             for p in PROBLEMS for d in dtypes]  # fmt: skip
    return plans + graphs + masks


@functools.cache
def graphs():
    """Empty rows and ghosts; a receiver that is split over blocks; unused capacity; no edge at all."""
    uneven = torch.tensor([0, 3, 40, 0, 1, 33, 17, 0, 5])
    return {
        "uneven": make_graph(uneven, 13),
        "padded": make_graph(uneven, 13, padding=11, layer_rows=6),
        "long": make_graph([1200, 2], 5),
        "empty": make_graph([0, 0], 3),
    }


def run(case, text, graph):
    problem, dtype = Problem(text), getattr(torch, case.dtype)
    tensors = list(graph.list)
    if not case.deterministic:
        tensors[3] = tensors[4] = torch.zeros(0, dtype=torch.int32, device="cuda")
    capacity = tensors[1].numel()
    shapes = ((graph.nodes, problem.in1.dim), (capacity, problem.in2.dim), (capacity, problem.weight_count))
    operands = [torch.randn(*s, dtype=dtype).cuda().requires_grad_(m) for s, m in zip(shapes, case.mask, strict=True)]
    out = torch.ops.clebsch.tensor_product_conv(*operands, tensors, 0, text)
    wanted = [t for t, m in zip(operands, case.mask, strict=True) if m]
    if wanted:
        g = torch.randn(*out.shape, dtype=dtype).cuda().requires_grad_(case.double)
        gradients = torch.autograd.grad(out, wanted, g, create_graph=case.double)
        if case.double:
            tangents = [torch.randn(*t.shape, dtype=dtype).cuda() for t in gradients]
            torch.autograd.grad(gradients, (*wanted, g), tangents)
    torch.cuda.synchronize()


CASES = all_cases()


def parameters():
    """(problem, dtype, case) with the case's name: equal problems and number types share kernels."""
    return [pytest.param(c.problem, c.dtype, c, id=str(c).replace(" ", "-")) for c in CASES]


@pytest.mark.sanitize
@pytest.mark.parametrize(("problem", "dtype", "case"), parameters())
def test_runs(problem, dtype, case, monkeypatch):
    monkeypatch.setenv("CLEBSCH_CUDA_SCHEDULE", case.plan)
    try:
        run(case, TEXTS[problem], graphs()[case.graph])
    except RuntimeError as error:
        if case.plan and "no schedule" in str(error):
            pytest.skip("this plan does not fit this problem")
        raise
