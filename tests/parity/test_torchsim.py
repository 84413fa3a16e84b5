"""The torch-sim model: as the calculator, torch-sim's own checks, batched relaxation and dynamics.

All but one are skipped without torch-sim, which with its needs is 90 MB, more than the rest of the environment but
torch: `pip install torch-sim-atomistic` to run them.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import cases
import structures
from clebsch.errors import ClebschError

try:
    import torch_sim as ts
except ImportError:
    ts = None
pytestmark = pytest.mark.usefixtures("needs_library")

CASE = "zbl-cutoffs"


@pytest.fixture
def model(exported):
    if ts is None:
        pytest.skip("torch-sim is not installed: pip install torch-sim-atomistic")
    from clebsch.torchsim import ClebschModel

    return ClebschModel(exported(CASE), "cpu", precision="float64")


def periodic_ones():
    made = [structures.periodic(cases.TYPES, 3, 2), structures.triclinic(cases.TYPES)]
    return [*made, structures.tiny_cell(cases.TYPES)]


def test_without_torch_sim(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_sim", None)
    monkeypatch.delitem(sys.modules, "torch_sim.models.interface", raising=False)
    monkeypatch.delitem(sys.modules, "clebsch.torchsim", raising=False)
    with pytest.raises(ClebschError, match="pip install torch-sim-atomistic"):
        import clebsch.torchsim  # noqa: F401


def test_as_the_calculator(model, exported):
    from clebsch.ase import ClebschCalculator

    calculator = ClebschCalculator(exported(CASE), "cpu", dtype="float64")
    chosen = periodic_ones()
    state = ts.io.atoms_to_state(chosen, torch.device("cpu"), torch.float64)
    out = model(state)
    first = 0
    for index, atoms in enumerate(chosen):
        atoms.calc = calculator
        last = first + len(atoms)
        assert float(out["energy"][index]) == pytest.approx(atoms.get_potential_energy(), rel=1e-12)
        np.testing.assert_allclose(out["forces"][first:last], atoms.get_forces(), rtol=0, atol=1e-10)
        np.testing.assert_allclose(out["stress"][index], atoms.get_stress(voigt=False), rtol=0, atol=1e-12)
        first = last
    model.compute_forces = model.compute_stress = False
    assert set(model(state)) == {"energy"}


def test_its_own_checks(exported):
    pytest.importorskip("torch_sim", reason="torch-sim is not installed: pip install torch-sim-atomistic")
    from torch_sim.models.interface import validate_model_outputs

    from clebsch.torchsim import ClebschModel

    # torch-sim's structures are of these elements.
    model = ClebschModel(exported(CASE), "cpu", precision="float64", types={"Si": "O", "Mg": "H", "Fe": "C"})
    validate_model_outputs(model, torch.device("cpu"), torch.float64)


def test_open_boundaries(model):
    chosen = [structures.open_cluster(cases.TYPES), structures.one_atom(cases.TYPES)]
    out = model(ts.io.atoms_to_state(chosen, torch.device("cpu"), torch.float32))
    assert out["energy"].dtype == torch.float64 and out["energy"].shape == (2,)
    assert torch.isnan(out["stress"]).all() and not out["forces"][-1].any()


def test_relaxation_lowers_every_energy(model):
    chosen = periodic_ones()
    before = model(ts.io.atoms_to_state(chosen, torch.device("cpu"), torch.float64))["energy"]
    built = model.model.lists
    optimizer = ts.optimizers.fire if hasattr(ts.optimizers, "fire") else ts.Optimizer.fire
    final = ts.optimize(system=chosen, model=model, optimizer=optimizer, max_steps=30, autobatcher=False)
    assert (model(final)["energy"] < before).all()
    assert model.model.lists - built < 20


def test_dynamics(model):
    state = ts.io.atoms_to_state(periodic_ones(), torch.device("cpu"), torch.float64)
    state.masses = torch.full_like(state.masses, 20.0)
    final = ts.integrate(
        system=state, model=model, integrator=nve(), n_steps=40, temperature=300.0, timestep=0.0001, autobatcher=False
    )
    kinetic = (final.momenta.square().sum(1) / final.masses / 2).sum()
    start = 1.5 * 8.617e-5 * 300 * len(state.masses)
    total = float(final.energy.sum() + kinetic - model(state)["energy"].sum())
    assert total == pytest.approx(start, rel=0.6)  # momenta are drawn at random


def nve():
    return ts.Integrator.nve if hasattr(ts, "Integrator") else ts.integrators.nve
