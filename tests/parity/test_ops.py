"""Every op against its slow reference (reference_ops.py), its gradients against finite differences, its checks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import reference_ops
from clebsch import library

pytestmark = pytest.mark.usefixtures("needs_library")
OPS = torch.ops.clebsch
F64 = torch.float64

CONV = (
    "conv in1=4x0e+3x1o in2=1x0e+1x1o+1x2e out=4x0e+3x0e+4x1o+3x1o+3x1o "
    "paths=uvu:0,0,0,1;uvu:0,1,2,1.5;uvu:1,0,3,1;uvu:1,1,1,0.5;uvu:1,2,4,2 radial=bessel,0.7,6,5-7-17,silu"
)
LINEAR = "linear in=4x0e+3x1o+2x2e out=5x0e+6x1o+2x3o"
GATE = "gate scalars=3x0e+2x0o gates=5x0e gated=3x1o+2x2e silu=1.7 tanh=1.6"
SIGMOID_GATE = f"{GATE} sigmoid=1.84"
ZBL = "zbl p=6 scale=7.1998225"
MACE_ZBL = "zbl p=5 scale=5.7 screening=0.3,0.24,0.1818,3.2,0.5099,0.9423,0.2802,0.4028,0.02817,0.2016"


@pytest.fixture(scope="module")
def graph() -> dict:
    """Nine atoms of two types in a cluster; rows 0..5 receive, layer 0 computes 6 rows, layer 1 four of them."""
    generator = torch.Generator().manual_seed(5)
    n, rows = 9, 6
    x = torch.rand(n, 3, generator=generator, dtype=F64) * 3.5
    types = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1], dtype=torch.int32)
    pairs = [(i, j) for i in range(rows) for j in range(n) if i != j and (x[i] - x[j]).norm() < 3.0]
    receivers = torch.tensor([p[0] for p in pairs], dtype=torch.int32)
    senders = torch.tensor([p[1] for p in pairs], dtype=torch.int32)
    row_ptr = torch.zeros(rows + 1, dtype=torch.int32)
    row_ptr[1:] = torch.cumsum(torch.bincount(receivers, minlength=rows), 0)
    col_ptr = torch.zeros(n + 1, dtype=torch.int32)
    col_ptr[1:] = torch.cumsum(torch.bincount(senders, minlength=n), 0)
    col_edge = torch.argsort(senders, stable=True).int()
    layer_rows = torch.tensor([6, 4], dtype=torch.int32)
    tensors = [row_ptr, senders, receivers, col_ptr, col_edge, layer_rows, torch.tensor([3], dtype=torch.int32)]
    cutoffs = torch.tensor([[3.0, 2.6], [2.5, 2.8]], dtype=F64)
    roots = torch.arange(1, 6, dtype=F64) * torch.pi
    network = torch.randn(5 * 7 + 7 * 17, generator=generator, dtype=F64) / 2
    vec = x[senders.long()] - x[receivers.long()]
    return {
        "list": tensors,
        "n": n,
        "types": types,
        "vec": vec,
        "radial": [torch.empty(0, dtype=F64), torch.empty(0, dtype=torch.int32), cutoffs, roots, network],
        "random": lambda *shape: torch.randn(*shape, generator=generator, dtype=F64),
    }


def same(ours: torch.Tensor, reference: torch.Tensor) -> None:
    scale = reference.abs().max().item() + 1e-300
    assert (ours - reference).abs().max().item() < 1e-12 * scale


@pytest.mark.parametrize("layer", [-1, 0, 1])
def test_values(graph: dict, layer: int) -> None:
    g, types, random, n = graph["list"], graph["types"], graph["random"], graph["n"]
    x = random(n, 13)
    arguments = (x, graph["vec"], g, types, graph["radial"], layer, CONV)
    same(OPS.interaction(*arguments), reference_ops.interaction(*arguments))
    x = random(n, 23)
    same(OPS.linear(x, w := random(38), g, layer, LINEAR), reference_ops.linear(x, w, g, layer, LINEAR))
    w = random(2, 38)
    same(OPS.species_linear(x, w, types, g, layer, LINEAR), reference_ops.species_linear(x, w, types, g, layer, LINEAR))
    x = random(n, 29)
    for text in (GATE, SIGMOID_GATE):
        same(OPS.gate(x, g, layer, text), reference_ops.gate(x, g, layer, text))
    parameters = [graph["radial"][2], torch.tensor([8.0, 1.0], dtype=F64)]
    for text in (ZBL, MACE_ZBL):
        same(
            OPS.pair_repulsion(graph["vec"], g, types, parameters, text),
            reference_ops.pair_repulsion(graph["vec"], g, types, parameters, text),
        )


def test_rows_not_computed_are_zero(graph: dict) -> None:
    x = graph["random"](graph["n"], 23)
    out = OPS.linear(x, graph["random"](38), graph["list"], 1, LINEAR)
    assert out[:4].abs().min() >= 0 and not out[4:].any()


def leaf(value: torch.Tensor) -> torch.Tensor:
    return value.clone().requires_grad_(True)


@pytest.mark.parametrize("layer", [-1, 1])
def test_first_derivatives(graph: dict, layer: int) -> None:
    g, types, random, n = graph["list"], graph["types"], graph["random"], graph["n"]
    check = torch.autograd.gradcheck
    radial = graph["radial"]

    def interaction(x, vec, network):
        return OPS.interaction(x, vec, g, types, [*radial[:4], network], layer, CONV)

    assert check(interaction, (leaf(random(n, 13)), leaf(graph["vec"]), leaf(radial[4])), fast_mode=True)
    assert check(
        lambda vec: OPS.edge_embedding(vec, g, types, radial, layer, CONV, F64), (leaf(graph["vec"]),), fast_mode=True
    )
    assert check(
        lambda vec: OPS.pair_repulsion(vec, g, types, [radial[2], torch.tensor([8.0, 1.0], dtype=F64)], MACE_ZBL),
        (leaf(graph["vec"]),),
        fast_mode=True,
    )


@pytest.mark.parametrize("layer", [-1, 1])
def test_node_ops_differentiate_twice(graph: dict, layer: int) -> None:
    g, types, random, n = graph["list"], graph["types"], graph["random"], graph["n"]
    cases = [
        (OPS.dense, (leaf(random(n, 7)), leaf(random(7, 3)))),
        (OPS.dense, (leaf(random(n, 7)), leaf(random(7)))),
        (lambda x, w: OPS.linear(x, w, g, layer, LINEAR), (leaf(random(n, 23)), leaf(random(38)))),
        (lambda x, w: OPS.species_linear(x, w, types, g, layer, LINEAR), (leaf(random(n, 23)), leaf(random(2, 38)))),
        (lambda x: OPS.gate(x, g, layer, GATE), (leaf(random(n, 29)),)),
        (lambda x: OPS.gate(x, g, layer, SIGMOID_GATE), (leaf(random(n, 29)),)),
    ]
    for function, inputs in cases:
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def test_dense_is_a_product_of_matrices(graph: dict) -> None:
    random, n = graph["random"], graph["n"]
    for shape in ((7, 3), (7,), (1, 1), (40, 33)):
        x, weight = random(n, shape[0]), random(*shape)
        same(OPS.dense(x, weight), x @ weight)
        same(OPS.dense(x[0], weight), x[0] @ weight)
        assert OPS.dense(x[:0], weight).shape == (0, *shape[1:])
        assert OPS.dense(x.to("meta"), weight.to("meta")).shape == (n, *shape[1:])
    x, weight = random(7, n).T, random(3, 7).T  # neither needs to be contiguous
    same(OPS.dense(x, weight), x @ weight)
    for x, weight in (
        (random(n, 7), random(6, 3)),
        (random(n, 7), random(7, 3, 1)),
        (random(n, 7, 1), random(7, 3)),
        (random(n, 7), random(7, 0)),
        (random(n, 7).float(), random(7, 3)),
        (random(n, 7).half(), random(7, 3).half()),
    ):
        with pytest.raises(RuntimeError, match="clebsch::(dense|linear).*expected"):
            OPS.dense(x, weight)


@pytest.mark.parametrize("parts", ["direct", "hidden", "direct hidden"])
def test_readout_is_dense_layers_scale_and_shift(graph: dict, parts: str) -> None:
    """A loader's op (src/model/run/fused_readout.h) in float64 against torch, and its first derivative."""
    random, types, n = graph["random"], graph["types"], graph["n"]
    for width, hidden_count in ((7, 16), (33, 1), (129, 5)):
        direct = random(width) if "direct" in parts else None
        hidden, last = (random(width, hidden_count), random(hidden_count)) if "hidden" in parts else (None, None)
        scale, shift, weight = random(2), random(2), random(n)

        def expected(x, direct=direct, hidden=hidden, last=last, scale=scale, shift=shift):
            energy = torch.zeros(n, dtype=F64) if direct is None else x @ direct
            if hidden is not None:
                energy = energy + torch.nn.functional.silu(x @ hidden) @ last
            return shift[types.long()] + scale[types.long()] * energy

        x = leaf(random(n, width))
        others = (direct, hidden, last, scale, shift, types)
        value, reference = OPS.readout(x, *others), expected(x)
        same(value.detach(), reference.detach())
        for ours, theirs in zip(*(torch.autograd.grad(v, x, weight) for v in (value, reference)), strict=True):
            same(ours, theirs)
        with torch.no_grad():
            assert torch.equal(OPS.readout(x, *others), value)
        assert OPS.readout(x[:0].detach(), *others[:-1], types[:0]).shape == (0,)
        gradient = torch.autograd.grad(OPS.readout(x, *others).sum(), x, create_graph=True)[0]
        with pytest.raises(RuntimeError, match="readout"):
            gradient.sum().backward()
        for wrong in (
            (random(n, width + 1), *others),
            (x.half(), *others),
            (x, None, None, None, scale, shift, types),
            (x, direct, hidden, None if last is not None else random(3), scale, shift, types),
            (x, direct, hidden, last, scale[:1], shift, types),
            (x, direct, hidden, last, scale, shift, types + 2),
        ):
            with pytest.raises(RuntimeError, match="readout.*expected"):
                OPS.readout(*wrong)


def test_second_derivatives_that_do_not_exist_are_refused(graph: dict) -> None:
    """Never a silent zero."""
    vec = leaf(graph["vec"])
    parameters = [graph["radial"][2], torch.tensor([8.0, 1.0], dtype=F64)]
    energy = OPS.pair_repulsion(vec, graph["list"], graph["types"], parameters, ZBL)
    (first,) = torch.autograd.grad(energy.sum(), vec, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(first.square().sum(), vec)


def test_capacity_beyond_the_edges_is_never_read(graph: dict) -> None:
    """Edge arrays may be longer than row_ptr[N]; what lies there is not a number."""
    g, types, random, n = graph["list"], graph["types"], graph["random"], graph["n"]
    more = torch.full((7,), 2**30, dtype=torch.int32)
    padded = [g[0], torch.cat([g[1], more]), torch.cat([g[2], more]), g[3], torch.cat([g[4], more]), g[5], g[6]]
    long = torch.cat([graph["vec"], torch.full((7, 3), torch.nan, dtype=F64)])
    parameters = [graph["radial"][2], torch.tensor([8.0, 1.0], dtype=F64)]
    a = OPS.pair_repulsion(graph["vec"], g, types, parameters, ZBL)
    b = OPS.pair_repulsion(long, padded, types, parameters, ZBL)
    assert torch.equal(a, b)
    table = random(1, 9, 6, 17)
    radial = [table, torch.zeros(2, 2, dtype=torch.int32), *graph["radial"][2:]]
    x = random(n, 13)
    results = []
    for vectors, tensors in ((graph["vec"], g), (long, padded)):
        vec, features = leaf(vectors), leaf(x)
        out = OPS.interaction(features, vec, tensors, types, radial, 0, CONV)
        gv, gx = torch.autograd.grad(out.square().sum(), (vec, features))
        results.append((out.detach(), gv[: len(graph["vec"])], gx))
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


def test_without_gradients_and_on_meta(graph: dict) -> None:
    g, random, n = graph["list"], graph["random"], graph["n"]
    x, w = random(n, 23), random(38)
    with torch.no_grad():
        a = OPS.linear(x, w, g, 0, LINEAR)
    with torch.inference_mode():
        b = OPS.linear(x, w, g, 0, LINEAR)
        OPS.interaction(random(n, 13), graph["vec"], g, graph["types"], graph["radial"], 0, CONV)
    assert torch.equal(a, b) and not a.requires_grad
    meta = [t.to("meta") for t in g]
    assert OPS.linear(x.to("meta"), w.to("meta"), meta, 0, LINEAR).shape == a.shape
    out = OPS.interaction(
        random(n, 13).to("meta"),
        graph["vec"].to("meta"),
        meta,
        graph["types"].to("meta"),
        [t.to("meta") for t in [torch.zeros(1, 9, 6, 17), *graph["radial"][1:]]],
        0,
        CONV,
    )
    assert out.shape == (n, 37)


def test_empty_graph() -> None:
    none = torch.zeros(0, dtype=torch.int32)
    one = torch.zeros(1, dtype=torch.int32)
    g = [one, none, none, one, none, torch.zeros(1, dtype=torch.int32), one]
    assert OPS.linear(torch.zeros(0, 23), torch.zeros(38), g, 0, LINEAR).shape == (0, 37)
    assert OPS.gate(torch.zeros(0, 29), g, 0, GATE).shape == (0, 24)
    assert OPS.species_linear(torch.zeros(0, 23), torch.zeros(2, 38), none, g, 0, LINEAR).shape == (0, 37)


def replaced(values: list, place: int, value: torch.Tensor) -> list:
    return [value if k == place else v for k, v in enumerate(values)]


def test_bad_arguments_are_named(graph: dict) -> None:
    g, types, random, n, vec = (graph[k] for k in ("list", "types", "random", "n", "vec"))
    x = random(n, 13)
    radial = [random(1, 9, 6, 17), torch.zeros(2, 2, dtype=torch.int32), *graph["radial"][2:]]
    good = {"x": x, "edge_vec": vec, "graph": g, "types": types, "radial": radial, "layer": 0, "problem": CONV}
    OPS.interaction(**good)
    senders, col_edge = g[1].clone(), g[4].clone()
    senders[3] = 99
    col_edge[0] = 10**6
    row_ptr = g[0].clone()
    row_ptr[2] = -5
    bad = {
        "x of shape": {"x": x[:, :12]},
        "x to be contiguous": {"x": random(13, n).t()},
        "x of dtype Float or Double": {"x": x.half()},
        "edge_vec of dtype Double": {"edge_vec": vec.float()},
        r"edge_vec of shape \(\d+, 3\)": {"edge_vec": vec[:-1]},
        "types of dtype Int": {"types": types.long()},
        r"types\[0\] in \[0, 2\), got 7": {"types": types + 7},
        r"senders\[3\] in \[0, 9\), got 99": {"graph": replaced(g, 1, senders)},
        "col_edge": {"graph": replaced(g, 4, col_edge)},
        "row_ptr not to decrease": {"graph": replaced(g, 0, row_ptr)},
        "receivers disagree": {"graph": replaced(g, 2, g[2].flip(0).contiguous())},
        "graph of 7 or 8 tensors, got 6": {"graph": g[:6]},
        r"layer -1 or in \[0, 2\), got 5": {"layer": 5},
        "radial of 5 tensors": {"radial": radial[:4]},
        "table of shape": {"radial": replaced(radial, 0, random(1, 9, 6, 16))},
        "table of dtype Double": {"radial": replaced(radial, 0, random(1, 9, 6, 17).float())},
        "table_index in": {"radial": replaced(radial, 1, torch.full((2, 2), 1, dtype=torch.int32))},
        "cutoffs in": {"radial": replaced(radial, 2, -radial[2])},
        "in1": {"problem": "conv in1=4x9e"},
    }
    for match, change in bad.items():
        with pytest.raises(RuntimeError, match=match):
            OPS.interaction(**{**good, **change})
    # The exact path checks the same.
    for match in (r"senders\[3\]", "row_ptr not", r"types\[0\]"):
        change = next(c for m, c in bad.items() if m.startswith(match))
        with pytest.raises(RuntimeError, match=match):
            OPS.interaction(**{**good, "radial": graph["radial"], **change})
    with pytest.raises(RuntimeError, match="weight of shape"):
        OPS.linear(random(n, 23), random(37), g, 0, LINEAR)
    with pytest.raises(RuntimeError, match="linear"):
        OPS.linear(random(n, 23), random(38), g, 0, GATE)


def test_the_library_file() -> None:
    """Never unloaded, found by RPATH, and without torch's CUDA side."""
    text = subprocess.run(["readelf", "-d", str(library.require())], capture_output=True, text=True, check=True).stdout
    assert "NODELETE" in text
    needed = re.findall(r"NEEDED.*\[(.*)\]", text)
    assert "libtorch_cpu.so" in needed and not {"libtorch.so", "libtorch_cuda.so", "libcudart.so"} & set(needed)
    assert not any("lammps" in n or "kokkos" in n for n in needed)
    assert "RUNPATH" not in text and "RPATH" in text


def test_one_openmp_and_restored_threads(tmp_path: Path) -> None:
    """torch brings a libgomp of its own; the library must run with it, and leave torch's thread count alone."""
    script = (
        "import sys, torch\n"
        f"sys.path[:0] = {[str(Path(__file__).parents[1] / 'unit'), *sys.path]!r}\n"
        "import tiny_model\n"
        "from clebsch.export import backend\n"
        f"path = {str(tmp_path / 'm.pt')!r}\n"
        "backend.write(tiny_model.describe(), path, 'float32')\n"
        "torch.set_num_threads(2)\n"
        "m = torch.classes.clebsch.Model(path, {'threads': '1'})\n"
        "v = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]], dtype=torch.float64); e = torch.tensor([0, 1])\n"
        "a = m.compute(v, e, e, e.flip(0), 2, 2, True, True, False, False, [])\n"
        "m.set_threads(3)\n"
        "b = m.compute(v, e, e, e.flip(0), 2, 2, True, True, False, False, [])\n"
        "assert torch.get_num_threads() == 2, torch.get_num_threads()\n"
        "assert torch.allclose(a['forces'], b['forces'], rtol=1e-5)\n"
        "maps = {l.split()[-1] for l in open('/proc/self/maps') if 'libgomp' in l}\n"
        "print(len(maps), m.metadata()[:1])\n"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == "" and run.stdout.split() == ["1", "{"], (run.stdout, run.stderr)
