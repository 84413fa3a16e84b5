"""`energy interaction`, and the Monte Carlo moves that need it: an atom without neighbours has no energy."""

import subprocess

import numpy as np
import pytest
from lammps_runs import System, random_system, usual

INTERACTION = "energy interaction"
#: What fix gcmc does to try a deletion: the atom stays, and nobody is its neighbour.
EXCLUDE = "group out id 5\nneigh_modify exclude group out all\n"


def without(system, index):
    keep = np.arange(len(system.types)) != index
    return System(system.cell, system.positions[keep], system.types[keep], system.boundary, system.type_names)


@pytest.fixture(scope="module")
def isolated(request, tmp_path_factory):
    """Energies of an O and an H alone, from a run with the total energies."""
    from lammps_runs import Lammps

    run = Lammps(*(request.getfixturevalue(name) for name in ("lmp", "plugin")), tmp_path_factory.mktemp("isolated"))
    alone = System(60.0 * np.eye(3), np.array([[5.0, 5, 5], [35, 35, 35]]), np.array([1, 2]))
    return run.evaluate(alone, request.getfixturevalue("model")).columns("c_pe")[:, 0]


PADDED = "device cpu:padded"


@pytest.mark.parametrize(
    "style, ranks",
    usual(
        [(style, ranks) for style in ("", PADDED, "comm ghost", "radial exact") for ranks in (1, 3)],
        ("", 1),
        ("", 3),
        (PADDED, 3),
        ("comm ghost", 1),
        ("radial exact", 3),
    ),
)
def test_interaction_energies(lammps, model, isolated, style, ranks):
    """Of each atom and of the system: what is left of the total without isolated atoms; forces and virials stay."""
    system = random_system()
    total = lammps.reference(system, model, style=style)
    run = lammps.evaluate(system, model, style=f"{style} {INTERACTION}", ranks=ranks)
    reference = isolated[system.types - 1]
    assert np.abs(isolated).min() > 0.1
    assert np.abs(run.columns("c_pe")[:, 0] + reference - total.columns("c_pe")[:, 0]).max() < 1e-10
    assert abs(run.values["pe"] + reference.sum() - total.values["pe"]) < 1e-9
    assert np.abs(run.forces() - total.forces()).max() < 1e-10 * np.abs(total.forces()).max()
    assert abs(run.values["pxx"] - total.values["pxx"]) < 1e-9 * abs(total.values["pxx"])
    assert "energies relative to isolated atoms, in eV: O " in run.output
    assert float(run.output.split("in eV: O ")[1].split()[0]) == pytest.approx(isolated[0], rel=1e-9)


@pytest.mark.parametrize(
    "style, ranks", usual([(style, ranks) for style in ("", PADDED) for ranks in (1, 2)], ("", 2), (PADDED, 1))
)
def test_excluded_atom(lammps, model, isolated, style, ranks):
    """An atom out of all neighbour lists counts as one that is gone, in units of LAMMPS too."""
    system = random_system()
    excluded = lammps.evaluate(system, model, style=f"{style} {INTERACTION}", ranks=ranks, after=EXCLUDE)
    deleted = lammps.evaluate(without(system, 4), model, style=f"{style} {INTERACTION}", ranks=ranks)
    assert abs(excluded.values["pe"] - deleted.values["pe"]) < 1e-10
    assert abs(excluded.columns("c_pe")[4, 0]) < 1e-12
    total = lammps.evaluate(system, model, style=style, ranks=ranks, after=EXCLUDE)
    gone = lammps.evaluate(without(system, 4), model, style=style, ranks=ranks)
    assert abs(total.values["pe"] - gone.values["pe"] - isolated[system.types[4] - 1]) < 1e-10
    units = {"units": "real"}
    text = f"pair_style clebsch {style} {INTERACTION}\npair_coeff * * {model} O H\n{EXCLUDE}run 0\n"
    real = lammps(
        lammps.header(system, **units) + text + 'print "RESULT pe = $(pe:%.16g)"\n', files={"system.data": system}
    )
    assert real.values["pe"] == pytest.approx(deleted.values["pe"] * 23.060548, rel=1e-6)


@pytest.mark.parametrize("ranks", [1, 3])
def test_types_of_no_model(lammps, model, ranks):
    """NULL types have no isolated atoms; the other style's energy is its own."""
    system = random_system(type_names=("O", "H", "Ar"))
    system.types[::5] = 3

    def run(style, system):
        pair = (
            f"pair_style hybrid clebsch {style} lj/cut 4.0\npair_coeff * * clebsch {model} O H NULL\n"
            "pair_coeff 3 3 lj/cut 0.01 2.0\npair_coeff 1*2 3 lj/cut 0.01 2.0\n"
        )
        after = "group out id 2\nneigh_modify exclude group out all\n" if len(system.types) == 60 else ""
        return lammps.evaluate(system, model, pair=pair, ranks=ranks, after=after)

    assert abs(run(INTERACTION, system).values["pe"] - run(INTERACTION, without(system, 1)).values["pe"]) < 1e-10


def test_other_reference_needs_pair_coeff_again(lammps, model):
    other = f"pair_style clebsch\npair_coeff * * {model} O H\nrun 0\npair_style clebsch {INTERACTION}\n"
    run = lammps.evaluate(random_system(atoms=6), model, pair=other, check=False)
    assert run.returncode != 0 and "All pair coeffs are not set" in run.output


@pytest.fixture
def monte_carlo(lmp):
    if "gcmc" not in subprocess.run([lmp, "-h"], capture_output=True, text=True).stdout:
        pytest.skip("this LAMMPS lacks the package MC")


def gas(lammps, model, style, ranks=1, moves=3000):
    """A dilute gas of H at the pressure of four ideal atoms, kT = 0.1 eV: the mean number of atoms."""
    system = System(40.0 * np.eye(3), np.array([[5.0, 5, 5], [25, 25, 25]]), np.array([2, 2]))
    temperature, boltzmann, bar = 0.1 / 8.617333262e-5, 8.617333262e-5, 1.6021765e6
    pressure = 4 * boltzmann * temperature / 40.0**3 * bar
    after = (
        f"neighbor 1.0 bin\nfix mc all gcmc 1 10 0 2 4711 {temperature:.10g} 0 0.1 pressure {pressure:.10g}\n"
        "variable n equal atoms\nfix mean all ave/time 1 1 1 v_n ave running\n"
    )
    text = lammps.header(system) + f"pair_style clebsch {style}\npair_coeff * * {model} O H\n{after}thermo 100\n"
    text += f'run {moves // 10}\nprint "RESULT atoms = $(f_mean:%.10g)"\nprint "RESULT last = $(pe:%.16g)"\n'
    return lammps(text, files={"system.data": system}, ranks=ranks)


def test_ideal_gas(lammps, model, monte_carlo):
    """fix gcmc has as many atoms as an ideal gas, and two ranks take the same moves."""
    run = gas(lammps, model, INTERACTION)
    assert 3.2 < run.values["atoms"] < 4.8
    assert "takes the change of energy" not in " ".join(run.output.split())
    one, two = (gas(lammps, model, INTERACTION, ranks, moves=200).values for ranks in (1, 2))
    assert one["atoms"] == two["atoms"] and one["last"] == pytest.approx(two["last"], abs=1e-10)


def test_total_energies_are_noticed(lammps, model, monte_carlo):
    """With total energies the ideal gas is lost: the style says so, once, and names the remedy."""
    run = gas(lammps, model, "")
    assert abs(run.values["atoms"] - 4) > 2
    assert " ".join(run.output.split()).count("use `pair_style clebsch energy interaction`") == 1, run.output
