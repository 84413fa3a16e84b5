"""Exported models, run by libclebsch, against upstream: every option, every kind of structure, both dtypes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import cases
import structures
import upstream
from clebsch import export
from clebsch.check import gradient_error, rotation_error
from clebsch.compare import Values, compare_file, errors, evaluate, upstream_mace, upstream_nequip
from clebsch.model_file import read_metadata
from clebsch.neighbours import NeighbourFinder
from clebsch.probe import random_structure
from clebsch.runtime import Model

pytestmark = pytest.mark.usefixtures("needs_library")

#: Largest allowed relative errors of energy, forces and virial (clebsch.compare.errors); the largest single force
#: component may be ten times worse than the RMS.
EXACT, TABLE, SINGLE = 1e-10, 1e-6, 1e-5


def run(model: Model, atoms) -> Values:
    types = torch.tensor([model.type_names.index(s) for s in atoms.get_chemical_symbols()])
    edges = NeighbourFinder(model.r_max).find(atoms.positions, atoms.cell, atoms.pbc)
    out = model.compute(edges.vectors, types, edges.receivers, edges.senders)
    return Values(out["atomic_energy"], out["forces"], out["virial"])


def assert_close(got: Values, want: Values, limit: float) -> None:
    found = errors(got, want)
    assert all(found[k] <= (10 * limit if k == "forces_max" else limit) for k in found), (found, limit)


def by_day(names, *nightly: str) -> list:
    """Parameters of which some are for the night: the large presets take longer than all other cases together."""
    return [pytest.param(name, marks=[pytest.mark.nightly] if name in nightly else []) for name in names]


@pytest.mark.parametrize("name", by_day(cases.CASES, "preset-XL"))
def test_float64(name, upstream_model, exported):
    """Exact radial functions and tables against upstream in fp64."""
    atoms = structures.triclinic(cases.TYPES)
    want = upstream.evaluate(upstream_model(name), atoms)
    assert np.sqrt((want.forces.numpy() ** 2).mean()) > 0.1
    assert_close(run(Model(exported(name), radial="exact"), atoms), want, EXACT)
    assert_close(run(Model(exported(name)), atoms), want, TABLE)


@pytest.mark.parametrize("name", by_day(cases.CASES, "preset-L", "preset-XL"))
def test_float32(name, upstream_model, exported):
    """A model trained in fp32, run in fp32, against upstream in fp32."""
    atoms = structures.triclinic(cases.TYPES)
    want = upstream.evaluate(upstream_model(name, "float32"), atoms)
    model = Model(exported(name, "float32"))
    assert model.dtype == "float32"
    assert_close(run(model, atoms), want, SINGLE)


#: What is left to the night: the large case with kinds of structures that the small ones meet too.
LARGE = {("preset-M", kind) for kind in structures.ALL if kind not in ("triclinic", "wire", "one_atom")}


@pytest.mark.parametrize(
    ("name", "structure"),
    [
        pytest.param(name, kind, marks=[pytest.mark.nightly] if (name, kind) in LARGE else [])
        for name in cases.CHOSEN
        for kind in structures.ALL
    ],
)
def test_structures(name, structure, upstream_model, exported):
    atoms = structures.ALL[structure](cases.TYPES)
    want = upstream.evaluate(upstream_model(name), atoms)
    assert_close(run(Model(exported(name), radial="exact"), atoms), want, EXACT)
    assert_close(run(Model(exported(name)), atoms), want, TABLE)


def test_energies_alone(tmp_path):
    """A model trained without derivatives is compared with its forces, and left as it was."""
    model = upstream.build(**cases.small(do_derivatives=False)).train()
    assert max(export.nequip(model, tmp_path / "model.pt").errors.values()) < EXACT
    assert model.training and not any(getattr(module, "do_derivatives", False) for module in model.modules())


def test_mace_model_on_another_device():
    """Its inputs follow it there; a device without numbers stands in for a GPU."""

    class Elsewhere(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1, device="meta"))
            self.atomic_numbers = torch.tensor([1, 8])

        def forward(self, data, **_) -> dict:
            assert {value.device.type for value in data.values()} == {"meta"}
            atoms = len(data["positions"])
            return {"node_energy": torch.ones(atoms), "forces": torch.zeros(atoms, 3), "virials": None}

    values = upstream_mace(Elsewhere(), random_structure(2, 4.0, 0), [1, 8])
    assert float(values.atomic.sum()) == 8.0


def test_every_type_is_compared(tmp_path):
    """An error in one type alone shows, however many types there are."""
    names = ["H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na"]
    shifts = dict.fromkeys(names, 0.0)
    options = cases.small(type_names=names, per_type_energy_scales=5.0)
    model = upstream.build(**options, per_type_energy_shifts=shifts)
    export.nequip(model, tmp_path / "model.pt", verify=False)
    for name in names:
        other = upstream.build(**options, per_type_energy_shifts={**shifts, name: 10.0})
        found = compare_file(tmp_path / "model.pt", partial(upstream_nequip, other), seeds=1)
        assert found["energy"] > 0.1, name
    assert max(compare_file(tmp_path / "model.pt", partial(upstream_nequip, model)).values()) < EXACT


@pytest.mark.parametrize("radial", ["exact", "table"])
@pytest.mark.parametrize("name", cases.CHOSEN)
def test_forces_are_the_gradient(name, radial, exported):
    model = Model(exported(name), radial=radial)
    assert gradient_error(model, random_structure(3, model.r_max, 4)) < 1e-6


@pytest.mark.parametrize("name", cases.CHOSEN)
def test_virial_is_the_strain_derivative(name, exported):
    model = Model(exported(name))
    probe = random_structure(3, model.r_max, 5)
    generator = torch.Generator().manual_seed(3)
    strain = torch.randn(3, 3, generator=generator, dtype=torch.float64)

    def energy(s: float) -> float:
        matrix = torch.eye(3, dtype=torch.float64) + s * strain
        return float(evaluate(model, probe.moved(probe.positions @ matrix, probe.cell @ matrix)).atomic.sum())

    h = 1e-4
    slope = (8 * (energy(h) - energy(-h)) - (energy(2 * h) - energy(-2 * h))) / (12 * h)
    virial = evaluate(model, probe).virial
    assert abs(slope + float((virial * strain).sum())) < 1e-6 * float(virial.abs().max())


@pytest.mark.parametrize("name", cases.CHOSEN)
def test_equivariance(name, exported):
    """Rotation with reflection, translation (lattice vectors added to single atoms), permutation."""
    model = Model(exported(name))
    probe = random_structure(3, model.r_max, 6)
    assert rotation_error(model, probe) < 1e-10
    before = evaluate(model, probe)

    generator = torch.Generator().manual_seed(4)
    jump = torch.randint(-2, 3, (len(probe.types), 3), generator=generator).double()
    moved = probe.moved(probe.positions + jump @ probe.cell + 0.7)
    moved.shifts = probe.shifts + jump[probe.receivers] - jump[probe.senders]
    assert_close(evaluate(model, moved), before, 1e-11)

    order = torch.randperm(len(probe.types), generator=generator)
    place = torch.argsort(order)
    permuted = evaluate_edges(model, probe, probe.types[order], place[probe.receivers], place[probe.senders])
    assert_close(Values(permuted.atomic[place], permuted.forces[place], permuted.virial), before, 1e-11)


def evaluate_edges(model, probe, types, receivers, senders) -> Values:
    """Edges in random order as well."""
    shuffle = torch.randperm(len(receivers), generator=torch.Generator().manual_seed(9))
    out = model.compute(probe.vectors[shuffle], types, receivers[shuffle], senders[shuffle])
    return Values(out["atomic_energy"], out["forces"], out["virial"])


@pytest.mark.parametrize("name", cases.CHOSEN)
def test_segments_compose_to_forward(name, exported):
    """embed, layer_k, readout and pair_energy, called one by one, give forward, and upstream's names are methods."""
    path = exported(name)
    module = torch.jit.load(path)
    probe = random_structure(3, Model(path).r_max, 7)
    count = len(probe.types)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(probe.receivers, minlength=count).cumsum(0)])
    by_sender = torch.argsort(probe.senders, stable=True)
    col_ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(probe.senders, minlength=count).cumsum(0)])
    layers = read_metadata(path)["layers"]
    graph = [row_ptr, probe.senders, probe.receivers, col_ptr, by_sender]
    graph = [t.int() for t in graph]
    graph += [torch.full((layers,), count, dtype=torch.int32), torch.tensor([count], dtype=torch.int32)]
    types = probe.types.int()
    whole = module(probe.vectors, types, graph)["atomic_energy"]
    x = module.embed(types)
    for k in range(layers):
        x = getattr(module, f"layer_{k}")(x, probe.vectors, types, graph)
    energy = module.readout(x, types)
    if read_metadata(path)["pair_energy"]:
        energy = energy + module.pair_energy(probe.vectors, types, graph)
    assert whole.dtype == torch.float64
    torch.testing.assert_close(energy, whole, rtol=0, atol=0)
    torch.testing.assert_close(whole, evaluate(Model(path, radial="exact"), probe).atomic, rtol=1e-12, atol=1e-12)


def test_table_errors_are_reported_and_small(exported):
    """The relative error of value and slope of every radial table, measured by the library when it builds them."""
    for name in cases.CASES:
        for table in Model(exported(name)).tables:
            assert table["value_error"] < 2e-6 and table["slope_error"] < 3e-5, (name, table)


def test_float64_run_of_a_float32_model(upstream_model, exported):
    atoms = structures.triclinic(cases.TYPES)
    want = upstream.evaluate(upstream_model("preset-S", "float32"), atoms)
    got = Model(exported("preset-S", "float32"), dtype="float64", radial="exact")
    assert got.dtype == "float64"
    assert_close(run(got, atoms), want, SINGLE)


def test_file_holds_allowed_operators_only(exported):
    """The graphs of every method, against the list that the loader enforces (src/model/file/allowed_ops.txt)."""
    from conftest import ROOT

    listed = (ROOT / "src/model/file/allowed_ops.txt").read_text().splitlines()
    allowed = {line.strip() for line in listed if line.strip() and not line.startswith("#")}
    for name in cases.CASES:
        module = torch.jit.load(exported(name))
        for part in module.modules():
            for method in part._c._method_names():
                kinds = {node.kind() for node in part._c._get_method(method).graph.nodes()}
                assert kinds <= allowed, (name, method, kinds - allowed)
