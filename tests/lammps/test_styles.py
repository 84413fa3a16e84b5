"""What users combine a pair style with: hybrid, NULL types, minimisation, barostats, rerun, restart, clear."""

import re
import subprocess

import numpy as np
import pytest
from lammps_runs import DUMP, RESULT, THERMO, System, assert_same, random_system


def with_argon(seed=11) -> System:
    """O and H with a third type that is not the model's."""
    system = random_system(atoms=60, seed=seed, type_names=("O", "H", "Ar"))
    system.types[::5] = 3
    return system


def keep(system: System, types) -> System:
    mask = np.isin(system.types, types)
    return System(system.cell, system.positions[mask], system.types[mask], system.boundary, system.type_names)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("newton", ["on", "off"])
def test_hybrid_with_null(lammps, model, ranks, newton):
    """NULL types belong to another style: energy and forces are those of the parts, also across their boundary."""
    system = with_argon()
    lj = "pair_coeff {} {} lj/cut 0.01 2.0\n"
    classical = lj.format(3, 3) + lj.format("1*2", 3)
    pair = f"pair_style hybrid clebsch lj/cut 4.0\npair_coeff * * clebsch {model} O H NULL\n" + classical
    run = lammps.evaluate(system, model, ranks=ranks, newton=newton, pair=pair)

    inner = keep(system, (1, 2))
    # A type without atoms still needs a name: any will do.
    alone = lammps.evaluate(inner, model, pair=f"pair_style clebsch\npair_coeff * * {model} O H H\n")
    rest = "pair_style lj/cut 4.0\npair_coeff * * 0.0 2.0\npair_coeff 3 3 0.01 2.0\npair_coeff 1*2 3 0.01 2.0\n"
    other = lammps.evaluate(system, model, pair=rest)
    forces = other.forces().copy()
    forces[np.isin(system.types, (1, 2))] += alone.forces()
    assert np.abs(run.forces() - forces).max() < 1e-9
    assert abs(run.values["pe"] - alone.values["pe"] - other.values["pe"]) < 1e-9
    for key in ("pxx", "pyz"):
        assert abs(run.values[key] - alone.values[key] - other.values[key]) < 1e-9 * abs(alone.values["pxx"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_overlay(lammps, model, ranks):
    """hybrid/overlay adds a longer-ranged classical style."""
    system = random_system()
    lj = "lj/cut 6.0"
    both = (
        f"pair_style hybrid/overlay clebsch {lj}\npair_coeff * * clebsch {model} O H\npair_coeff * * lj/cut 0.01 2.0\n"
    )
    run = lammps.evaluate(system, model, ranks=ranks, pair=both)
    one = lammps.evaluate(system, model)
    two = lammps.evaluate(system, model, pair=f"pair_style {lj}\npair_coeff * * 0.01 2.0\n")
    assert np.abs(run.forces() - one.forces() - two.forces()).max() < 1e-9
    assert np.abs(run.columns("c_st") - one.columns("c_st") - two.columns("c_st")).max() < 1e-8 * 1e6
    for key in ("pe", "pxx", "pxy"):
        total = one.values[key] + two.values[key]
        assert abs(run.values[key] - total) < 1e-10 * max(1, abs(one.values["pxx"]))


@pytest.mark.parametrize("ranks", [1, 3])
def test_two_models(lammps, model, repulsive_model, ranks):
    """Two instances under hybrid, each with its own type; on several ranks both raise the communication cutoff."""
    pair = (
        f"pair_style hybrid clebsch clebsch lj/cut 3.0\npair_coeff * * clebsch 1 {model} O NULL\n"
        f"pair_coeff * * clebsch 2 {repulsive_model} NULL H\npair_coeff 1 2 lj/cut 0.01 2.0\n"
    )
    system = random_system(atoms=40)
    reference = lammps.reference(system, model, pair=pair)
    assert_same(lammps.evaluate(system, model, ranks=ranks, pair=pair, newton="off"), reference)


def test_elements_in_any_order(lammps, model):
    """pair_coeff maps types by name; two types may have the same name."""
    system = random_system()
    reference = lammps.reference(system, model)
    swapped = System(system.cell, system.positions, 3 - system.types, type_names=("H", "O"))
    assert_same(lammps.evaluate(swapped, model), reference)
    split = System(system.cell, system.positions, system.types.copy(), type_names=("O", "H", "H"))
    split.types[1::6] = np.where(split.types[1::6] == 2, 3, split.types[1::6])
    run = lammps.evaluate(split, model, names="O H H")
    assert np.abs(run.forces() - reference.forces()).max() < 1e-10


def test_minimize(lammps, repulsive_model):
    """The energy goes down and the forces become small."""
    system = random_system(atoms=30, lengths=(9, 9, 9), seed=12)
    pair = f"pair_style clebsch\npair_coeff * * {repulsive_model} O H\n"
    text = lammps.header(system) + pair + THERMO + "run 0\n" + RESULT.replace("RESULT ", "RESULT start_")
    run = lammps(text + "minimize 0 1e-4 50 100\n" + DUMP + "run 0\n" + RESULT, files={"system.data": system}, ranks=2)
    assert run.values["pe"] < run.values["start_pe"] - 1e-3
    assert "Stopping criterion" in run.output


@pytest.mark.parametrize("tilt", [(0.0, 0.0, 0.0), (1.0, 0.5, -0.5)])
def test_npt(lammps, repulsive_model, tilt):
    """A barostat moves the box; 1 and 2 ranks agree on the result."""
    system = random_system(atoms=48, tilt=tilt, seed=13, spacing=1.4)
    what = "tri" if any(tilt) else "aniso"
    after = (
        f"velocity all create 300 77 loop geom\ntimestep 0.00002\nfix npt all npt temp 300 300 0.002 {what} 0 0 0.02\n"
    )
    runs = [lammps.evaluate(system, repulsive_model, ranks=ranks, after=after, run="run 40") for ranks in (1, 2)]
    assert abs(runs[0].values["vol"] / np.linalg.det(system.cell) - 1) > 1e-6
    assert abs(runs[1].values["vol"] / runs[0].values["vol"] - 1) < 1e-9
    assert np.abs(runs[1].forces() - runs[0].forces()).max() < 1e-6 * np.abs(runs[0].forces()).max()


def test_rerun(lammps, repulsive_model):
    """rerun over a dump gives the forces of the run that wrote it."""
    system = random_system()
    pair = f"pair_style clebsch\npair_coeff * * {repulsive_model} O H\n"
    dump = "dump d all custom 5 run.dump id type x y z fx fy fz\ndump_modify d sort id format float %.17g\n"
    dynamics = "velocity all create 300 5 loop geom\nfix 1 all nve\ntimestep 0.00002\n" + dump + "run 20\nundump d\n"
    again = "dump d all custom 5 again.dump id type x y z fx fy fz\ndump_modify d sort id format float %.17g\n"
    rerun = "unfix 1\n" + again + "rerun run.dump dump x y z\n"
    run = lammps(lammps.header(system) + pair + dynamics + rerun, files={"system.data": system})
    first, second = run.frames("run.dump"), run.frames("again.dump")
    assert len(first) == len(second) == 5
    for a, b in zip(first, second, strict=True):
        for key in ("fx", "fy", "fz"):
            assert np.abs(a[key] - b[key]).max() < 1e-10


def test_restart(lammps, model):
    """A restart file holds no pair settings: the commands are given again, and the energy is the same."""
    system = random_system()
    pair = f"pair_style clebsch\npair_coeff * * {model} O H\n"
    text = lammps.header(system) + pair + THERMO + "run 0\n" + RESULT.replace("RESULT ", "RESULT first_")
    text += f'write_restart state.restart\nclear\nplugin load "{lammps.plugin}"\nread_restart state.restart\n'
    run = lammps(text + pair + THERMO + "run 0\n" + RESULT, files={"system.data": system})
    assert run.values["pe"] == pytest.approx(run.values["first_pe"], rel=1e-12)
    lost = lammps(text + "run 0\n", files={"system.data": system}, check=False)
    assert lost.returncode != 0 and "ERROR" in lost.output


def test_run_zero_repeated(lammps, model):
    """run 0, pair_coeff again, run 0 again, pair_style again: one answer, and one report a load."""
    system = random_system()
    coeff = f"pair_coeff * * {model} O H\n"
    text = lammps.header(system) + "pair_style clebsch\n" + coeff + THERMO
    text += "run 0\nrun 0\n" + RESULT.replace("RESULT ", "RESULT one_") + coeff + "run 0\nrun 0 pre no\n"
    text += RESULT.replace("RESULT ", "RESULT two_") + "pair_style clebsch dtype float64\n" + coeff + "run 0\n" + RESULT
    run = lammps(text, files={"system.data": system})
    assert run.values["one_pe"] == run.values["two_pe"] == run.values["pe"]
    assert run.output.count("Pair style clebsch: ") == 3


def ghosts(run) -> list:
    """Ghosts a rank after each run."""
    return [float(line.split()[1]) for line in run.output.splitlines() if line.startswith("Nghost:")]


NEXT_STYLE = "pair_style zero 3.0\npair_coeff * *\nrun 0\n"
LARGE = {"atoms": 200, "lengths": (20, 20, 20)}


def test_communication_cutoff_is_given_back(lammps, model):
    """Ghost expansion asks for more ghosts; another pair style afterwards has its own again."""
    system = random_system(**LARGE)
    pair = f"pair_style clebsch comm ghost\npair_coeff * * {model} O H\nrun 0\nrun 0\n"
    run = lammps(lammps.header(system) + pair + NEXT_STYLE, ranks=2, files={"system.data": system})
    alone = lammps(lammps.header(system) + NEXT_STYLE, ranks=2, files={"system.data": system})
    assert ghosts(run)[0] == ghosts(run)[1] > 2 * ghosts(alone)[0] and ghosts(run)[2] == ghosts(alone)[0]
    assert run.output.count("communication cutoff set to") == 1


@pytest.mark.parametrize("when", ["write_restart state.restart\n", "restart 4 state.restart\nrun 4\n"])
def test_restart_holds_the_users_cutoff(lammps, model, when):
    """Written by several ranks, by a command and during a run, read by one."""
    system = random_system(**LARGE)
    pair = f"pair_style clebsch comm ghost\npair_coeff * * {model} O H\n"
    folded = pair.replace("comm ghost", "")
    users = "comm_modify cutoff 7.5\n"
    expected = lammps(lammps.header(system) + users + NEXT_STYLE, files={"system.data": system})
    write = lammps.header(system) + users + pair + "run 0\n" + when
    folder = lammps(write, ranks=2, files={"system.data": system}).folder
    restart = next(folder.glob("state.restart*"))
    run = lammps(f'plugin load "{lammps.plugin}"\nread_restart {restart}\n' + NEXT_STYLE + folded + "run 0\n")
    assert ghosts(run) == [ghosts(expected)[0]] * 2


def test_commands_without_fixes(lammps, lmp, model):
    """dynamical_matrix sets up communication without asking fixes: it needs the cutoff by hand, and is told which."""
    if "dynamical_matrix" not in subprocess.run([lmp, "-h"], capture_output=True, text=True).stdout:
        pytest.skip("this LAMMPS lacks the package PHONON")
    system = random_system(atoms=12, lengths=(9.0, 9.0, 9.0))
    pair = f"pair_style clebsch comm ghost\npair_coeff * * {model} O H\n"
    matrix = "dynamical_matrix all regular 1e-4 file matrix.txt\n"

    def matrix_of(text, style=pair, **rest):
        run = lammps(
            lammps.header(system, before="atom_modify map yes") + text + style + matrix,
            files={"system.data": system},
            **rest,
        )
        return run, np.loadtxt(run.folder / "matrix.txt") if run.returncode == 0 else None

    run, _ = matrix_of("", ranks=2, check=False)
    remedy = re.search(r"give `(comm_modify cutoff [\d.]+)` before it", " ".join(run.output.split()))
    assert run.returncode != 0 and remedy, run.output
    expected = matrix_of("", pair.replace("comm ghost", ""))[1]
    assert np.allclose(matrix_of(remedy[1] + "\n", ranks=2)[1], expected, rtol=1e-6, atol=1e-6)
    # Ghosts one cutoff deep are there anyway.
    halo = pair.replace("comm ghost", "comm halo")
    assert np.allclose(matrix_of("", halo, ranks=2)[1], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("newton", ["on", "off"])
def test_changing_box_without_setup(lammps, repulsive_model, newton):
    """`run ... pre no` sets up communication for a box that changes: with the ghosts that the model needs."""
    dynamics = "velocity all create 300 5 loop geom\nfix 1 all npt temp 300 300 0.002 iso 0 0 0.02\ntimestep 0.00005\n"
    system = random_system(atoms=60, lengths=(9, 9, 12), spacing=1.4)
    runs = "run 20\nrun 20 pre no"
    reference = lammps.reference(system, repulsive_model, after=dynamics, run=runs)
    run = lammps.evaluate(system, repulsive_model, ranks=2, newton=newton, after=dynamics, run=runs)
    assert_same(run, reference, tolerance=1e-6)


def test_unload(lammps, model):
    """plugin unload while the style is active, and use of another style afterwards."""
    system = random_system()
    pair = f"pair_style clebsch\npair_coeff * * {model} O H\nrun 0\n"
    text = lammps.header(system) + pair + "plugin unload pair clebsch\npair_style zero 3.0\npair_coeff * *\nrun 0\n"
    text += f'plugin load "{lammps.plugin}"\n' + pair
    assert "Loop time" in lammps(text, files={"system.data": system}).output


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_atoms(lammps, model, ranks):
    """An empty box has energy zero."""
    system = random_system(atoms=0)
    run = lammps.evaluate(system, model, ranks=ranks)
    assert run.values["pe"] == 0.0


@pytest.mark.parametrize("ranks", [1, 2])
def test_isolated_atoms(lammps, model, ranks):
    """Atoms without neighbours have no force; their energies do not depend on where they are."""
    cell = np.diag([60.0, 60.0, 60.0])
    positions = np.array([[5.0, 5, 5], [25, 5, 5], [5, 45, 5], [45, 45, 45]])
    run = lammps.evaluate(System(cell, positions, np.array([1, 2, 1, 2])), model, ranks=ranks)
    assert np.all(run.forces() == 0)
    energies = run.columns("c_pe")[:, 0]
    assert energies[0] == energies[2] and energies[1] == energies[3]


def test_atoms_come_and_go(lammps, model):
    """create_atoms and delete_atoms between runs."""
    system = random_system(atoms=30)
    after = "run 0\ndelete_atoms random fraction 0.5 yes all NULL 99\n"
    run = lammps.evaluate(system, model, after=THERMO + after, ranks=2)
    table = run.table()
    positions = np.stack([table[axis] for axis in "xyz"], axis=1)
    rest = System(system.cell, positions, table["type"].astype(int))
    reference = lammps.reference(rest, model)
    assert abs(run.values["pe"] - reference.values["pe"]) < 1e-10 * max(1, abs(reference.values["pe"]))
