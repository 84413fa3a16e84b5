"""The smallest runs that between them launch every kernel that ships (kernel_names.py), for compute-sanitizer to watch.

Models of tests/unit with 5 to 8 channels on seven atoms, not recorded: recording needs torch's cache of memory, in
which the borders of an array are not those of an allocation. Then single ops for what such a model does not reach:
receivers that are cut into parts, derivatives that training needs, a graph longer than a tile of the scan. Results are
compared with the CPU where that has them. scripts/sanitizer_record.py runs them under all tools.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from density_cases import with_density
from exchange_cases import added, copied
from interaction_cases import TOLERANCE as OP_TOLERANCE
from interaction_cases import compare, make_case, radial_problems
from model_cases import Structure, difference, evaluate, gas, largest, limits, load
from test_conv_variants import TEXTS, graphs, run
from test_conv_variants import Case as Convolution
from test_model import PER_ATOM, TOLERANCE, check_lists_of_pairs

from test_edge_embedding import TOLERANCE as EMBEDDING_TOLERANCE
from test_edge_embedding import Edges, problem
from test_symmetric_contraction import Case as Contraction
from test_symmetric_contraction import relative

sys.path.append(str(Path(__file__).resolve().parents[1] / "parity"))
from clebsch.runtime import Model  # noqa: E402
from graded_models import write_graded  # noqa: E402

pytestmark = pytest.mark.sanitize
INTERACTION, ALLEGRO = "CLEBSCH_CUDA_INTERACTION", "CLEBSCH_CUDA_ALLEGRO"
#: A model, the dtype, a plan of its kernels, options of Model.
MODELS = {
    "nequip pieces": ("small-nequip", "float32", {INTERACTION: "spline=0"}, {}),
    "nequip splines": ("small-nequip", "float32", {INTERACTION: "spline=1"}, {}),
    "nequip fp64 pieces": ("small-nequip", "float64", {INTERACTION: "spline=0"}, {}),
    "nequip fp64 splines": ("small-nequip", "float64", {INTERACTION: "spline=1"}, {}),
    "nequip projected": ("uniform-nequip", "float32", {INTERACTION: "projection=1"}, {}),
    "nequip by sender": ("small-nequip", "float32", {INTERACTION: "turned=1"}, {}),
    "nequip by sender, atomic sums": ("small-nequip", "float32", {INTERACTION: "turned=1"}, {"deterministic": False}),
    "nequip atomic sums": ("small-nequip", "float32", {}, {"deterministic": False}),
    "nequip without tables": ("small-nequip", "float64", {}, {"radial": "exact"}),
    "mace": ("small-mace", "float32", {}, {}),
    "mace fp64": ("small-mace", "float64", {}, {}),
    "mace projected": ("uniform-mace", "float32", {INTERACTION: "projection=1"}, {}),
    "allegro 3xTF32": ("small-allegro", "float32", {ALLEGRO: "dense=tf32x3"}, {}),
    "allegro fp32": ("small-allegro", "float32", {ALLEGRO: "dense=fp32"}, {}),
    "allegro fp64": ("small-allegro", "float64", {}, {}),
    "allegro wide 3xTF32": ("allegro-l2", "float32", {ALLEGRO: "dense=tf32x3"}, {}),
    "allegro wide fp32": ("allegro-l2", "float32", {ALLEGRO: "dense=fp32"}, {}),
    "allegro tiles": ("allegro-l2", "float32", {ALLEGRO: "dense=tiles"}, {}),
    "allegro short slabs": ("allegro-l2", "float32", {ALLEGRO: "depth=16,split=0"}, {}),
    "allegro chunks": ("small-allegro", "float32", {ALLEGRO: "edges=64,longest=256"}, {}),
}
#: Relative error of splines against the pieces that the CPU reads in float64: both are tables of one function.
TABLES = 1e-6
PROBLEMS = radial_problems()


def steps(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Errors against the CPU of graphs of seven atoms and of one."""
    model, dtype, environment, options = MODELS[name]
    for variable, value in environment.items():
        if device == "cuda" or value != "projection=1":  # that one is for a device that runs the kernels
            monkeypatch.setenv(variable, value)
    if device == "cuda":
        options = options | {"cuda_graph": False}
    tested = load(model, device, dtype, **options)
    expected = load(model, "cpu", dtype, **({"radial": "exact"} if "radial" in options else {}))
    errors: dict[str, float] = {}
    for structure in (gas(7, 3), gas(1)):
        got = evaluate(tested, structure, **PER_ATOM)
        errors = largest(errors, difference(got, evaluate(expected, structure, **PER_ATOM)))
    return errors


@pytest.mark.parametrize("name", MODELS)
def test_step(name, device, within, monkeypatch) -> None:
    errors = steps(name, device, monkeypatch)
    _, dtype, environment, _ = MODELS[name]
    splines = dtype == "float64" and environment.get(INTERACTION) == "spline=1"
    within(errors, limits(errors, TABLES if splines and device == "cuda" else TOLERANCE[dtype]))


def test_step_with_checked_indices(device, within, monkeypatch) -> None:
    monkeypatch.setenv("CLEBSCH_CUDA_CHECK", "1")
    errors = steps("nequip fp64 pieces", device, monkeypatch)
    within(errors, limits(errors, TOLERANCE["float64"]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_features_of_allegro(dtype, device, within) -> None:
    """With gradients and without, of graphs of seven atoms and of one."""
    options = {"cuda_graph": False} if device == "cuda" else {}
    tested, expected = load("small-allegro", device, dtype, **options), load("small-allegro", "cpu", "float64")
    errors: dict[str, float] = {}
    for structure in (gas(7, 3), gas(1)):
        for wanted in ({}, {"forces": False, "virial": False}):
            got, exact = (evaluate(m, structure, outputs=["last_features"], **wanted) for m in (tested, expected))
            errors = largest(errors, difference(got, exact, ("forces", "last_features")))
    within(errors, limits(errors, TOLERANCE[dtype]))


@pytest.mark.parametrize("grade", ["leverage", "squares"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_grades(dtype, grade, device, within, tmp_path) -> None:
    options = {"cuda_graph": False} if device == "cuda" else {}
    path = write_graded(tmp_path / "model.pt", grade=grade)
    tested, expected = Model(path, device=device, dtype=dtype, **options), Model(path, dtype="float64")
    errors: dict[str, float] = {}
    for structure in (gas(7, 3), gas(1)):
        got, exact = (evaluate(m, structure, outputs=["extrapolation"]) for m in (tested, expected))
        errors = largest(errors, difference(got, exact, ("forces", "extrapolation")))
    within(errors, limits(errors, TOLERANCE[dtype]) | {"extrapolation": 2e-2 if dtype == "float32" else 1e-9})


@pytest.mark.parametrize("model", ["small-nequip", "small-allegro"])
def test_list_of_pairs(model, within) -> None:
    assert check_lists_of_pairs(model, "float64", [gas(7, 1), gas(0), gas(1)], 2, within, cuda_graph=False) == 0


def test_systems(device, within) -> None:
    """Three systems, the second empty, with cells of their own: a list, then a step that it serves."""
    random = np.random.default_rng(4)
    options = {"cuda_graph": False} if device == "cuda" else {}
    tested, expected = load("small-nequip", device, "float64", **options), load("small-nequip", "cpu", "float64")
    positions = torch.from_numpy(random.uniform(0, 4, (9, 3)))
    cells = torch.tensor([[4.1, 4.3, 5.2], [3.0, 3.0, 3.0], [3.1, 3.3, 0.0]], dtype=torch.float64).diag_embed()
    periodic = torch.tensor([[True, True, True], [True, True, True], [True, True, False]])
    starts, types = torch.tensor([0, 6, 6, 9], dtype=torch.int32), torch.tensor([0, 1] * 4 + [0], dtype=torch.int32)
    errors: dict[str, float] = {}
    for _ in range(2):
        got, exact = (m.compute_systems(positions, cells, periodic, starts, types) for m in (tested, expected))
        errors = largest(errors, difference(got, exact, ("energies", "forces", "virials")))
        positions += 0.01
    within(errors, limits(errors, TOLERANCE["float64"]))


def test_more_rows_than_a_tile(device, within) -> None:
    """Pairs of atoms far from each other: many rows, few edges."""
    atoms = 8400
    positions = np.zeros((atoms, 3))
    positions[:, 0] = 20.0 * (np.arange(atoms) // 2) + 1.5 * (np.arange(atoms) % 2)
    structure = Structure(positions, 0.0, np.arange(atoms) % 2)
    options = {"cuda_graph": False} if device == "cuda" else {}
    got = evaluate(load("small-allegro", device, "float64", **options), structure)
    errors = difference(got, evaluate(load("small-allegro", "cpu", "float64"), structure))
    within(errors, limits(errors, TOLERANCE["float64"]))


@pytest.mark.parametrize("dtype", list(OP_TOLERANCE), ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("density", [False, True], ids=["messages", "density"])
def test_interaction_cut_into_parts(density, dtype, device, within) -> None:
    """Receivers of so many edges that several blocks share them, with and without the transpose."""
    case = make_case(PROBLEMS["test-uneven"], [1500, 0, 3], 5, types=2, pieces=16).rounded(torch.float32)
    case = with_density(case) if density else case
    expected = case.operands(torch.float64, "cpu").results()
    errors = {}
    for transpose in (True, False):
        for mask in ((True, True), (False, True)):
            got = case.operands(dtype, device, transpose).results(mask)
            errors[f"transpose {transpose}, {mask}"] = compare(case, got, expected)
    within(errors, OP_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["test-uneven", "test-uvw", "test-weightless"])
def test_convolution(name, dtype) -> None:
    """Forward, backward and double backward, deterministic and with atomic sums; parts of a long receiver."""
    for deterministic in (True, False):
        for graph in ("uneven", "long"):
            case = Convolution(name, dtype, graph=graph, deterministic=deterministic)
            run(case, TEXTS[name], graphs()[graph])


@pytest.mark.parametrize("dtype", list(EMBEDDING_TOLERANCE), ids=lambda t: str(t)[6:])
def test_edge_embedding(dtype, device, within) -> None:
    edges = Edges(8, 40, 5, 6)
    got = edges.derivatives(problem(1, 5), dtype, device)
    expected = edges.derivatives(problem(1, 5), torch.float64, "cpu")
    errors = {str(k): relative(a, b) for k, (a, b) in enumerate(zip(got, expected, strict=True))}
    within(errors, 10 * EMBEDDING_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=lambda t: str(t)[6:])
def test_symmetric_contraction(dtype, device, within) -> None:
    case, errors = Contraction("test-uneven", 9, 2, 7), {}
    for of_weights in (False, True):
        got, expected = case.results(device, dtype, of_weights), case.results("cpu", torch.float64, of_weights)
        errors |= {f"{of_weights} {k}": relative(a, b) for k, (a, b) in enumerate(zip(got, expected, strict=True))}
    within(errors, 1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=lambda t: str(t)[6:])
def test_rows_of_an_exchange(dtype) -> None:
    """Rows of 4, 8 and 16 byte words."""
    for width in (3, 2, 8):
        assert all(copied(dtype, width, "cuda", rows=150).values())
        assert added(dtype, width, "cuda", rows=150)


@pytest.mark.parametrize("way", ["wgmma=0", "wgmma=1"])
@pytest.mark.parametrize("by_type", [False, True])
def test_maps_of_many_nodes(by_type, way, device, within, monkeypatch) -> None:
    """Blocks that walk through several column tiles, which a map has from a block a multiprocessor on: 4,300 nodes are
    34 groups of rows, with five tiles forward and four back. On Hopper GPUs also blocks that keep weights instead."""
    monkeypatch.setenv("CLEBSCH_CUDA_LINEAR", way)
    text, nodes, types = "linear in=40x0e+4x1o out=72x0e+4x1o", 4300, 2
    random = torch.Generator().manual_seed(1)
    x, grad = torch.randn(nodes, 52, generator=random), torch.randn(nodes, 84, generator=random)
    weight = torch.randn((types, 2896) if by_type else (2896,), generator=random)
    type_of = torch.randint(0, types, (nodes,), generator=random, dtype=torch.int32)
    empty = torch.zeros(0, dtype=torch.int32)
    graph = [empty] * 5 + [torch.tensor([nodes - 40], dtype=torch.int32), empty]  # the last rows are none

    def results(where: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        rows, weights = x.to(where, dtype).requires_grad_(), weight.to(where, dtype)
        there = [one.to(where) for one in graph]
        if by_type:
            out = torch.ops.clebsch.species_linear(rows, weights, type_of.to(where), there, 0, text)
        else:
            out = torch.ops.clebsch.linear(rows, weights, there, 0, text)
        return out.detach().cpu(), torch.autograd.grad(out, rows, grad.to(where, dtype))[0].cpu()

    pairs = zip(results(device, torch.float32), results("cpu", torch.float64), strict=True)
    within({name: relative(*pair) for name, pair in zip(("out", "gradient"), pairs, strict=True)}, 1e-6)
