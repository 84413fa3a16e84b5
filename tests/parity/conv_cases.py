"""Convolutions that the tests of clebsch.TensorProductConv share: e3nn arguments, graphs, and e3nn's own result."""

from __future__ import annotations

import os

import torch
from e3nn import o3
from torch import Tensor


def full(irreps_in1: str, irreps_in2: str, irreps_out: str, mode: str) -> tuple[str, str, str, list[tuple]]:
    """Every allowed path into ``irreps_out`` (uvw), or into an output block of its own (uvu)."""
    in1, in2, out = o3.Irreps(irreps_in1), o3.Irreps(irreps_in2), o3.Irreps(irreps_out)
    if mode == "uvw":
        return (
            irreps_in1,
            irreps_in2,
            irreps_out,
            [
                (i, j, k, "uvw", True)
                for i, (_, a) in enumerate(in1)
                for j, (_, b) in enumerate(in2)
                for k, (_, c) in enumerate(out)
                if c in a * b
            ],
        )
    blocks, instructions = [], []
    for i, (mul, a) in enumerate(in1):
        for j, (_, b) in enumerate(in2):
            for c in a * b:
                if c in out:
                    instructions.append((i, j, len(blocks), "uvu", True))
                    blocks.append((mul, c))
    mid, place, _ = o3.Irreps(blocks).sort()
    return irreps_in1, irreps_in2, str(mid), [(i, j, place[k], m, t) for i, j, k, m, t in instructions]


CASES = {
    "uvu-even": full("8x0e+8x1o", "0e+1o+2e", "0e+1o+2e", "uvu"),
    "uvu-uneven": full("7x0e+5x1o+3x2e", "0e+1o+2e", "0e+1o+2e", "uvu"),
    "uvu-parity": full("3x0o+4x0e+5x1o+2x1e+3x2e", "0e+1o+2e", "0o+0e+1o+1e+2e+2o", "uvu"),
    "uvu-l7": full("2x0e+1x7o", "0e+1o+2e+3o+4e+5o+6e+7o", "0e+1o+7o", "uvu"),
    "uvw": full("5x0e+3x1o", "0e+1o", "4x0e+6x1o", "uvw"),
    # DiffDock's convolution in small.
    "uvw-diffdock": full("3x1o+3x1e+9x0e+9x0o", "0e+1o+2e", "3x1o+3x1e+9x0e+9x0o", "uvw"),
    "mixed-modes": (
        "6x0e+3x1o",
        "0e+1o+1o",
        "6x0e+5x1o+6x1o+2x0e",
        [
            (0, 0, 0, "uvu", False),
            (0, 1, 2, "uvu", True, 0.7),
            (1, 0, 1, "uvw", True),
            (1, 2, 0, "uvw", True, 2.0),
            (0, 2, 2, "uvu", True),
        ],
    ),
    "no-channels": ("4x0e+0x1o+3x1o", "0e+1o", "4x0e+0x2e+3x1o", [(0, 0, 0, "uvu", True), (2, 0, 2, "uvu", True)]),
}

GRAPHS = ("unsorted", "sorted", "empty", "one-edge", "bipartite", "more-receivers", "isolated")


def graph(name: str, generator: torch.Generator) -> tuple[int, int, Tensor, Tensor]:
    """(N, num_receivers, senders, receivers) of a directed graph, asymmetric unless empty."""
    nodes, receivers_count, edges = {
        "unsorted": (7, 7, 40),
        "sorted": (7, 7, 40),
        "empty": (4, 4, 0),
        "one-edge": (1, 1, 1),
        "bipartite": (9, 4, 30),
        "more-receivers": (3, 8, 25),
        "isolated": (12, 12, 10),
    }[name]
    senders = torch.randint(nodes, (edges,), generator=generator)
    receivers = torch.randint(receivers_count, (edges,), generator=generator)
    if name == "sorted":
        receivers = receivers.sort().values
    if name == "isolated":
        receivers = receivers % 3 + 4
    return nodes, receivers_count, senders, receivers


def fresh_seed() -> int:
    """A new one for every call, also given to torch; CLEBSCH_TEST_SEED repeats a run. pytest shows it on failure."""
    seed = int(os.environ.get("CLEBSCH_TEST_SEED", torch.seed() % 2**31))
    print(f"CLEBSCH_TEST_SEED={seed}")
    torch.manual_seed(seed)
    return seed


def operands(case: str, graph_name: str, shared: bool = False, dtype: torch.dtype = torch.float64):
    """x, Y, W, senders, receivers, num_receivers and the e3nn module; fresh random data in every run."""
    generator = torch.Generator().manual_seed(fresh_seed())
    in1, in2, out, instructions = CASES[case]
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    product = o3.TensorProduct(in1, in2, out, instructions, shared_weights=shared, internal_weights=False)
    torch.set_default_dtype(default)
    nodes, count, senders, receivers = graph(graph_name, generator)
    edges = len(senders)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)

    w = random(product.weight_numel) if shared else random(edges, product.weight_numel)
    x, harmonics = random(nodes, product.irreps_in1.dim), random(edges, product.irreps_in2.dim)
    return x, harmonics, w, senders, receivers, count, product


def upstream(product, x: Tensor, Y: Tensor, W: Tensor, senders: Tensor, receivers: Tensor, count: int) -> Tensor:
    """Gather, e3nn's product, sum."""
    messages = product(x[senders], Y, W)
    return x.new_zeros(count, messages.shape[1]).index_add(0, receivers, messages)
