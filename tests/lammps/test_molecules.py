"""Bonds: special_bonds of weight 0 would take bonded neighbours from the model, whoever makes the bonds."""

import numpy as np
import pytest
from lammps_runs import System, refused

WATER = """water with bonds

3 atoms
2 bonds
1 angles
2 atom types
1 bond types
1 angle types
2 extra bond per atom
0 12 xlo xhi
0 12 ylo yhi
0 12 zlo zhi

Masses

1 15.9994
2 1.008

Atoms # molecular

1 1 1 6.0 6.0 6.0
2 1 2 6.9 6.1 6.0
3 1 2 5.8 6.9 6.2

Bonds

1 1 1 2
2 1 1 3

Angles

1 1 2 1 3
"""


def molecular(lammps, model, special="", **rest):
    text = f'units metal\natom_style molecular\nplugin load "{lammps.plugin}"\n{special}\nread_data water.data\n'
    text += "bond_style zero\nbond_coeff * 1.0\nangle_style zero\nangle_coeff *\n"
    text += f"pair_style clebsch\npair_coeff * * {model} O H\nrun 0\n"
    text += 'print "RESULT pe = $(pe:%.16g)"\n'
    return lammps(text, files={"water.data": WATER}, **rest)


@pytest.mark.parametrize("ranks", [1, 2])
def test_special_bonds(lammps, model, ranks):
    """Weight 0 (LAMMPS's default) would drop bonded neighbours; any other weight keeps them, and is ignored."""
    remedy = "`special_bonds lj/coul 1.0e-100 1.0e-100 1.0e-100`"
    refused(molecular(lammps, model, ranks=ranks, check=False), "weight 0 for 1-2 neighbors", remedy)
    refused(molecular(lammps, model, "special_bonds lj/coul 1 0 1", ranks=ranks, check=False), "weight 0 for 1-3")
    positions = np.array([[6, 6, 6], [6.9, 6.1, 6], [5.8, 6.9, 6.2]])
    system = System(12 * np.eye(3), positions, np.array([1, 2, 2]))
    reference = lammps.reference(system, model).values["pe"]
    for special in ("special_bonds lj/coul 1.0e-100 1.0e-100 1.0e-100", "special_bonds lj/coul 1 1 1"):
        assert molecular(lammps, model, special, ranks=ranks).values["pe"] == pytest.approx(reference, rel=1e-12)


MOLECULE = """a water

3 atoms
2 bonds
1 angles

Coords

1 0.0 0.0 0.0
2 0.757 0.586 0.0
3 -0.757 0.586 0.0

Types

1 1
2 2
3 2

Bonds

1 1 1 2
2 1 1 3

Angles

1 1 2 1 3
"""
INSERTED = {
    "fix deposit": "region ins block 9 10 9 10 9 10\nfix in all deposit 1 0 1 1234 region ins near 1 mol w\n",
    "fix gcmc": "fix in all gcmc 1 20 0 0 29494 300.0 0.5 0.1 mol w full_energy intra_energy 0.47\n",
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fix", list(INSERTED))
def test_molecules_that_a_fix_inserts(lammps, model, fix, ranks):
    """Their bonds are in no data file: weight 0 is refused with the list that first has them."""

    def run(special, **rest):
        text = f'units metal\natom_style full\nplugin load "{lammps.plugin}"\nregion b block 0 12 0 12 0 12\n'
        text += "create_box 2 b bond/types 1 angle/types 1 extra/bond/per/atom 2 extra/angle/per/atom 1 &\n"
        text += "extra/special/per/atom 4\nmass 1 15.999\nmass 2 1.008\nmolecule w water.mol\n"
        text += (
            "create_atoms 1 single 3 3 3\ncreate_atoms 2 single 3.757 3.586 3\ncreate_atoms 2 single 2.243 3.586 3\n"
        )
        text += "set group all mol 1\n"
        text += "bond_style zero\nbond_coeff *\nangle_style zero\nangle_coeff *\n" + special
        text += f"pair_style clebsch dtype float64 energy interaction\npair_coeff * * {model} O H\n{INSERTED[fix]}"
        text += 'run 1\nprint "RESULT pe = $(pe:%.16g)"\nprint "RESULT atoms = $(atoms)"\n'
        text += 'run 0\nprint "RESULT again = $(pe:%.16g)"\n'
        return lammps(text, files={"water.mol": MOLECULE}, ranks=ranks, **rest)

    refused(run("", check=False), "step 1: expected every pair", "weight 0 for 1-2 neighbors")
    values = run("special_bonds lj/coul 1.0e-100 1.0e-100 1.0e-100\n").values
    assert values["atoms"] > 3 and values["again"] == pytest.approx(values["pe"], rel=1e-12)


def test_bonds_that_a_fix_makes(lammps, model):
    text = WATER.replace("2 bonds\n", "").replace("1 angles\n", "").split("Bonds")[0]
    make = "fix b all bond/create 1 1 2 1.3 1\nfix 1 all nve\ntimestep 0.00001\n"
    run = lammps(
        f'units metal\natom_style molecular\nplugin load "{lammps.plugin}"\n'
        "read_data water.data extra/bond/per/atom 2 extra/special/per/atom 8\nbond_style zero\nbond_coeff * 1.0\n"
        f"pair_style clebsch\npair_coeff * * {model} O H\n{make}run 5\n",
        files={"water.data": text},
        check=False,
    )
    refused(run, "expected every pair within the cutoff", "weight 0 for 1-2 neighbors")
