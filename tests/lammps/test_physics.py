"""Forces and virials are derivatives of the energy; per-atom quantities add up to the global ones."""

import numpy as np
import pytest
from lammps_runs import DUMP, RESULT, THERMO, random_system

#: eV per (bar Angstrom^3)
BAR_VOLUME = 1.0 / 1.6021765e6


def energies(run) -> dict:
    """Lines "ENERGY label = value"."""
    lines = [line.split() for line in run.output.splitlines() if line.startswith("ENERGY ") and "$" not in line]
    return {label: float(value) for _, label, _, value in lines}


def test_forces_are_gradients(lammps, model, record_property):
    """Central differences of the energy for some atoms, all directions."""
    system, step = random_system(), 1e-4
    moves = ""
    for atom in (1, 2, 17):
        for axis, name in enumerate("xyz"):
            shift = [0.0, 0.0, 0.0]
            for sign, times in ((1, 1), (-1, -2), (0, 1)):
                shift[axis] = times * step
                moves += f"displace_atoms a{atom} move {shift[0]} {shift[1]} {shift[2]}\n"
                if sign:
                    moves += f'run 0 post no\nprint "ENERGY {atom}{name}{sign} = $(pe:%.16g)"\n'
    groups = "".join(f"group a{atom} id {atom}\n" for atom in (1, 2, 17))
    run = lammps.evaluate(system, model, after=groups, run="run 0\nundump atoms\n" + moves)
    table, worst = energies(run), 0.0
    for atom in (1, 2, 17):
        for axis, name in enumerate("xyz"):
            slope = -(table[f"{atom}{name}1"] - table[f"{atom}{name}-1"]) / (2 * step)
            worst = max(worst, abs(slope - run.forces()[atom - 1, axis]))
    scale = np.abs(run.forces()).max()
    record_property("relative_force_error", worst / scale)
    print(f"finite difference force error {worst / scale:.1e}")
    assert worst / scale < 1e-6


def strain_energies(cell, strain: float) -> str:
    """Energies under six strains e of a triclinic box, x' = (1 + e) x with one entry each, each undone afterwards."""
    text = "run 0 post no\nundump atoms\n"
    for row, column in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)):
        for sign in (1, -1):
            matrix = np.eye(3)
            matrix[row, column] += sign * strain
            for factor, report in ((matrix, True), (np.eye(3), False)):
                c = cell @ factor.T
                box = f"x final 0 {c[0, 0]:.17g} y final 0 {c[1, 1]:.17g} z final 0 {c[2, 2]:.17g}"
                box += f" xy final {c[1, 0]:.17g} xz final {c[2, 0]:.17g} yz final {c[2, 1]:.17g}"
                text += f"change_box all {box} remap units box\nrun 0 post no\n"
                if report:
                    text += f'print "ENERGY {"xyz"[row]}{"xyz"[column]}{sign} = $(pe:%.16g)"\n'
    return text


@pytest.mark.parametrize("kind", ["plain", "overlay"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_virial_is_the_strain_derivative(lammps, model, kind, ranks, record_property):
    """Pressure against central differences of the energy under strain, also as a part of hybrid/overlay."""
    system, strain = random_system(atoms=48, tilt=(1.0, -0.7, 0.5)), 1e-5
    system.type_names = ("O", "H")
    pair = None
    if kind == "overlay":
        pair = (
            "pair_style hybrid/overlay clebsch lj/smooth 2.0 2.9\n"
            f"pair_coeff * * clebsch {model} O H\npair_coeff * * lj/smooth 0.01 1.5\n"
        )
    run = lammps.evaluate(system, model, ranks=ranks, pair=pair, run=strain_energies(system.cell, strain))
    table, worst, scale = energies(run), 0.0, 0.0
    for label in ("xx", "yy", "zz", "xy", "xz", "yz"):
        virial = -(table[f"{label}1"] - table[f"{label}-1"]) / (2 * strain)
        pressure = virial / run.values["vol"] / BAR_VOLUME
        worst = max(worst, abs(pressure - run.values[f"p{label}"]))
        scale = max(scale, abs(run.values[f"p{label}"]))
    record_property("relative_virial_error", worst / scale)
    print(f"{kind}, {ranks} ranks: finite strain virial error {worst / scale:.1e}")
    assert worst / scale < 2e-6


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("newton", ["on", "off"])
def test_per_atom_sums(lammps, model, ranks, newton):
    """Sums of pe/atom, stress/atom and centroid/stress/atom; no net force."""
    run = lammps.evaluate(random_system(tilt=(1.0, 0.3, -0.5)), model, ranks=ranks, newton=newton)
    assert abs(run.columns("c_pe").sum() - run.values["pe"]) < 1e-10 * max(1, abs(run.values["pe"]))
    pressure = np.array([run.values[key] for key in ("pxx", "pyy", "pzz", "pxy", "pxz", "pyz")])
    scale = np.abs(pressure).max()
    stress = -run.columns("c_st").sum(axis=0) / run.values["vol"]
    assert np.abs(stress - pressure).max() < 1e-10 * scale
    centroid = -run.columns("c_ce").sum(axis=0) / run.values["vol"]
    assert np.abs(centroid[:6] - pressure).max() < 1e-10 * scale
    assert np.abs(centroid[6:] - pressure[3:]).max() < 1e-10 * scale
    assert run.output.count("per-atom virials are not right") == 1
    assert np.abs(run.forces().sum(axis=0)).max() < 1e-9 * np.abs(run.forces()).max()


def total_energies(lammps, model, timestep: float, steps: int) -> np.ndarray:
    """Kinetic and total energy (rows) along an NVE run that rebuilds neighbour lists."""
    system = random_system(atoms=40, lengths=(9.0, 9.0, 9.0), seed=8, spacing=1.4)
    dynamics = f"velocity all create 300 1234 loop geom\nfix nve all nve\ntimestep {timestep}\nthermo {steps // 10}\n"
    pair = f"pair_style clebsch\npair_coeff * * {model} O H\nneighbor 0.3 bin\nneigh_modify delay 0 every 1\n"
    text = lammps.header(system) + pair + THERMO + dynamics + f"run {steps}\n"
    run = lammps(text, files={"system.data": system})
    assert "Neighbor list builds = 0" not in run.output
    rows = [line.split() for line in run.output.splitlines() if len(line.split()) == 11 and line.split()[0].isdigit()]
    potential, total = (np.array([float(row[column]) for row in rows]) for column in (1, 10))
    assert len(total) == 11
    return np.stack([total - potential, total])


def test_energy_conservation(lammps, repulsive_model, record_property):
    """NVE with neighbour list rebuilds: the error of the total energy is small and goes with the time step squared."""
    deviations = []
    for timestep, steps in ((2e-5, 400), (1e-5, 800)):
        kinetic, total = total_energies(lammps, repulsive_model, timestep, steps)
        deviations.append(np.abs(total - total[0]).max() / np.abs(kinetic).max())
    record_property("drift_over_kinetic", deviations[1])
    print(
        f"NVE: largest deviation {deviations[1]:.1e} of the kinetic energy, {deviations[0]:.1e} at twice the time step"
    )
    assert deviations[1] < 1e-3
    assert deviations[1] < deviations[0] / 3


def test_real_units(lammps, model):
    """units real: kcal/mol and kcal/mol/Angstrom, pressure in atmospheres."""
    system = random_system()
    metal = lammps.evaluate(system, model)
    text = lammps.header(system, units="real") + f"pair_style clebsch\npair_coeff * * {model} O H\n"
    real = lammps(text + THERMO + DUMP + "run 0\n" + RESULT, files={"system.data": system})
    factor = 23.060549
    assert abs(real.values["pe"] / metal.values["pe"] / factor - 1) < 1e-12
    assert np.abs(real.forces() - factor * metal.forces()).max() < 1e-9
    # 1 atm = 1.01325 bar; LAMMPS's own constants of the two unit systems agree to 1e-6 only.
    assert abs(real.values["pxx"] * 1.01325 / metal.values["pxx"] - 1) < 1e-5
