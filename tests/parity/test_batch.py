"""clebsch.evaluate: every structure as the calculator has it, whatever else is in its batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms

import cases
import clebsch
import structures
from clebsch.batch import _batches, _filled, _in_turn, _Packed
from clebsch.errors import ClebschError

pytestmark = pytest.mark.usefixtures("needs_library")

CASE = "zbl-cutoffs"


def mixed() -> list[Atoms]:
    """Sizes and boundaries of every kind, empty structures, single atoms, cells smaller than the cutoff."""
    made = [structures.ALL[name](cases.TYPES) for name in structures.ALL]
    made += [structures.periodic(cases.TYPES, seed, 2) for seed in (11, 12)]
    made += [Atoms(), Atoms(cell=[3, 3, 3], pbc=True), Atoms("O", cell=[30, 30, 30], pbc=True)]
    far = structures.triclinic(cases.TYPES, 13)
    far.positions += 40 * far.cell[0] - 3 * far.cell[2]
    return [*made, far, Atoms("OH", [[0, 0, 0], [900.0, 0, 0]])]


@pytest.fixture(params=["together", "ahead"])
def batches(request, monkeypatch) -> str:
    """Batches one by one, and as on a GPU: the next is started before results of the last are fetched."""
    monkeypatch.setenv("CLEBSCH_BATCHES", request.param)
    return request.param


@pytest.mark.parametrize("max_atoms", [1, 20, 1000])
def test_as_the_calculator(max_atoms, exported, batches):
    from clebsch.ase import ClebschCalculator

    all_of_them = mixed()
    calculator = ClebschCalculator(exported(CASE), dtype="float64", device="cpu")
    told = []
    results = clebsch.evaluate(
        all_of_them, exported(CASE), "cpu", max_atoms=max_atoms, dtype="float64",
        progress=lambda what, done, total: told.append((done, total)),
    )  # fmt: skip
    assert len(results) == len(all_of_them) and told[-1] == (len(all_of_them), len(all_of_them))
    for index, atoms in enumerate(all_of_them):
        atoms.calc = calculator
        one = results[index]
        scale = max(np.abs(atoms.get_forces()).max(initial=0.0), 1.0)
        assert one["energy"] == pytest.approx(atoms.get_potential_energy(), rel=1e-12, abs=1e-12), index
        np.testing.assert_allclose(one["forces"], atoms.get_forces(), rtol=0, atol=1e-12 * scale, err_msg=str(index))
        np.testing.assert_allclose(one["energies"], atoms.get_potential_energies(), rtol=1e-12, atol=1e-12)
        if atoms.cell.rank == 3:
            stress = atoms.get_stress()
            np.testing.assert_allclose(one["stress"], stress, rtol=0, atol=1e-12 * max(1.0, np.abs(stress).max()))
        else:
            assert "stress" not in one and np.isnan(results.stresses[index]).all()


def test_stress_by_finite_differences(exported):
    atoms = structures.triclinic(cases.TYPES)
    step, strained = 1e-5, []
    for a, b in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)):
        for sign in (1, -1):
            strain = np.eye(3)
            strain[a, b] += 0.5 * sign * step
            strain[b, a] += 0.5 * sign * step
            other = atoms.copy()
            other.set_cell(atoms.cell @ strain, scale_atoms=True)
            strained.append(other)
    results = clebsch.evaluate([atoms, *strained], exported(CASE), "cpu", dtype="float64", radial="exact")
    energies = results.energies[1:].reshape(6, 2)
    expected = (energies[:, 0] - energies[:, 1]) / (2 * step * atoms.get_volume())
    np.testing.assert_allclose(results.stresses[0], expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_what_is_asked_for(exported, batches):
    evaluator = clebsch.Evaluator(exported(CASE), "cpu", max_atoms=30)
    chosen = mixed()[:3]
    whole, energies = evaluator(chosen), clebsch.evaluate(chosen, evaluator, forces=False, stress=False)
    assert energies.forces is None and energies.stresses is None and set(energies[0]) == {"energy", "energies"}
    np.testing.assert_array_equal(whole.energies, energies.energies)
    none = evaluator([])
    assert len(none) == 0 and none.forces == [] and none.stresses.shape == (0, 6)
    with pytest.raises(ClebschError, match="where the Evaluator was made"):
        clebsch.evaluate(chosen, evaluator, max_atoms=3)
    with pytest.raises(ClebschError, match="max_atoms: expected at least 1, got 0"):
        clebsch.Evaluator(exported(CASE), max_atoms=0)


def test_no_structures_for_a_model_that_is_not_loaded(exported, monkeypatch):
    """A model of many types is loaded for the elements that turn up."""
    import clebsch.element_model

    monkeypatch.setattr(clebsch.element_model, "_MANY_TYPES", 2)
    none = clebsch.evaluate([], exported(CASE), "cpu")
    assert len(none) == 0 and none.atomic_energies == [] and none.stresses.shape == (0, 6)


def test_errors_name_the_structure(exported, batches):
    chosen = mixed()
    chosen[4].positions[0, 1] = np.inf
    with pytest.raises(ClebschError, match=r"structure 4: expected finite positions.*atom 0"):
        clebsch.evaluate(chosen, exported(CASE), "cpu")
    chosen[4] = Atoms("OAu")
    with pytest.raises(ClebschError, match="elements among O, H, C, got Au"):
        clebsch.evaluate(chosen, exported(CASE), "cpu")
    chosen[4] = "water"
    with pytest.raises(ClebschError, match="structure 4: expected ase.Atoms, got str"):
        clebsch.evaluate(chosen, exported(CASE), "cpu")
    chosen[4] = Atoms("OHH", [[0, 0, 0], [1, 0, 0], [1, 0, 0]])
    with pytest.raises(ClebschError, match=r"structure 4: .*closest pair: atoms 1 \(H\) and 2 \(H\), 0 Angstrom"):
        clebsch.evaluate(chosen, exported(CASE), "cpu")


def test_positions_in_fortrans_order(exported):
    atoms = structures.periodic(cases.TYPES, 11, 2)
    expected = clebsch.evaluate([atoms], exported(CASE), "cpu", dtype="float64")
    atoms.arrays["positions"] = np.asfortranarray(atoms.positions)
    found = clebsch.evaluate([atoms], exported(CASE), "cpu", dtype="float64")
    assert found.energies == expected.energies and (found.forces[0] == expected.forces[0]).all()


def test_memory_that_runs_out_halves_the_batch(exported, monkeypatch):
    evaluator = clebsch.Evaluator(exported(CASE), "cpu", dtype="float64")
    chosen = mixed()
    expected = evaluator(chosen)
    compute, sizes = evaluator.model.compute_systems, []

    def short_of_memory(positions, *rest, **options):
        sizes.append(len(positions))
        if len(positions) > 40:
            raise ClebschError("out of memory")
        return compute(positions, *rest, **options)

    monkeypatch.setattr(evaluator.model, "compute_systems", short_of_memory)
    results = evaluator(chosen)
    assert max(sizes) > 40
    np.testing.assert_allclose(results.energies, expected.energies, rtol=1e-12)


@pytest.mark.parametrize("call", ["prepare_systems", "start_systems", "finish_systems"])
def test_memory_that_runs_out_ahead(call, exported, monkeypatch):
    """Whichever call fails, that batch is computed in parts and the others as they are, all in their places."""
    monkeypatch.setenv("CLEBSCH_BATCHES", "ahead")
    evaluator = clebsch.Evaluator(exported(CASE), "cpu", dtype="float64", max_atoms=40)
    chosen = mixed()
    expected, told = evaluator(chosen), []
    work, calls, computed = getattr(evaluator.model, call), [], []
    together = evaluator.model.compute_systems

    def sometimes(place, *rest, **options):
        calls.append(place)
        if len(calls) % 2 == 0:
            if call == "finish_systems":
                work(place)
            raise ClebschError("out of memory")
        return work(place, *rest, **options)

    def short_of_memory(positions, cells, *rest, **options):
        computed.append(len(cells))
        if len(cells) > 1:
            raise ClebschError("out of memory")
        return together(positions, cells, *rest, **options)

    monkeypatch.setattr(evaluator.model, call, sometimes)
    monkeypatch.setattr(evaluator.model, "compute_systems", short_of_memory)
    results = evaluator(chosen, progress=lambda what, done, total: told.append(done))
    assert len(calls) >= 3 and set(calls) <= {0, 1, 2} and max(computed) > 1
    assert told == sorted(told) and told[-1] == len(chosen)
    np.testing.assert_allclose(results.energies, expected.energies, rtol=1e-12)
    for got, wanted in zip(results.forces, expected.forces, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * max(1.0, np.abs(wanted).max(initial=0)))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_call_that_is_given_up(error, exported, batches):
    """Batches that are under way then do not disturb the next call, whose batches have the same places."""
    evaluator = clebsch.Evaluator(exported(CASE), "cpu", dtype="float64", max_atoms=20)
    chosen = mixed()
    expected = evaluator(chosen)
    for most in (0, len(chosen) // 2):

        def stop(what, done, total, most=most):
            if what == "structures evaluated" and done > most:
                raise error

        with pytest.raises(error):
            evaluator(chosen[::-1], progress=stop)
        results = evaluator(chosen)
        np.testing.assert_allclose(results.energies, expected.energies, rtol=1e-12)
        for got, wanted in zip(results.forces, expected.forces, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * max(1.0, np.abs(wanted).max(initial=0)))


def test_unknown_ways_are_refused(exported, monkeypatch):
    evaluator = clebsch.Evaluator(exported(CASE), "cpu")
    monkeypatch.setenv("CLEBSCH_BATCHES", "behind")
    with pytest.raises(ClebschError, match="CLEBSCH_BATCHES: expected together or ahead, got 'behind'"):
        evaluator(mixed())


def test_places_are_used_in_order(exported):
    """What the three calls refuse; a place that failed is free."""
    model = clebsch.Evaluator(exported(CASE), "cpu", dtype="float64").model
    chosen = mixed()[:2]
    arrays = _Packed.of(chosen, [0, 1])
    types = torch.zeros(len(arrays.positions), dtype=torch.int32)
    given = (*map(torch.from_numpy, (arrays.positions, arrays.cells, arrays.periodic, arrays.starts)), types)
    for call in (lambda: model.start_systems(0), lambda: model.finish_systems(0)):
        with pytest.raises(ClebschError, match="expected the call that comes before it"):
            call()
    with pytest.raises(ClebschError, match="expected a place of 0 to 2, got 3"):
        model.prepare_systems(3, *given)
    with pytest.raises(ClebschError, match="expected types of 0 to 2, got 7 at atom 0"):
        model.prepare_systems(0, *given[:4], types + 7)
    with pytest.raises(ClebschError, match="the call that comes before it"):
        model.start_systems(0)
    expected = model.compute_systems(*given, skin=0.0)
    model.prepare_systems(1, *given)
    model.start_systems(1)
    model.prepare_systems(0, *given)
    model.start_systems(0, virial=False)
    for place in (1, 0):
        got = model.finish_systems(place)
        assert ("virials" in got) == (place == 1)
        for name in set(got) & {"energies", "forces", "virials"}:
            torch.testing.assert_close(got[name], expected[name], rtol=1e-12, atol=1e-12)


def test_batches_are_of_equal_sizes():
    assert [len(batch) for batch in _batches([64] * 1000, 16384)] == [250] * 4
    assert [len(batch) for batch in _batches([64] * 257, 16384)] == [129, 128]
    rng = np.random.default_rng(1)
    for most, largest in ((1000, 60), (500, 400), (300, 500)):
        sizes = rng.integers(0, largest, 300).tolist()
        made = _batches(sizes, most)
        totals = [sum(sizes[k] for k in batch) for batch in made]
        assert sorted(k for batch in made for k in batch) == list(range(300))
        assert all(total <= most or len(batch) == 1 for total, batch in zip(totals, made, strict=True))
        assert len(made) <= len(_filled(np.argsort(-np.array(sizes), kind="stable").tolist(), sizes, most))


def test_large_structures_come_last_and_want_no_room():
    sizes = [30, 900, 40, 20, 150, 0]
    assert _in_turn(_batches(sizes, 100), sizes, 100) == ([[2, 0, 3, 5], [1], [4]], 0)
    sizes += [50, 60]
    made, room = _in_turn(_batches(sizes, 100), sizes, 100)
    assert made[-2:] == [[1], [4]] and room == max(sum(sizes[k] for k in batch) for batch in made[:-2]) <= 100
    assert _in_turn([[0], [1]], [8, 8], 4) == ([[0], [1]], 0)


def test_batches_are_full_and_alike():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 200, 500).tolist()
    made = _batches(sizes, 1000)
    assert sorted(k for batch in made for k in batch) == list(range(500))
    totals = [sum(sizes[k] for k in batch) for batch in made]
    assert max(totals) <= 1000 and min(totals[:-1]) > 1000 - 200
    assert _batches([5000, 3, 2], 1000) == [[0], [1, 2]] and _batches([], 10) == []


def test_an_element_that_the_model_does_not_know_names_the_structure(exported):
    water = Atoms("OHH", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    gold = Atoms("Au")
    with pytest.raises(ClebschError, match=r"structure 2: .*expected elements among O, H, C, got Au"):
        clebsch.evaluate([water, water, gold], exported(CASE))
