"""Types are those of the step: whoever changes them between two of LAMMPS's neighbour lists gets the new energy."""

import pytest
from lammps_runs import assert_same, random_system, usual

PADDED = "device cpu:padded"
#: Atoms rest, so that LAMMPS builds no list of its own accord; atom 5 is at the boundary of the box and of ranks.
CHANGE = "run 0\nset atom 5 type {}\nrun 1 pre no"


def at_a_corner(kind=2, **rest):
    system = random_system(atoms=40, seed=9, **rest)
    system.positions += 0.05 - system.positions[4]
    system.types[4] = kind
    return system


@pytest.mark.parametrize("style", usual(["", PADDED, "comm ghost", f"{PADDED} comm ghost"], "", f"{PADDED} comm ghost"))
@pytest.mark.parametrize("ranks, newton", [(1, "on"), (1, "off"), (2, "on"), (3, "off")])
def test_set_type(lammps, model, style, ranks, newton):
    """Of an atom and of its ghosts: cutoffs depend on the ordered pair of types."""
    reference = lammps.reference(at_a_corner(1), model)
    old = lammps.reference(at_a_corner(2), model)
    assert abs(reference.values["pe"] - old.values["pe"]) > 1e-2
    run = lammps.evaluate(at_a_corner(2), model, style=style, ranks=ranks, newton=newton, run=CHANGE.format(1))
    assert "Neighbor list builds = 0" in run.output
    assert_same(run, reference)
    there_and_back = CHANGE.format(1) + "\nset atom 5 type 2\nrun 1 pre no"
    assert_same(lammps.evaluate(at_a_corner(2), model, style=style, ranks=ranks, run=there_and_back), old)


def overlay(model, style):
    """Lists of lj/cut hold all types, whatever they become; the model's leave type 3 out."""
    return (
        f"pair_style hybrid/overlay clebsch {style} lj/cut 4.0\npair_coeff * * clebsch {model} O H NULL\n"
        "pair_coeff * * lj/cut 0.01 1.0\n"
    )


@pytest.mark.parametrize("style", ["", PADDED])
@pytest.mark.parametrize("ranks", [1, 3])
def test_types_of_no_model(lammps, model, style, ranks):
    """An atom may leave the model; one that LAMMPS's list does not hold stops the run."""
    names = {"type_names": ("O", "H", "Ar")}
    pair = overlay(model, style)
    reference = lammps.reference(at_a_corner(3, **names), model, pair=pair)
    assert_same(
        lammps.evaluate(at_a_corner(2, **names), model, pair=pair, ranks=ranks, run=CHANGE.format(3)), reference
    )
    lost = lammps.evaluate(at_a_corner(3, **names), model, pair=pair, ranks=ranks, run=CHANGE.format(1), check=False)
    text = "expected all atoms of types that are not NULL in the neighbor list, got a list without 1 of them at step 1"
    assert lost.returncode != 0 and text in " ".join(lost.output.split()), lost.output
