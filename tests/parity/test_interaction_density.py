"""interaction_density against two interactions, its gradients against finite differences, its checks, and model files
from before it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clebsch.export import backend
from clebsch.probe import random_structure
from clebsch.runtime import Model
from test_ops import CONV, F64, graph, leaf, replaced, same  # noqa: F401

pytestmark = pytest.mark.usefixtures("needs_library")
OPS = torch.ops.clebsch
SUM = "conv in1=1x0e in2=1x0e out=1x0e paths=uvu:0,0,0,1 radial=bessel,0.7,6,5-1,silu,density"


def arguments_of(graph: dict, layer: int, exact: bool) -> list:  # noqa: F811
    """Arguments of the op; tables are of different finenesses and one for each of four pairs."""
    _, _, cutoffs, roots, network = graph["radial"]
    weights = graph["random"](5)
    radials = []
    for text, values, pieces in ((CONV, network, 24), (SUM, weights, 70)):
        table = torch.classes.clebsch.Model.radial_tables(text, cutoffs.flatten(), roots, values[None], pieces)
        index = torch.arange(4, dtype=torch.int32).reshape(2, 2)
        radials.append([table[:0] if exact else table, index, cutoffs, roots, values])
    x = graph["random"](graph["n"], 13)
    return [x, graph["vec"], graph["list"], graph["types"], *radials, layer, CONV, SUM]


def two_interactions(x, vec, lists, types, radial, density, layer, text, density_text):
    ones = torch.ones(x.shape[0], 1, dtype=x.dtype)
    return [
        OPS.interaction(x, vec, lists, types, radial, layer, text),
        OPS.interaction(ones, vec, lists, types, density, layer, density_text),
    ]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("layer", [-1, 0, 1])
def test_two_interactions_in_one(graph: dict, layer: int, exact: bool) -> None:  # noqa: F811
    arguments = arguments_of(graph, layer, exact)
    above = [graph["random"](graph["n"], 37), graph["random"](graph["n"], 1)]
    results = []
    for op in (OPS.interaction_density, two_interactions):
        x, vec = leaf(arguments[0]), leaf(arguments[1])
        out = op(x, vec, *arguments[2:])
        results.append([*out, *torch.autograd.grad(out, (x, vec), above)])
        # One result alone, and no gradient of x.
        results[-1] += torch.autograd.grad(op(x.detach(), vec, *arguments[2:])[1].sum(), vec)
        results[-1] += torch.autograd.grad(op(x, vec, *arguments[2:])[0].sum(), (x, vec))
    for ours, reference in zip(*results, strict=True):
        assert ours.shape == reference.shape
        same(ours.detach(), reference.detach())
    single = [t.float() if t.dtype == F64 and t is not arguments[1] else t for t in arguments[:2]]
    radials = [[r[0].float(), *r[1:4], r[4].float()] for r in arguments[4:6]]
    rounded = OPS.interaction_density(single[0], arguments[1], *arguments[2:4], *radials, *arguments[6:])
    for ours, reference in zip(rounded, results[0], strict=False):
        assert ours.dtype == torch.float32 and (ours - reference).abs().max() < 1e-5 * reference.abs().max()


@pytest.mark.parametrize("exact", [False, True])
def test_first_derivatives(graph: dict, exact: bool) -> None:  # noqa: F811
    x, vec, *rest = arguments_of(graph, 0, exact)
    assert torch.autograd.gradcheck(
        lambda x, vec: tuple(OPS.interaction_density(x, vec, *rest)), (leaf(x), leaf(vec)), eps=1e-6, atol=1e-6
    )


def test_second_derivatives_are_refused(graph: dict) -> None:  # noqa: F811
    x, vec, *rest = arguments_of(graph, 0, False)
    vec = leaf(vec)
    first = torch.autograd.grad(OPS.interaction_density(x, vec, *rest)[1].sum(), vec, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="interaction_density has first derivatives only"):
        torch.autograd.grad(first.sum(), vec)


def test_meta_and_no_edges(graph: dict) -> None:  # noqa: F811
    x, vec, lists, *rest = arguments_of(graph, 0, False)
    out = OPS.interaction_density(x.to("meta"), vec, lists, *rest)
    assert [tuple(t.shape) for t in out] == [(9, 37), (9, 1)]
    empty = [torch.zeros_like(lists[0]), *(t[:0] for t in lists[1:3]), torch.zeros_like(lists[3]), *lists[4:]]
    empty[4] = empty[4][:0]
    out = OPS.interaction_density(x, vec[:0], empty, *rest)
    assert not out[0].any() and not out[1].any()


def test_bad_arguments_are_named(graph: dict) -> None:  # noqa: F811
    arguments = arguments_of(graph, 0, False)
    density = arguments[5]
    for message, place, value in (
        ("density's cutoffs to be those of radial", 5, replaced(density, 2, density[2] * 0.9)),
        ("one radial function", 8, CONV),
        ("one radial function", 8, SUM.replace("0,0,0,1 ", "0,0,0,2 ")),
        ("radial part", 8, SUM.split(" radial=")[0]),
        ("radial's table", 5, replaced(density, 0, density[0].float())),
        ("table_index", 5, replaced(density, 1, density[1] + 1)),
        ("radial of 5 tensors", 5, density[:4]),
    ):
        with pytest.raises(RuntimeError, match=message):
            OPS.interaction_density(*replaced(arguments, place, value))


def test_files_from_before_the_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose densities are interactions of their own loads and gives what one with the op gives."""
    import old_mace_modules

    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "unit")
    from tiny_mace import describe

    backend.write(describe(), tmp_path / "new.pt", "float64")
    product, metadata = backend._product_layer, backend.metadata

    def old_layer(*arguments):
        layer = product(*arguments)
        layer.interaction = old_mace_modules.Interaction(layer.interaction)
        return layer

    def old_metadata(*arguments):
        text = metadata(*arguments)
        for entry in text["radial"]:
            entry["module"] = entry["module"].replace("interaction.density", "interaction.density.sum")
        return text

    monkeypatch.setattr(backend, "_product_layer", old_layer)
    monkeypatch.setattr(backend, "metadata", old_metadata)
    backend.write(describe(), tmp_path / "old.pt", "float64")
    assert b"interaction_density" in (tmp_path / "new.pt").read_bytes()
    assert b"interaction_density" not in (tmp_path / "old.pt").read_bytes()
    probe = random_structure(2, 4.0, 1)
    for options in ({}, {"radial": "exact"}, {"device": "cpu:padded"}):
        results = []
        for name in ("new", "old"):
            model = Model(tmp_path / f"{name}.pt", **options)
            results.append(model.compute(probe.vectors, probe.types, probe.receivers, probe.senders))
            assert len(model.tables) == (0 if options.get("radial") else 4)
        for key, value in results[0].items():
            assert (value - results[1][key]).abs().max() < 1e-12 * results[1][key].abs().max(), (options, key)
