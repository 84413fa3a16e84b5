"""clebsch::edge_embedding: derivatives of every order against finite differences, and what must never be read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import clebsch
from conv_cases import fresh_seed

pytestmark = pytest.mark.usefixtures("needs_library")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Many tiny calls: threads would only wait for each other."""
    torch.set_num_threads(1)


CUTOFFS = [[4.0, 3.1], [3.6, 2.7]]


def problem(lmax: int) -> str:
    harmonics = "+".join(f"1x{degree}{'eo'[degree % 2]}" for degree in range(lmax + 1))
    return f"conv in1=2x0e in2={harmonics} out=2x0e paths=uvu:0,0,0,1 radial=bessel,0.4,5,3-2,silu"


class Edges:
    """A small graph of two types with edges beyond their cutoff, and an operator that depends on edge vectors alone."""

    def __init__(self, lmax: int, padding: int = 0, layer: int = -1, rows: int = 4) -> None:
        fresh_seed()
        nodes, edges = 4, 9
        self.problem, self.layer = problem(lmax), layer
        receivers = torch.randint(nodes, (edges,)).sort().values
        senders = torch.randint(nodes, (edges,))
        graph = clebsch.edge_graph(senders, receivers, nodes, nodes)
        unread = torch.full((padding,), 2**30, dtype=torch.int32)
        self.graph = [graph[0], torch.cat([graph[1], unread]), torch.cat([graph[2], unread]),
                      torch.empty(0, dtype=torch.int32), torch.empty(0, dtype=torch.int32),
                      torch.tensor([rows], dtype=torch.int32), graph[6]]  # fmt: skip
        self.types = torch.randint(2, (nodes,), dtype=torch.int32)
        float64 = torch.float64
        self.radial = [torch.empty(0, dtype=float64), torch.empty(0, dtype=torch.int32),
                       torch.tensor(CUTOFFS, dtype=float64), torch.tensor([3.0, 6.4, 9.2], dtype=float64),
                       torch.empty(0, dtype=float64)]  # fmt: skip
        direction = torch.nn.functional.normalize(torch.randn(edges, 3, dtype=float64), dim=1)
        # Away from the cutoffs, where the fourth derivative jumps.
        lengths = torch.tensor([0.7, 1.3, 1.9, 2.4, 2.55, 1.1, 4.5, 5.0, 2.2], dtype=float64)
        self.vectors = direction * lengths[torch.randperm(edges), None]
        self.padding = torch.full((padding, 3), float("nan"), dtype=float64)
        self.computed = int(graph[0][rows if layer >= 0 else nodes])

    def __call__(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.clebsch.edge_embedding(
            torch.cat([vectors, self.padding]), self.graph, self.types, self.radial, self.layer, self.problem,
            torch.float64,
        )  # fmt: skip


@pytest.mark.parametrize("lmax", [0, 1, 3, 7])
def test_gradcheck_and_gradgradcheck(lmax: int) -> None:
    edges = Edges(lmax)
    vectors = edges.vectors.requires_grad_()
    assert torch.autograd.gradcheck(edges, [vectors])
    assert torch.autograd.gradgradcheck(edges, [vectors])


def test_third_derivative() -> None:
    edges = Edges(3)

    def force(vectors: Tensor) -> Tensor:
        value = sum(torch.sin(t).sum() for t in edges(vectors))
        return torch.autograd.grad(value, [vectors], create_graph=True)[0]

    vectors = edges.vectors.requires_grad_()
    assert torch.autograd.gradgradcheck(force, [vectors])


@pytest.mark.parametrize("layer, rows", [(-1, 4), (0, 2)])
def test_kernel_and_differentiable_gradient_agree_and_padding_is_not_read(layer: int, rows: int) -> None:
    edges = Edges(3, padding=3, layer=layer, rows=rows)
    vectors = edges.vectors.requires_grad_()
    value = sum((t * torch.cos(torch.arange(t.numel()).view_as(t))).sum() for t in edges(vectors))
    kernel = torch.autograd.grad(value, [vectors], retain_graph=True)[0]
    differentiable = torch.autograd.grad(value, [vectors], create_graph=True)[0]
    assert torch.isfinite(kernel).all()
    assert not kernel[edges.computed :].any()
    torch.testing.assert_close(differentiable, kernel, rtol=1e-12, atol=1e-12)
    second = torch.autograd.grad(differentiable.square().sum(), [vectors])[0]
    assert torch.isfinite(second).all()
    assert not second[edges.computed :].any()
