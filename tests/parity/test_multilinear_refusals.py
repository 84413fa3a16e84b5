"""The multilinear ops and torch: what it would take for constants (forward-mode derivatives, torch.func's transforms),
and first calls, which load the library and give the ops their derivatives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad

from clebsch import ClebschError, attention, library, multilinear_library
from clebsch.triangle import triangle_multiplicative_update

BUILT = library.load().path is not None and multilinear_library.place().is_file()
pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")

WEIGHTS = {"p_in_weight": (8, 4), "g_in_weight": (8, 4), "p_out_weight": (4, 4), "g_out_weight": (4, 4)}


def calls() -> dict:
    """By an op's name: it as a function of one tensor, and the tensor."""
    random = torch.Generator().manual_seed(1)
    normal = lambda *shape: torch.randn(shape, generator=random)  # noqa: E731
    weights = {name: normal(*shape) for name, shape in WEIGHTS.items()}
    k, v, of_nodes = normal(1, 2, 6, 8), normal(1, 2, 6, 8), normal(3, 1, 8)
    edges = torch.tensor([0, 1, 2, 1]), torch.tensor([0, 0, 1, 2])
    return {
        "triangle_multiplicative_update": (lambda x: triangle_multiplicative_update(x, **weights), normal(3, 3, 4)),
        "spherical_attention": (lambda q: attention.spherical_attention(q, k, v)[0], normal(1, 2, 5, 8)),
        "stream_attention": (lambda q: attention.stream_attention(q, k, v)[0], normal(1, 2, 5, 8)),
        "graph_attention": (lambda q: attention.graph_attention(q, of_nodes, None, *edges), normal(3, 1, 8)),
    }


@pytest.mark.parametrize("op", list(calls()))
def test_forward_mode_and_transforms_are_refused(op):
    call, x = calls()[op]
    assert torch.isfinite(call(x)).all()
    with pytest.raises(ClebschError, match=f"{op}: expected a call outside of torch.func"):
        torch.func.jvp(call, (x,), (torch.ones_like(x),))
    with pytest.raises(ClebschError, match=f"{op}: expected a call outside of torch.func"):
        torch.func.grad(lambda x: call(x).sum())(x)
    with pytest.raises(ClebschError, match=f"{op}: expected a call outside of torch.func"):
        torch.func.vmap(call)(torch.stack([x, x]))
    with forward_ad.dual_level():
        with pytest.raises(ClebschError, match=f"{op}: expected tensors without tangents"):
            call(forward_ad.make_dual(x, torch.ones_like(x)))
        assert torch.isfinite(call(x)).all()


@pytest.mark.parametrize("op", list(calls()))
def test_forward_mode_is_refused_in_what_is_compiled(op):
    call, x = calls()[op]
    tangent = torch.compile(
        lambda x, t: torch.func.jvp(call, (x,), (t,))[1], backend="aot_eager", fullgraph=op != "graph_attention"
    )
    with pytest.raises(Exception, match=f"{op}: expected a call outside of torch.func"):
        tangent(x, torch.ones_like(x))


FIRST = """
import sys, threading, torch
from test_multilinear_refusals import calls
how, op = sys.argv[1:]
call, x = calls()[op]
x.requires_grad_()
if how == "compiled":
    found = torch.compile(call, backend="aot_eager", fullgraph=True)(x)
    found.sum().backward()
    torch.testing.assert_close(found, call(x))
    assert torch.isfinite(x.grad).all() and x.grad.abs().max() > 0
else:
    failed = []
    def first():
        try:
            call(x).sum().backward()
        except Exception as error:
            failed.append(error)
    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
"""


@pytest.mark.parametrize(
    ("how", "op"),
    [
        ("compiled", "triangle_multiplicative_update"),
        ("compiled", "stream_attention"),
        ("threads", "triangle_multiplicative_update"),
    ],
)
def test_first_call_of_a_process(how, op):
    """Nobody has called the op before it is compiled, or eight threads call it at once."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST, how, op], cwd=Path(__file__).parent, check=True)
