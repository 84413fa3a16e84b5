"""Systems on a GPU: lists that are searched there, batches, and ASE with both, against the CPU."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from model_cases import diamond, load, model_path, needs, water

ase = pytest.importorskip("ase")
Atoms = ase.Atoms
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def structures(seed: int = 0, elements=("C",)) -> list:
    """Cells of every kind: cubic, triclinic, slab, wire, open, one atom with and without a cell, none, tiny, large."""
    random = np.random.default_rng(seed)
    kinds = [
        ([7.2, 7.1, 7.3], [1, 1, 1], 60), ([[6, 0, 0], [2.1, 5.5, 0], [-1.4, 0.7, 6.3]], [1, 1, 1], 40),
        ([8.2, 8.1, 0], [1, 1, 0], 30), ([0, 5.3, 0], [0, 1, 0], 12), ([0, 0, 0], [0, 0, 0], 25),
        ([2.9, 3.1, 2.7], [1, 1, 1], 1), ([0, 0, 0], [0, 0, 0], 1), ([4, 4, 4], [1, 1, 1], 0),
        ([3.05, 3.1, 3.2], [1, 1, 1], 2), ([40, 3.1, 4.3], [0, 1, 1], 40), ([21, 22, 23], [1, 1, 1], 1200),
    ]  # fmt: skip
    made = []
    for cell, pbc, count in kinds:
        atoms = Atoms(random.choice(elements, count), cell=cell, pbc=np.array(pbc, dtype=bool))
        box = np.where(np.any(atoms.cell.array != 0, axis=1)[:, None], atoms.cell.array, 6 * np.eye(3))
        # On a disturbed grid, so that no two atoms are in one place, and then somewhere else in the crystal.
        side = int(np.ceil(max(count, 1) ** (1 / 3)))
        grid = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:count]
        places = (grid + 0.2 * random.uniform(-1, 1, grid.shape)) / side + np.array(pbc) * random.integers(-3, 4, 3)
        atoms.positions[:] = places @ box
        made.append(atoms)
    return made


def tensors(made: list) -> tuple:
    starts = np.cumsum([0, *map(len, made)], dtype=np.int32)
    return (
        torch.from_numpy(np.concatenate([atoms.positions for atoms in made])),
        torch.from_numpy(np.array([atoms.cell.array for atoms in made])),
        torch.from_numpy(np.array([atoms.pbc for atoms in made])),
        torch.from_numpy(starts),
    )


@pytest.mark.sanitize
@pytest.mark.parametrize("cutoff", [3.017, 6.031])
def test_pairs_as_on_the_host(cutoff, device):
    """As sets; the device's come in the order of wider bins."""
    for made in (structures(1), structures(2)[:3], structures(3)[6:8], structures(4)[7:8]):
        found = []
        for where in (device, "cpu"):
            search = torch.classes.clebsch.Model.pairs_of_systems
            pair_ptr, senders, shifts, points = search(*tensors(made), cutoff, where)
            receivers = torch.repeat_interleave(torch.arange(len(points)), pair_ptr.diff())
            pairs = torch.cat([receivers[:, None].int(), senders[:, None], shifts], dim=1)
            assert len(torch.unique(pairs, dim=0)) == len(pairs)
            found.append({tuple(pair) for pair in pairs.tolist()})
        assert found[0] == found[1]


@pytest.fixture
def device(request) -> str:
    chosen = request.config.getoption("--device", "cuda")
    return "cpu" if chosen == "cpu" else "cuda:0"


def largest_error(got, expected) -> float:
    scale = max(np.sqrt(np.mean(np.concatenate([e.ravel() for e in expected]) ** 2)), 1e-6)
    return max((float(np.abs(g - e).max(initial=0.0)) for g, e in zip(got, expected, strict=True)), default=0.0) / scale


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("max_atoms", [None, 100, 1300])
def test_evaluate_as_on_the_cpu(dtype, max_atoms, within):
    import clebsch

    made = structures(5) + structures(6)
    on_cpu = clebsch.evaluate(made, model_path(needs("nequip-S")), "cpu", dtype=dtype)
    on_gpu = clebsch.Evaluator(model_path("nequip-S"), "cuda", dtype, max_atoms=max_atoms)
    for _ in range(3):  # as they come, recorded, replayed
        results = on_gpu(made)
        errors = {
            "energy": float(np.max(np.abs(results.energies - on_cpu.energies) / np.maximum(1, [len(a) for a in made]))),
            "forces": largest_error(results.forces, on_cpu.forces),
            "stress": largest_error([np.nan_to_num(results.stresses)], [np.nan_to_num(on_cpu.stresses)]),
        }
        assert (np.isnan(results.stresses) == np.isnan(on_cpu.stresses)).all()
        loose = {"energy": 10, "forces": 100, "stress": 1000}  # largest errors, of structures with the smallest forces
        within(errors, {name: factor * TOLERANCE[dtype] for name, factor in loose.items()})


def test_many_batches_share_one_recording():
    import clebsch

    evaluator = clebsch.Evaluator(model_path(needs("nequip-S")), "cuda", "float32", max_atoms=640)
    made = []
    for k in range(60):
        structure = diamond(2, seed=k)
        made.append(Atoms("C64", structure.positions, cell=[structure.length * (1 + 0.0002 * k)] * 3, pbc=True))
    evaluator(made)
    assert evaluator.model.last_run["replayed"] and evaluator.model.last_run["captures"] <= 2
    before = evaluator.model.last_run["captures"]
    evaluator(made)
    assert evaluator.model.last_run["captures"] == before


def crystals(count: int, stretch: float = 1.0) -> list:
    made = []
    for k in range(count):
        structure = diamond(2, seed=k)
        cell = [structure.length * stretch * (1 + 0.0002 * k)] * 3
        made.append(Atoms("C64", structure.positions, cell=[structure.length] * 3, pbc=True))
        made[-1].set_cell(cell, scale_atoms=True)
    return made


@pytest.mark.parametrize("recorded", [True, False])
def test_batches_ahead_as_batches_that_wait(recorded, within, monkeypatch):
    """The same batches, the next one started before results of the last are read: equal, call after call."""
    import clebsch

    evaluator = clebsch.Evaluator(model_path(needs("nequip-S")), "cuda", "float64", max_atoms=640, cuda_graph=recorded)
    made = crystals(63) + structures(9)[:10]
    monkeypatch.setenv("CLEBSCH_BATCHES", "together")
    expected = evaluator(made)
    monkeypatch.setenv("CLEBSCH_BATCHES", "ahead")
    for _ in range(4):
        results = evaluator(made)
        within({"energy": float(np.abs(results.energies - expected.energies).max()),
                "forces": largest_error(results.forces, expected.forces),
                "stress": largest_error([np.nan_to_num(results.stresses)], [np.nan_to_num(expected.stresses)])},
               {"energy": 1e-8, "forces": 1e-8, "stress": 1e-8})  # fmt: skip


def test_denser_batches_than_the_ones_before(within):
    """More edges than the buffers have room for while the next batch is under way: both are computed again."""
    import clebsch

    path = model_path(needs("nequip-S"))
    evaluator = clebsch.Evaluator(path, "cuda", "float64", max_atoms=640)
    evaluator(crystals(40, 1.4))
    made = crystals(20, 1.4) + crystals(20, 0.95)
    expected = clebsch.evaluate(made, path, "cpu", dtype="float64")
    for _ in range(3):
        results = evaluator(made)
        within({"energy": float(np.abs(results.energies - expected.energies).max()) / 64,
                "forces": largest_error(results.forces, expected.forces)},
               {"energy": 1e-9, "forces": 1e-8})  # fmt: skip


def test_energies_alone_have_a_recording_of_their_own(within):
    """In turn with steps with forces, whose results stay right."""
    import clebsch

    evaluator = clebsch.Evaluator(model_path(needs("nequip-S")), "cuda", "float64", max_atoms=640)
    made = crystals(40)
    expected = evaluator(made)
    for _ in range(3):
        alone = evaluator(made, forces=False, stress=False)
        whole = evaluator(made)
        within({"alone": float(np.abs(alone.energies - expected.energies).max()),
                "forces": largest_error(whole.forces, expected.forces)}, {"alone": 1e-9, "forces": 1e-8})  # fmt: skip
    assert evaluator.model.last_run["replayed"] and evaluator.model.last_run["captures"] == 2
    one = clebsch.Evaluator(model_path("nequip-S"), "cuda", "float64")
    for _ in range(4):  # one batch of one structure, outputs of the step that was replayed
        energies = one(made[:1], forces=False, stress=False).energies
        forces = one(made[:1]).forces
        within({"alone": abs(float(energies[0] - expected.energies[0])),
                "forces": largest_error(forces, expected.forces[:1])}, {"alone": 1e-9, "forces": 1e-8})  # fmt: skip


def test_structures_that_fail_among_batches_that_follow():
    import clebsch
    from clebsch.errors import ClebschError

    evaluator = clebsch.Evaluator(model_path(needs("nequip-S")), "cuda", "float32", max_atoms=640)
    made = crystals(40)
    expected = evaluator(made)
    for wrong in (3, 17, 39):
        made[wrong].positions[5, 1] = np.inf
        with pytest.raises(ClebschError, match=rf"structure {wrong}: expected finite positions.*atom 5"):
            evaluator(made)
        made[wrong] = crystals(40)[wrong]
    np.testing.assert_allclose(evaluator(made).energies, expected.energies, rtol=1e-6)


@pytest.mark.sanitize
def test_small_batches_without_recording(within):
    import clebsch

    made = structures(7)[:10]
    expected = clebsch.evaluate(made, model_path(needs("small-nequip")), "cpu", dtype="float64", types={"C": "H"})
    got = clebsch.Evaluator(
        model_path("small-nequip"), "cuda", "float64", types={"C": "H"}, max_atoms=90, cuda_graph=False
    )(made)
    within({"forces": largest_error(got.forces, expected.forces)}, {"forces": 1e-9})


def test_dynamics_and_cell_relaxation_in_ase():
    """Positions, cells and lists as they change, each step against a calculator that makes a new list on the CPU."""
    from ase import units
    from ase.filters import FrechetCellFilter
    from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
    from ase.md.verlet import VelocityVerlet
    from ase.optimize import FIRE

    from clebsch.ase import ClebschCalculator

    path = model_path("water-nequip")
    structure = water(5)
    atoms = Atoms(["OH"[int(t)] for t in structure.types], structure.positions, cell=[structure.length] * 3, pbc=True)
    atoms.calc = ClebschCalculator(path, "cuda", "float64")
    other = ClebschCalculator(path, "cpu", "float64", skin=0.0)
    steps = [0]

    def compare():
        steps[0] += 1
        if steps[0] % 7:
            return
        reference = atoms.copy()
        reference.calc = other
        np.testing.assert_allclose(atoms.get_forces(), reference.get_forces(), rtol=0, atol=1e-8)
        np.testing.assert_allclose(atoms.get_stress(), reference.get_stress(), rtol=0, atol=1e-9)

    MaxwellBoltzmannDistribution(atoms, temperature_K=600, rng=np.random.default_rng(0))
    dynamics = VelocityVerlet(atoms, timestep=0.5 * units.fs)
    dynamics.attach(compare)
    dynamics.run(60)
    atoms.wrap()
    relaxation = FIRE(FrechetCellFilter(atoms), logfile=None, maxstep=0.02)
    relaxation.attach(compare)
    relaxation.run(fmax=1e-3, steps=40)
    assert steps[0] >= 90 and 3 <= atoms.calc.model.lists <= 30
    assert atoms.calc.model.last_run["replayed"]


def test_steady_steps_allocate_nothing():
    from clebsch.ase import ClebschCalculator

    calculator = ClebschCalculator(model_path(needs("nequip-S")), "cuda", "float32")
    structure = diamond(3)
    atoms = Atoms("C216", structure.positions, cell=[structure.length] * 3, pbc=True, calculator=calculator)
    for _ in range(5):
        atoms.positions[0] += 1e-4
        atoms.get_forces()
    before, lists = torch.cuda.memory_stats(), calculator.model.lists
    for _ in range(10):
        atoms.positions[0] += 1e-4
        atoms.get_forces()
    after = torch.cuda.memory_stats()
    for key in ("allocation.all.allocated", "segment.all.allocated", "num_device_alloc"):
        assert after.get(key, 0) == before.get(key, 0), key
    assert calculator.model.lists == lists


def test_edges_that_outgrow_their_room(within):
    """A structure that is compressed while its list serves."""
    on_gpu, on_cpu = (load(needs("nequip-S"), where, "float64") for where in ("cuda", "cpu"))
    structure = diamond(3)
    types, starts = torch.zeros(216, dtype=torch.int32), torch.tensor([0, 216], dtype=torch.int32)
    periodic = torch.ones(1, 3, dtype=torch.bool)
    for scale in (1.1, 1.09, 1.0, 0.93, 0.9, 1.05):
        positions = torch.from_numpy(structure.positions * scale)
        cells = torch.eye(3, dtype=torch.float64)[None] * structure.length * scale
        given = (positions, cells, periodic, starts, types)
        got, expected = (model.compute_systems(*given, skin=3.0) for model in (on_gpu, on_cpu))
        scale_of = float(expected["forces"].square().mean().sqrt())
        within({"forces": float((got["forces"] - expected["forces"]).abs().max()) / scale_of}, {"forces": 1e-9})


@pytest.mark.sanitize(tools=("memcheck", "initcheck"))
def test_two_calculators_of_carbon():
    """float32 with a skin beside float64 without one, on the shipped model. The 12 neighbours just outside of the
    cutoff come in as atoms move, so that edges outgrow their room, and the second list, with a skin, outgrows the
    first one's.
    """
    from ase import units
    from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
    from ase.md.verlet import VelocityVerlet

    from clebsch.ase import ClebschCalculator

    path = model_path("carbon-mace")
    exact = ClebschCalculator(path, "cuda", "float64", skin=0.0)
    structure = diamond(2)
    atoms = Atoms("C64", structure.positions, cell=[structure.length] * 3, pbc=True)
    atoms.calc = ClebschCalculator(path, "cuda", "float32")
    MaxwellBoltzmannDistribution(atoms, temperature_K=300, rng=np.random.default_rng(0))
    dynamics = VelocityVerlet(atoms, timestep=1.0 * units.fs)
    for steps in (1, 1, 1, 9, 12):
        dynamics.run(steps)
        torch.cuda.synchronize()
        other = atoms.copy()
        other.calc = exact
        error = np.sqrt(np.mean((atoms.get_forces() - other.get_forces()) ** 2) / np.mean(other.get_forces() ** 2))
        torch.cuda.synchronize()
        assert error < 1e-4
        assert all(calculator.model.time_device(2) > 0 for calculator in (atoms.calc, exact))


BROKEN = """
import sys
import numpy as np
import torch
from ase import Atoms
from clebsch import ClebschError
from clebsch.ase import ClebschCalculator

places = 1.9 * np.stack(np.meshgrid(*[np.arange(3)] * 3), -1).reshape(-1, 3)
atoms = Atoms("C27", places + np.random.default_rng(0).uniform(0, 0.2, (27, 3)), cell=[5.7] * 3, pbc=True)
atoms.calc = ClebschCalculator(sys.argv[1], "cuda", "float32")
for _ in range(3):
    atoms.positions[0] += 1e-3
    atoms.get_forces()
torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")]  # an assertion on the device
try:
    torch.cuda.synchronize()
except RuntimeError:
    pass
atoms.positions[0] += 1e-3
try:
    atoms.get_forces()
except ClebschError as error:
    print("told:", str(error).splitlines()[0])
del atoms
print("over")
"""


def test_a_broken_device_ends_no_process():
    """Destructors of a model on a device that has failed leave its memory where it is: torch throws when it frees."""
    command = [sys.executable, "-W", "ignore", "-c", BROKEN, model_path(needs("nequip-S"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "told:" in done.stdout and "over" in done.stdout, done
    assert "terminate called" not in done.stderr and done.returncode == 0, done
