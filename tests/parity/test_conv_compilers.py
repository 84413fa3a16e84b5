"""clebsch.TensorProductConv through torch.compile, torch.export, make_fx and TorchScript; fp64 results compared."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from clebsch.tensor_product_conv import TensorProductConv
from conv_cases import CASES, operands

pytestmark = pytest.mark.usefixtures("needs_library")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Many tiny calls: threads would only wait for each other."""
    torch.set_num_threads(1)


class Force(torch.nn.Module):
    """A scalar of the convolution and its gradient by Y, as a force field has it."""

    def __init__(self, conv: TensorProductConv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, Y: Tensor, W: Tensor, senders: Tensor, receivers: Tensor) -> Tensor:
        return self.conv(x, Y, W, senders, receivers).square().sum()


@pytest.mark.parametrize("shared", [False, True], ids=["edge-weights", "shared"])
@pytest.mark.parametrize("case", ["uvu-uneven", "uvw"])
def test_compile_fullgraph(case: str, shared: bool) -> None:
    x, Y, W, senders, receivers, count, _ = operands(case, "unsorted", shared)
    conv = TensorProductConv(*CASES[case], shared_weights=shared)
    inputs = [t.requires_grad_() for t in (x, Y, W)]

    def value_and_gradients(function) -> list[Tensor]:
        value = function(x, Y, W, senders, receivers)
        return [value, *torch.autograd.grad(value.square().sum(), inputs)]

    torch._dynamo.reset()
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    for got, expected in zip(value_and_gradients(compiled), value_and_gradients(conv), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13)


def test_compile_with_other_shapes() -> None:
    conv = TensorProductConv(*CASES["uvu-uneven"])
    torch._dynamo.reset()
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager", dynamic=True)
    for graph in ("unsorted", "isolated", "sorted"):
        x, Y, W, senders, receivers, _, _ = operands("uvu-uneven", graph)
        torch.testing.assert_close(compiled(x, Y, W, senders, receivers), conv(x, Y, W, senders, receivers))


def test_export() -> None:
    x, Y, W, senders, receivers, _, _ = operands("uvu-uneven", "unsorted")
    conv = TensorProductConv(*CASES["uvu-uneven"])
    edges, nodes = torch.export.Dim("edges", min=2), torch.export.Dim("nodes", min=2)
    shapes = ({0: nodes}, {0: edges}, {0: edges}, {0: edges}, {0: edges})
    program = torch.export.export(conv, (x, Y, W, senders, receivers), dynamic_shapes=shapes)
    x, Y, W, senders, receivers, _, _ = operands("uvu-uneven", "isolated")
    torch.testing.assert_close(program.module()(x, Y, W, senders, receivers), conv(x, Y, W, senders, receivers))


def test_make_fx_traces_the_force_and_it_can_be_trained() -> None:
    """As nequip compiles for training: the gradient is traced into the graph, which is then differentiated."""
    x, Y, W, senders, receivers, _, _ = operands("uvu-uneven", "unsorted")
    conv = TensorProductConv(*CASES["uvu-uneven"])

    def force(x: Tensor, Y: Tensor, W: Tensor, senders: Tensor, receivers: Tensor) -> Tensor:
        Y = Y.requires_grad_()
        return torch.autograd.grad(conv(x, Y, W, senders, receivers).square().sum(), [Y], create_graph=True)[0]

    W.requires_grad_()
    traced = make_fx(force, tracing_mode="fake")(x, Y.clone(), W, senders, receivers)

    def training_gradient(function) -> Tensor:
        return torch.autograd.grad(function(x, Y.clone(), W, senders, receivers).square().sum(), [W])[0]

    torch.testing.assert_close(training_gradient(traced), training_gradient(force), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("graph", ["unsorted", "sorted", "more-receivers", "empty"])
def test_torchscript(graph: str, tmp_path) -> None:
    x, Y, W, senders, receivers, count, _ = operands("mixed-modes", graph)
    conv = TensorProductConv(*CASES["mixed-modes"])
    path = str(tmp_path / "conv.pt")
    torch.jit.script(conv).save(path)
    scripted = torch.jit.load(path)
    inputs = [t.requires_grad_() for t in (x, Y, W)]
    for _ in range(3):  # the executor specialises in the first calls
        results = []
        for function in (scripted, conv):
            value = function(x, Y, W, senders, receivers, count)
            first = torch.autograd.grad(value.square().sum(), inputs, create_graph=True)
            second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
            results.append([value, *first, *second])
        for got, expected in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
