"""A calculator, an evaluator or a model that several threads share: they take turns, and each has its own answer."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from ase import Atoms

from clebsch.turns import Turns

pytestmark = pytest.mark.usefixtures("needs_library")

CASE = "zbl-cutoffs"
THREADS, ROUNDS = 4, 15


@pytest.fixture(scope="module")
def systems() -> list[Atoms]:
    """Of different sizes, so that arrays of one do not fit the other."""
    random = np.random.default_rng(1)
    found = []
    for size in range(3, 3 + THREADS):
        grid = 1.7 * np.stack(np.meshgrid(*3 * [np.arange(size)], indexing="ij"), axis=-1).reshape(-1, 3)
        symbols = random.choice(["O", "H", "C"], len(grid))
        found.append(
            Atoms(symbols, grid + random.uniform(-0.1, 0.1, grid.shape), cell=3 * [1.7 * size], pbc=size % 2 == 0)
        )
    return found


def everywhere(work, systems) -> list[list[np.ndarray]]:
    """What `work` gives of each system, in as many threads at once."""
    with ThreadPoolExecutor(max_workers=len(systems)) as pool:
        return list(pool.map(lambda atoms: [work(atoms) for _ in range(ROUNDS)], systems))


def check(work, systems) -> None:
    alone = [work(atoms) for atoms in systems]
    for expected, found in zip(alone, everywhere(work, systems), strict=True):
        for forces in found:
            np.testing.assert_allclose(forces, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("skin", [0.0, 1.0])
def test_calculator(exported, systems, skin):
    from clebsch.ase import ClebschCalculator

    calculator = ClebschCalculator(exported(CASE), dtype="float64", skin=skin, threads=1)
    check(lambda atoms: calculator.get_property("forces", atoms), systems)


def test_evaluator(exported, systems):
    import clebsch

    evaluator = clebsch.Evaluator(exported(CASE), dtype="float64", threads=1)
    check(lambda atoms: evaluator([atoms, atoms]).forces[1], systems)


def test_model(exported, systems):
    from clebsch.neighbours import NeighbourFinder
    from clebsch.runtime import Model

    model = Model(exported(CASE), dtype="float64", threads=1)
    finder, types = NeighbourFinder(model.r_max), {name: index for index, name in enumerate(model.type_names)}

    def forces(atoms: Atoms) -> np.ndarray:
        edges = finder.find(atoms.positions, atoms.cell, atoms.pbc)
        of_atoms = torch.tensor([types[symbol] for symbol in atoms.symbols])
        return model.compute(edges.vectors, of_atoms, edges.receivers, edges.senders)["forces"].numpy()

    check(forces, systems)


def test_a_copy_has_turns_of_its_own():
    turns = Turns()
    for other in (copy.copy(turns), copy.deepcopy(turns), pickle.loads(pickle.dumps(turns))):
        with turns, ThreadPoolExecutor(max_workers=1) as pool:

            def enters(other=other) -> bool:
                with other:
                    return True

            assert pool.submit(enters).result(timeout=10)
