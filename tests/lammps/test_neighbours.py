"""What takes neighbours from a many-body model stops the run, and says how to keep them."""

import pytest
from lammps_runs import assert_same, random_system


def refused(run, *texts):
    joined = " ".join(run.output.split())
    assert run.returncode != 0 and all(text in joined for text in ("Pair style clebsch: ", *texts)), run.output


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("later", ["lj/cut 0.01 2.0", "none"])
def test_pairs_of_another_style(lammps, model, ranks, later):
    """A later pair_coeff takes a pair of types from the model under hybrid, and adds to it under hybrid/overlay."""
    pair = f"pair_style hybrid clebsch lj/cut 4.0\npair_coeff * * clebsch {model} O H\npair_coeff 2 2 lj/cut 0.01 1.0\n"
    pair += f"pair_coeff 1 2 {later}\n"
    system = random_system()
    run = lammps.evaluate(system, model, pair=pair, ranks=ranks, check=False)
    refused(run, "got types 1 2 given to another style", "use pair_style hybrid/overlay")
    if later != "none":
        lammps.evaluate(system, model, pair=pair.replace("hybrid", "hybrid/overlay"), ranks=ranks)


def group(system, group_command):
    """The command, and zero forces for atoms outside of the group, which LAMMPS itself never clears."""
    members = " ".join(str(k + 1) for k in range(len(system.types)) if system.types[k] == 2)
    rest = "group rest subtract all some\nfix rest rest setforce 0.0 0.0 0.0\n"
    return f"group some id {members}\natom_modify first some\n{group_command}\n{rest}"


@pytest.mark.parametrize(
    "command, ranks", [("neigh_modify include some", 1), ("comm_modify group some", 1), ("comm_modify group some", 2)]
)
def test_groups(lammps, model, command, ranks):
    """Atoms out of the group would be missed; a group with all atoms of the model takes nothing away."""
    system = random_system()
    run = lammps.evaluate(system, model, ranks=ranks, after=group(system, command), check=False)
    refused(run, f"in the group of `{command}`, got 20 outside", "use a group that has them")

    rest = random_system(type_names=("O", "H", "Ar"))
    pair = (
        f"pair_style hybrid/overlay clebsch zero 4.0\npair_coeff * * clebsch {model} NULL H NULL\npair_coeff * * zero\n"
    )
    reference = lammps.reference(rest, model, pair=pair)
    assert_same(lammps.evaluate(rest, model, ranks=ranks, pair=pair, after=group(rest, command)), reference)
