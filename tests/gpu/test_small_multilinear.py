"""The smallest calls that between them launch every kernel of libclebsch_multilinear, for compute-sanitizer to watch.

As test_small_models.py does with models. Results are compared with the formulas in float64."""

from __future__ import annotations

import pytest
import torch
from test_triangle_backward import compare as compare_update

from clebsch.attention import graph_attention, graph_attention_reference
from clebsch.sampling import KhatriRaoSampler
from test_attention import compare as compare_attention
from test_attention import low_rank
from test_attention import tensors as attention_tensors
from test_attention_stream import compare as compare_stream
from test_attention_stream import normal
from test_attention_stream import tensors as stream_tensors
from test_graph_attention import close, edges_of
from test_graph_attention import compare as compare_graph
from test_graph_attention import tensors as graph_tensors
from test_sampling import compare as compare_draws
from test_sampling import factors
from test_triangle import a_mask, check, pairs, weights

pytestmark = pytest.mark.sanitize
#: Of linear attention: mma.sync, wgmma (both sizes of a head), loops, products of double precision by tensor cores.
KINDS = {
    "half": (32, 32, torch.float16),
    "wide": (64, 64, torch.bfloat16),
    "wider": (128, 128, torch.float16),
    "single": (24, 8, torch.float32),
    "products": (32, 64, torch.float32),
    "double": (8, 40, torch.float64),
}


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("kind", KINDS)
def test_linear_attention(kind, causal, device):
    d, dv, dtype = KINDS[kind]
    q, k, v = attention_tensors(1, 2, 1, 70, 70, d, dv, dtype, device)
    bound = 5e-3 if dtype == torch.bfloat16 else 1e-3 if dtype == torch.float16 else None
    compare_attention(q, k, v, eps=0.1, bound=bound, causal=causal)
    offsets = torch.tensor([0, 1, 1, 34, 70], dtype=torch.int32, device=device)
    multiplicity = (torch.arange(70, device=device) % 3).to(dtype)[None]
    compare_attention(q, k, v, multiplicity, offsets, 0.1, bound=bound, causal=causal)


@pytest.mark.parametrize("keys", [200, 600])
def test_clusters_of_blocks(keys, device):
    """Two blocks, or four, add their sums of keys, and of queries on the way back."""
    compare_attention(*attention_tensors(1, 2, 1, keys, keys, 64, 64, torch.float16, device), bound=1e-3)


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("d", [32, 64])
def test_flagged_queries(d, causal, device):
    """Queries whose sums cancel in 32 bits are done again in double precision."""
    q, _, v = attention_tensors(1, 1, 1, 48, 48, d, d, torch.float16, device)
    k = low_rank(48, d, 8, 1e-2, torch.float16, device)
    _, _, w = torch.linalg.svd(k[0, 0].double(), full_matrices=False)
    q[0, 0, ::2] = ((q[0, 0, ::2].double() @ w[8:].T) @ w[8:]).half()
    compare_attention(q, k, v, eps=1e-4, bound=2e-3, causal=causal)


STREAMS = [
    *((d, torch.float16, mask) for d in (16, 64) for mask in (None, "bool", "number")),
    (128, torch.bfloat16, "bool"),
    (24, torch.float32, "number"),
    (8, torch.float64, "bool"),
    (8, torch.float64, None),
]


@pytest.mark.parametrize(("d", "dtype", "mask"), STREAMS, ids=str)
def test_streamed_attention(d, dtype, mask, device):
    """Loops, mma.sync, and wgmma, which takes more than 64 queries; keys by eight and one by one."""
    bound = 1e-2 if dtype == torch.bfloat16 else 2e-3 if dtype == torch.float16 else None
    for keys in (144, 67):
        q, k, v = stream_tensors(1, 2, 1, 70, keys, d, d, dtype, device)
        masks = {
            "bool": normal((70, keys), torch.float32, device, 5) > 0,
            "number": normal((70, keys), dtype, device, 6),
        }
        compare_stream(q, k, v, eps=0.1, mask=masks.get(mask), bound=bound)
    if mask:
        bias = normal((2, 70, 67), dtype, device, 7)
        compare_stream(q, k, v, eps=0.1, mask=masks[mask], bias=bias, bound=bound)
    else:
        compare_stream(q, k, v, normalise="softmax", bound=bound)


@pytest.mark.parametrize("normalise", ["none", "l2", "softmax"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=lambda t: str(t)[6:])
def test_graph_attention(dtype, normalise, device):
    """Two tensors and one, rows by 16 bytes and by numbers, second derivatives."""
    senders, receivers, f = edges_of(9, 11, 0.4, device)
    for d, dv in ((16, 8), (5, 3)):
        q, k, v = graph_tensors(9, 11, 2, 1, d, dv, dtype, device)
        compare_graph(q, k, v, senders, receivers, f, normalise)
    compare_graph(q, k, None, senders, receivers, f, normalise)
    if dtype == torch.float16:
        return

    def step(real, attention):
        x = [t.to(real).requires_grad_() for t in (q, k, v)]
        factors_of = f.to(real).requires_grad_()
        out = attention(*x, senders, receivers, factors_of, normalise)
        forces = torch.autograd.grad(out.square().sum(), [factors_of, x[1]], create_graph=True)
        return torch.autograd.grad(sum(y.square().sum() for y in forces), [*x, factors_of])

    for a, b in zip(step(dtype, graph_attention), step(torch.float64, graph_attention_reference), strict=True):
        close(a, b, 1e-11 if dtype == torch.float64 else 2e-5, normalise)


UPDATES = [
    *(((2, 3, 32, 32, 32), precision) for precision in ("fp16", "ieee")),
    *(((1, 17, 64, 32, 64), precision) for precision in ("bf16", "tf32x3")),
    ((1, 16, 128, 128, 128), "bf16"),
    ((1, 9, 256, 64, 96), "fp16"),
    ((1, 8, 160, 32, 32), "bf16"),
    *(((1, 8, 48, 80, 16), precision) for precision in ("fp16", "tf32x3")),
]


@pytest.mark.parametrize(("shape", "precision"), UPDATES, ids=str)
def test_triangle(shape, precision, device):
    """The fused kernels for narrow and wide rows, the composed ones, and products by all of cuBLAS's ways."""
    batch, n, d, hidden, out = shape
    direction, gate = (("outgoing", "after"), ("incoming", "before"))[n % 2]
    x, mask = pairs(batch, n, n, d, device=device), a_mask("bool" if n % 2 else "number", batch, n, n, device=device)
    check(x, weights(d, hidden, out, gate, device), direction, mask, gate, precision)


@pytest.mark.parametrize(
    ("precision", "n", "width", "mask"),
    [("tf32x3", 9, 32, "number"), ("ieee", 5, 16, "number"), ("fp16", 9, 48, "number"), ("fp16", 8, 128, "number"),
     ("bf16", 8, 64, "number"), ("fp16", 16, 128, "fixed"), ("bf16", 24, 128, "bool")],
)  # fmt: skip
def test_gradients_of_triangle(precision, n, width, mask, device):
    compare_update(precision, device, n, width, width, width, mask=mask)


def test_sampling_of_numbers_out_of_range(device):
    """Columns are scaled by their range before they are multiplied."""
    u = factors((60, 50), 4)
    u[0] *= 1e150
    u[1][:, 2] *= 1e-150
    compare_draws(KhatriRaoSampler(u), KhatriRaoSampler([v.to(device) for v in u]), 64, seed=1)


@pytest.mark.parametrize("columns", [3, 34, 50, 70, 100, 133])
def test_sampling(columns, device):
    """A tree, changes of it, draws with all factors and without one."""
    u = factors((40, columns + 9), columns, seed=3)
    host, there = KhatriRaoSampler(u, leaf_rows=4), KhatriRaoSampler([v.clone().to(device) for v in u], leaf_rows=4)
    compare_draws(host, there, 20, seed=1)
    compare_draws(host, there, 20, seed=1, exclude=0)
    host.set(0, 3, 0, 2.0)
    there.set(0, 3, 0, 2.0)
    new = factors((33 + columns,), columns, seed=9)[0]
    host.set_factor(1, new)
    there.set_factor(1, new.to(device))
    compare_draws(host, there, 20, seed=3)
