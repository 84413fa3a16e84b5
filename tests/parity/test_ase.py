"""The ASE calculator: values, stress, relaxations, dynamics, and its refusals."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from ase import Atoms, units
from ase.calculators.calculator import PropertyNotImplementedError
from ase.filters import ExpCellFilter, FrechetCellFilter
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS, FIRE

import cases
import structures
import upstream
from clebsch.errors import ClebschError

pytestmark = pytest.mark.usefixtures("needs_library")

CASE = "zbl-cutoffs"


@pytest.fixture
def calculator(exported):
    from clebsch.ase import ClebschCalculator

    return ClebschCalculator(exported(CASE))


def with_calculator(name: str, calculator) -> Atoms:
    atoms = structures.ALL[name](cases.TYPES)
    atoms.calc = calculator
    return atoms


@pytest.mark.parametrize("structure", structures.ALL)
def test_values(structure, upstream_model, exported):
    from clebsch.ase import ClebschCalculator

    atoms = with_calculator(structure, ClebschCalculator(exported(CASE), radial="exact", dtype="float64"))
    want = upstream.evaluate(upstream_model(CASE), atoms)
    scale = max(float(want.forces.abs().max()), 0.1)
    assert atoms.get_potential_energy() == pytest.approx(float(want.atomic.sum()), abs=1e-10 * len(atoms))
    assert atoms.get_potential_energy(force_consistent=True) == atoms.get_potential_energy()
    np.testing.assert_allclose(atoms.get_potential_energies(), want.atomic, rtol=0, atol=1e-10)
    np.testing.assert_allclose(atoms.get_forces(), want.forces, rtol=0, atol=1e-10 * scale)
    if atoms.cell.rank == 3:
        stress = -want.virial.numpy() / atoms.get_volume()
        np.testing.assert_allclose(atoms.get_stress(voigt=False), stress, rtol=0, atol=1e-10 * np.abs(stress).max())
        np.testing.assert_allclose(atoms.get_stresses().sum(0), atoms.get_stress(), rtol=0, atol=1e-12)
    else:
        with pytest.raises(PropertyNotImplementedError, match="cell"):
            atoms.get_stress()


def test_stress_by_finite_differences(calculator):
    from ase.calculators.fd import calculate_numerical_stress

    atoms = with_calculator("triclinic", calculator)
    np.testing.assert_allclose(
        atoms.get_stress(),
        calculate_numerical_stress(atoms, eps=1e-4),
        rtol=0,
        atol=2e-6 * np.abs(atoms.get_stress()).max(),
    )


def test_energy_alone_needs_no_forces(calculator):
    atoms = with_calculator("periodic", calculator)
    atoms.get_potential_energy()
    assert "forces" not in calculator.results
    assert atoms.get_forces().shape == (len(atoms), 3)
    assert set(calculator.results) >= {"energy", "free_energy", "energies", "forces", "stress"}


def test_results_follow_changes(calculator):
    atoms = with_calculator("periodic", calculator)
    first = atoms.get_potential_energy()
    atoms.positions[0] += 0.2
    second = atoms.get_potential_energy()
    atoms.symbols[0] = "C" if atoms.symbols[0] != "C" else "O"
    third = atoms.get_potential_energy()
    atoms.set_cell(atoms.cell * 1.05, scale_atoms=True)
    assert len({first, second, third, atoms.get_potential_energy()}) == 4


def test_wrapping_and_supercells_change_nothing(calculator):
    atoms = with_calculator("tiny_cell", calculator)
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    atoms.positions += 3 * atoms.cell[0] - 2 * atoms.cell[2]
    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-10)
    big = atoms.repeat((2, 3, 1))
    big.calc = calculator
    assert big.get_potential_energy() == pytest.approx(6 * energy, abs=1e-9)
    np.testing.assert_allclose(big.get_forces(), np.tile(forces, (6, 1)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("cell_filter", [FrechetCellFilter, ExpCellFilter])
def test_cell_relaxation_lowers_the_energy(cell_filter, calculator):
    """A few steps along the model's own forces and stress: the enthalpy must fall."""
    atoms = with_calculator("periodic", calculator)
    start = atoms.get_potential_energy()
    volume = atoms.get_volume()
    FIRE(cell_filter(atoms), logfile=None, dt=0.02, maxstep=0.02).run(fmax=0.01, steps=15)
    assert atoms.get_potential_energy() < start and atoms.get_volume() != volume


def test_relaxation(calculator):
    atoms = with_calculator("open_cluster", calculator)
    start = atoms.get_potential_energy()
    BFGS(atoms, logfile=None, maxstep=0.05).run(fmax=0.01, steps=20)
    assert atoms.get_potential_energy() < start


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_energy_is_conserved(dtype, exported):
    """Velocity Verlet at a small step: the drift of the total energy stays far below the kinetic energy."""
    from clebsch.ase import ClebschCalculator

    atoms = structures.periodic(cases.TYPES)
    atoms.set_masses([20.0] * len(atoms))
    atoms.calc = ClebschCalculator(exported("shifts-per-type", dtype))
    MaxwellBoltzmannDistribution(atoms, temperature_K=300, rng=np.random.default_rng(0))
    totals = []
    dynamics = VelocityVerlet(atoms, timestep=0.1 * units.fs)
    dynamics.attach(lambda: totals.append(atoms.get_total_energy()), interval=10)
    dynamics.run(200)
    assert np.ptp(totals) / len(atoms) < 2e-5, totals


def test_threads_agree(exported):
    """Clebsch's kernels give the same bits for any thread count; the matrix products of torch's BLAS need not."""
    from clebsch.ase import ClebschCalculator

    atoms = structures.periodic(cases.TYPES)
    forces = []
    for threads in (1, 2):
        atoms.calc = ClebschCalculator(exported("preset-M"), threads=threads)
        forces.append(atoms.get_forces())
    np.testing.assert_allclose(*forces, rtol=0, atol=1e-13)


def test_type_names_that_are_no_elements(exported):
    from clebsch.ase import ClebschCalculator

    water = Atoms("OH2", positions=[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    water.calc = ClebschCalculator(exported(CASE))
    energy = water.get_potential_energy()
    heavy = Atoms("OF2", positions=water.positions, calculator=ClebschCalculator(exported(CASE), types={"F": "H"}))
    assert heavy.get_potential_energy() == energy
    with pytest.raises(ClebschError, match="expected one of O, H, C for F, got 'X'"):
        ClebschCalculator(exported(CASE), types={"F": "X"})


def test_refusals(exported, tmp_path):
    from clebsch.ase import ClebschCalculator

    with pytest.raises(ClebschError, match="expected auto, cpu, cuda or cuda:N, got 'gpu'"):
        ClebschCalculator(exported(CASE), device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ClebschError, match="use device cpu|Use device cpu"):
            ClebschCalculator(exported(CASE), device="cuda")
    with pytest.raises(ClebschError, match="float16"):
        ClebschCalculator(exported(CASE), dtype="float16")
    with pytest.raises(ClebschError):
        ClebschCalculator(tmp_path / "absent.pt")
    torch.save({"a": 1}, tmp_path / "other.pt")
    with pytest.raises(ClebschError):
        ClebschCalculator(tmp_path / "other.pt")
    gold = Atoms("Au", calculator=ClebschCalculator(exported(CASE)))
    with pytest.raises(ClebschError, match="expected elements among O, H, C, got Au"):
        gold.get_potential_energy()
    lost = Atoms("OH", positions=[[0, 0, 0], [np.nan, 0, 0]], calculator=ClebschCalculator(exported(CASE)))
    with pytest.raises(ClebschError, match="atom 1"):
        lost.get_potential_energy()
    flat = Atoms("O", cell=[0, 3, 3], pbc=True, calculator=ClebschCalculator(exported(CASE)))
    with pytest.raises(ClebschError, match="periodic direction"):
        flat.get_potential_energy()


def test_empty_and_single(calculator):
    assert Atoms(calculator=calculator).get_potential_energy() == 0.0
    atoms = with_calculator("one_atom", calculator)
    assert np.all(atoms.get_forces() == 0) and np.isfinite(atoms.get_potential_energy())


@pytest.mark.parametrize("structure", ["triclinic", "slab", "open_cluster"])
def test_a_list_serves_several_steps(structure, exported):
    from clebsch.ase import ClebschCalculator

    atoms = with_calculator(structure, ClebschCalculator(exported(CASE), dtype="float64"))
    without_skin = ClebschCalculator(exported(CASE), dtype="float64", skin=0.0)
    atoms.get_potential_energy()
    before = atoms.calc.model.lists
    random = np.random.default_rng(3)
    for step in range(12):
        atoms.positions += 0.03 * random.standard_normal(atoms.positions.shape)
        if step == 8 and atoms.pbc.any():  # as if it had diffused for long
            atoms.positions[1] += 700 * atoms.cell[int(np.argmax(atoms.pbc))]
        other = atoms.copy()
        other.calc = without_skin
        np.testing.assert_allclose(atoms.get_forces(), other.get_forces(), rtol=0, atol=1e-8)
        assert atoms.get_potential_energy() == pytest.approx(other.get_potential_energy(), abs=1e-8)
    assert 1 <= atoms.calc.model.lists - before <= 4


def test_a_list_outlives_steps_of_a_cell_filter(exported):
    from clebsch.ase import ClebschCalculator

    atoms = with_calculator("triclinic", ClebschCalculator(exported(CASE), dtype="float64"))
    without_skin = ClebschCalculator(exported(CASE), dtype="float64", skin=0.0)
    atoms.get_potential_energy()
    before, steps = atoms.calc.model.lists, []

    def compare():
        other = atoms.copy()
        other.calc = without_skin
        np.testing.assert_allclose(atoms.get_forces(), other.get_forces(), rtol=0, atol=1e-8)
        np.testing.assert_allclose(atoms.get_stress(), other.get_stress(), rtol=0, atol=1e-8)
        steps.append(atoms.get_volume())

    relaxation = FIRE(FrechetCellFilter(atoms), logfile=None, dt=0.02, maxstep=0.01)
    relaxation.attach(compare)
    relaxation.run(fmax=0.01, steps=20)
    assert len(set(steps)) >= 15 and atoms.calc.model.lists - before <= 3


def test_an_error_leaves_a_calculator_that_works(exported):
    from clebsch.ase import ClebschCalculator

    atoms = with_calculator("triclinic", ClebschCalculator(exported(CASE), dtype="float64"))
    forces, positions = atoms.get_forces(), atoms.get_positions()
    for wrong in (np.nan, 1e200):
        atoms.positions[1, 2] = wrong
        with pytest.raises(ClebschError, match="for atom 1"):
            atoms.get_forces()
        atoms.positions[:] = positions
        np.testing.assert_allclose(atoms.get_forces(), forces, rtol=0, atol=1e-9)


def test_what_fails_leaves_no_results_of_other_atoms(calculator):
    """Where calculate is called by itself, as wrappers of calculators do, nobody else clears them."""
    atoms, broken = (with_calculator("triclinic", calculator) for _ in range(2))
    atoms.get_forces()
    broken.positions[1, 2] = np.nan
    for _ in range(2):
        with pytest.raises(ClebschError, match="for atom 1"):
            calculator.calculate(broken, ["energy"])
        assert calculator.results == {}
    broken.positions[1, 2] = 1e200
    with pytest.raises(ClebschError, match="for atom 1"):
        calculator.calculate(broken, ["energy"])
    with pytest.raises(ClebschError, match="for atom 1"):
        broken.get_potential_energy()


def test_a_refused_list_leaves_the_one_before(exported):
    from clebsch.runtime import Model

    model = Model(exported(CASE), dtype="float64", radial="table")
    types, cell = torch.zeros(3, dtype=torch.int64), torch.eye(3, dtype=torch.float64) * 20
    positions = torch.tensor([[0.0, 0, 0], [1.1, 0, 0], [0, 1.2, 0]], dtype=torch.float64)
    receivers = torch.tensor([0, 0, 1, 2])
    senders = torch.tensor([1, 2, 0, 0])
    shifts = torch.zeros(4, 3, dtype=torch.int32)
    model.set_neighbours(types, receivers, senders, shifts)
    before = model.compute_positions(positions, cell)
    for wrong_types, wrong_receivers, wrong_shifts in (
        (types, torch.tensor([0, 0, 1, 7]), shifts),
        (types, receivers, shifts + 512),
        (types + 2**32, receivers, shifts),
    ):
        with pytest.raises(ClebschError):
            model.set_neighbours(wrong_types, wrong_receivers, senders, wrong_shifts)
        after = model.compute_positions(positions, cell)
        assert torch.equal(before["atomic_energy"], after["atomic_energy"])
        assert torch.equal(before["forces"], after["forces"])


def test_a_load_that_failed_is_tried_again(exported, monkeypatch):
    import clebsch.element_model
    from clebsch.ase import ClebschCalculator

    monkeypatch.setattr(clebsch.element_model, "_MANY_TYPES", 2)
    calculator = ClebschCalculator(exported(CASE))
    one, both = Atoms("O2", [[0, 0, 0], [1.3, 0, 0]]), Atoms("OH", [[0, 0, 0], [1.0, 0, 0]])
    one.calc = both.calc = calculator
    one.get_potential_energy()

    def failing(*args, **options):
        raise ClebschError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(clebsch.element_model, "Model", failing)
        with pytest.raises(ClebschError, match="no memory"):
            both.get_potential_energy()
    assert np.isfinite(both.get_potential_energy())


def test_copies_are_calculators_of_their_own(exported):
    from clebsch.ase import ClebschCalculator

    calculator = ClebschCalculator(exported(CASE), dtype=np.float64)
    assert calculator.model.dtype == "float64"
    positions = [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]
    one, other = Atoms("OHH", positions), Atoms("HOH", positions)
    expected = [calculator.get_potential_energy(a) for a in (one, other)]
    assert abs(expected[0] - expected[1]) > 1e-6
    for copied in (copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))):
        one.calc, other.calc = calculator, copied(calculator)
        for _ in range(3):
            assert [one.get_potential_energy(), other.get_potential_energy()] == pytest.approx(expected, abs=1e-7)
            one.positions += 1e-9
            other.positions += 1e-9
    assert copy.deepcopy(one).get_potential_energy() == pytest.approx(expected[0], abs=1e-6)
    assert calculator.todict()["dtype"] == "float64" and calculator.todict()["model"].endswith(".pt")


def test_a_forked_child_does_not_wait_for_threads_that_it_lacks(exported):
    program = """
import multiprocessing, sys
from ase import Atoms
from clebsch.ase import ClebschCalculator
calculator = ClebschCalculator(sys.argv[1], dtype="float64", threads=2)
atoms = Atoms("OH" * 40, [[1.5 * (i % 5), 1.5 * (i // 5 % 4), 1.5 * (i // 20)] for i in range(80)])
energy = lambda _: calculator.get_potential_energy(atoms)
expected = energy(0)
atoms.positions += 1e-12
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=lambda: queue.put(energy(0)))
child.start()
print(abs(queue.get(timeout=60) - expected) < 1e-6)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, exported(CASE)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stdout + done.stderr


def test_parameters_cannot_be_set_later(calculator):
    with pytest.raises(TypeError, match="dtype"):
        calculator.set(dtype="float32")


def test_atoms_in_one_place_are_named(calculator):
    atoms = Atoms("OHC", [[0, 0, 0], [3, 0, 0], [3, 0, 0]])
    atoms.calc = calculator
    with pytest.raises(ClebschError, match=r"atoms 1 \(H\) and 2 \(C\), 0 Angstrom"):
        atoms.get_forces()


def test_a_negative_skin_is_refused(exported):
    from clebsch.ase import ClebschCalculator

    with pytest.raises(ClebschError, match="skin"):
        ClebschCalculator(exported(CASE), skin=-1.0)


def test_unknown_keywords_are_refused(exported):
    from clebsch.ase import ClebschCalculator

    with pytest.raises(TypeError, match="table_pieces"):
        ClebschCalculator(exported(CASE), table_pieces=128)
    ClebschCalculator(exported(CASE), label="water", directory=".")


def test_what_ase_exports_has_its_own_names_alone(calculator):
    atoms = with_calculator("open_cluster", calculator)
    atoms.get_forces()
    calculator.results["of_no_ase"] = np.zeros(len(atoms))
    exported = set(calculator.export_properties())
    assert exported - {"natoms"} == set(calculator.results) - {"of_no_ase"} and "forces" in exported
