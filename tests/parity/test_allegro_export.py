"""Exported Allegro models, run by libclebsch, against nequip-allegro: every option, every kind of structure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase.stress import full_3x3_to_voigt_6_stress

import allegro_cases
import cases
import structures
import upstream
from clebsch import export
from clebsch.check import gradient_error, rotation_error
from clebsch.compare import Values, errors, evaluate
from clebsch.errors import ExportRefused
from clebsch.model_file import read_metadata
from clebsch.neighbours import NeighbourFinder
from clebsch.probe import random_structure
from clebsch.runtime import Model

pytestmark = pytest.mark.usefixtures("needs_library")

#: As in test_nequip_export.py.
EXACT, TABLE, SINGLE = 1e-10, 1e-6, 1e-5


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """Upstream's model and the file of a case, made once."""
    folder = tmp_path_factory.mktemp("models")
    done = {}

    def get(name: str, dtype: str = "float64") -> tuple[torch.nn.Module, str]:
        if (name, dtype) not in done:
            model = allegro_cases.build(name, dtype)
            path = folder / f"{name}-{dtype}.pt"
            export.allegro(model, path, verify=False)
            done[name, dtype] = model, str(path)
        return done[name, dtype]

    return get


def run(model: Model, atoms) -> Values:
    types = torch.tensor([model.type_names.index(s) for s in atoms.get_chemical_symbols()])
    edges = NeighbourFinder(model.r_max).find(atoms.positions, atoms.cell, atoms.pbc)
    out = model.compute(edges.vectors, types, edges.receivers, edges.senders)
    return Values(out["atomic_energy"], out["forces"], out["virial"])


def assert_close(got: Values, want: Values, limit: float) -> None:
    found = errors(got, want)
    assert all(found[k] <= (10 * limit if k == "forces_max" else limit) for k in found), (found, limit)


@pytest.mark.parametrize("name", allegro_cases.CASES)
def test_float64(name, model_file):
    """Exact two-body part and tables against upstream in fp64."""
    model, path = model_file(name)
    atoms = structures.triclinic(cases.TYPES)
    want = upstream.evaluate(model, atoms)
    assert np.sqrt((want.forces.numpy() ** 2).mean()) > 0.1
    assert_close(run(Model(path, radial="exact"), atoms), want, EXACT)
    assert_close(run(Model(path), atoms), want, TABLE)


@pytest.mark.parametrize("name", allegro_cases.CASES)
def test_float32(name, model_file):
    """A model trained in fp32, run in fp32, against upstream in fp32."""
    model, path = model_file(name, "float32")
    atoms = structures.triclinic(cases.TYPES)
    ours = Model(path)
    assert ours.dtype == "float32"
    assert_close(run(ours, atoms), upstream.evaluate(model, atoms), SINGLE)


@pytest.mark.parametrize("structure", structures.ALL)
@pytest.mark.parametrize("name", allegro_cases.CHOSEN)
def test_structures(name, structure, model_file):
    model, path = model_file(name)
    atoms = structures.ALL[structure](cases.TYPES)
    want = upstream.evaluate(model, atoms)
    assert_close(run(Model(path, radial="exact"), atoms), want, EXACT)
    assert_close(run(Model(path), atoms), want, TABLE)


@pytest.mark.parametrize("radial", ["exact", "table"])
@pytest.mark.parametrize("name", allegro_cases.CHOSEN)
def test_forces_are_the_gradient(name, radial, model_file):
    model = Model(model_file(name)[1], radial=radial)
    assert gradient_error(model, random_structure(3, model.r_max, 4)) < 1e-6


@pytest.mark.parametrize("name", allegro_cases.CHOSEN)
def test_equivariance(name, model_file):
    """Rotation with reflection; permutation of atoms and edges."""
    model = Model(model_file(name)[1])
    probe = random_structure(3, model.r_max, 6)
    assert rotation_error(model, probe) < 1e-10
    before = evaluate(model, probe)
    generator = torch.Generator().manual_seed(4)
    order = torch.randperm(len(probe.types), generator=generator)
    place = torch.argsort(order)
    shuffle = torch.randperm(len(probe.receivers), generator=generator)
    out = model.compute(
        probe.vectors[shuffle], probe.types[order], place[probe.receivers[shuffle]], place[probe.senders[shuffle]]
    )
    permuted = Values(out["atomic_energy"][place], out["forces"][place], out["virial"])
    assert_close(permuted, before, 1e-11)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_same_bits_for_any_number_of_threads(dtype, model_file):
    _, path = model_file("lmax-2-parity-3-layers", dtype)
    probe = random_structure(3, 4.0, 8, side=5)
    one, two = (evaluate(Model(path, threads=n), probe) for n in (1, 2))
    assert torch.equal(one.atomic, two.atomic) and torch.equal(one.forces, two.forces)
    assert torch.equal(one.virial, two.virial)


def test_atoms_without_neighbours_and_no_atoms(model_file):
    """The energy of an isolated atom is its shift; an empty graph is an empty answer."""
    _, path = model_file("shifts")
    model = Model(path)
    nothing = torch.empty(0, dtype=torch.long)
    out = model.compute(torch.empty(0, 3, dtype=torch.float64), torch.tensor([2, 0, 1]), nothing, nothing)
    assert out["atomic_energy"].tolist() == [1.5, -432.1, -13.6] and not out["forces"].any()
    out = model.compute(torch.empty(0, 3, dtype=torch.float64), nothing, nothing, nothing)
    assert out["atomic_energy"].numel() == 0 and float(out["energy"]) == 0.0


def test_rows_that_are_not_computed_change_nothing(model_file):
    """Ghosts as senders only, as LAMMPS gives them with a single cutoff: energies of owned atoms are the same."""
    model = Model(model_file("lmax-2-parity-3-layers")[1])
    probe = random_structure(3, model.r_max, 5, side=3)
    whole = model.compute(probe.vectors, probe.types, probe.receivers, probe.senders)
    owned = 11
    keep = probe.receivers < owned
    part = model.compute(
        probe.vectors[keep], probe.types, probe.receivers[keep], probe.senders[keep], n_local=owned, n_rows=owned
    )
    torch.testing.assert_close(part["atomic_energy"], whole["atomic_energy"][:owned], rtol=1e-12, atol=1e-12)


def test_file(model_file):
    """One layer, so one cutoff of ghosts; a table for every ordered pair; operators of the allow-list only."""
    from conftest import ROOT

    _, path = model_file("zbl-spline-cutoffs")
    metadata = read_metadata(path)
    assert metadata["family"] == "allegro" and metadata["layers"] == 1
    assert metadata["upstream"]["package"] == "nequip-allegro"
    (table,) = Model(path).tables
    assert table["tables"] == 9 and table["value_error"] < 1e-6 and table["slope_error"] < 1e-4, table
    (table,) = Model(path, types_in_use=["H"]).tables
    assert table["tables"] == 1
    listed = (ROOT / "src/model/file/allowed_ops.txt").read_text().splitlines()
    for part in torch.jit.load(path).modules():
        for method in part._c._method_names():
            kinds = {node.kind() for node in part._c._get_method(method).graph.nodes()}
            assert kinds <= set(listed), (method, kinds)


def test_ase(model_file):
    """Energy, forces and stress of the ASE calculator against upstream."""
    from clebsch.ase import ClebschCalculator

    model, path = model_file("tutorial")
    atoms = structures.triclinic(cases.TYPES)
    want = upstream.evaluate(model, atoms)
    atoms.calc = ClebschCalculator(path, device="cpu")
    scale = float(want.forces.pow(2).mean().sqrt())
    assert abs(atoms.get_potential_energy() - float(want.atomic.sum())) < 1e-6 * len(atoms)
    assert np.abs(atoms.get_forces() - want.forces.numpy()).max() < 1e-5 * scale
    stress = full_3x3_to_voigt_6_stress(-want.virial.numpy() / atoms.get_volume())
    assert np.abs(atoms.get_stress() - stress).max() < 1e-6 * np.abs(stress).max()


def test_export_compares_with_upstream(model_file, tmp_path):
    result = export.allegro(model_file("lmax-1")[0], tmp_path / "checked.pt", radial_tolerance=1e-4)
    assert result.errors is not None and max(result.errors.values()) < 1e-9


REFUSED = {
    "scalar_embed_mlp_nonlinearity": dict(scalar_embed_mlp_nonlinearity="mish"),
    "allegro_mlp_nonlinearity": dict(allegro_mlp_nonlinearity="gelu"),
    "readout_mlp_nonlinearity": dict(readout_mlp_nonlinearity="mish"),
    "irreps_edge_sh": dict(l_max=5),
    "ZBL units": dict(pair_potential={**cases.ZBL, "units": "real"}),
    "LennardJones": dict(
        pair_potential={"_target_": "nequip.nn.pair_potential.LennardJones", "lj_sigma": 1.0, "lj_epsilon": 0.1}
    ),
}


@pytest.mark.parametrize("option", REFUSED)
def test_refused(option, tmp_path):
    model = allegro_cases.build("lmax-1", **REFUSED[option])
    with pytest.raises(ExportRefused, match=option) as caught:
        export.allegro(model, tmp_path / "out.pt")
    assert caught.value.option == option and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["TritonContracter", "CuEquivarianceContracter"])
def test_refuses_other_contracters(kind, tmp_path):
    """What enable_TritonContracter and its like leave in a model: another class in the contracter's place."""
    model = allegro_cases.build("lmax-1")
    for module in model.modules():
        for position, product in enumerate(getattr(module, "tps", [])):
            product.__class__ = type(kind, (type(product),), {}) if position == 0 else type(product)
    with pytest.raises(ExportRefused, match="without the modifier") as caught:
        export.allegro(model, tmp_path / "out.pt")
    assert caught.value.option == kind and list(tmp_path.iterdir()) == []


def test_refuses_a_nequip_model(tmp_path):
    with pytest.raises(ExportRefused):
        export.allegro(upstream.build(**cases.small()), tmp_path / "out.pt")
