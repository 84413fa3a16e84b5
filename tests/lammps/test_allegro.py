"""A strictly local model in LAMMPS: any number of ranks with one cutoff of ghosts, the same as upstream and ASE, and
energy is conserved."""

import re
import sys

import numpy as np
import pytest
from lammps_runs import assert_same, random_system

from conftest import ROOT, tiny_model

#: Of tiny_allegro.py, and of lammps_runs.py.
R_MAX, SKIN = 4.0, 0.5
#: Bar per eV/Angstrom^3, LAMMPS's constant for units metal.
BAR = 1.6021765e6


HEAT_FLUX = """
velocity all create 300 77 mom yes loop geom
compute k all ke/atom
compute p all pe/atom
compute s all centroid/stress/atom NULL virial
compute j all heat/flux k p s
variable ex atom x*(c_k+c_p)
variable ey atom y*(c_k+c_p)
variable ez atom z*(c_k+c_p)
compute R all reduce sum v_ex v_ey v_ez
thermo_style custom step c_R[1] c_R[2] c_R[3] c_j[1] c_j[2] c_j[3]
thermo_modify format float %.15g
thermo 1
timestep 0.000002
fix 1 all nve
run 4
"""


@pytest.fixture(scope="module")
def allegro(tmp_path_factory) -> str:
    return tiny_model(tmp_path_factory.mktemp("models"), "dtype=float64", script="tiny_allegro.py")


def ghost_cutoff(run) -> float:
    """How deep LAMMPS itself says that its ghosts reach (the neighbour list's summary in its log)."""
    return float(re.search(r"ghost atom cutoff = ([\d.]+)", run.output)[1])


@pytest.mark.parametrize("boundary", ["p p p", "p f s"])
def test_ranks(lammps, allegro, boundary):
    """1, 2 and 4 ranks, newton on and off, folded ghosts or not: the same to 1e-10 in every quantity."""
    system = random_system(boundary=boundary, tilt=(2.0, -1.5, 1.0) if boundary == "p p p" else (0.0, 0.0, 0.0))
    reference = lammps.reference(system, allegro)
    assert np.abs(reference.forces()).max() > 1e-3
    assert_same(lammps.evaluate(system, allegro, newton="off"), reference)
    one = lammps.evaluate(system, allegro, style="comm ghost")
    assert_same(one, reference)
    assert ghost_cutoff(one) == R_MAX + SKIN
    for ranks, newton in ((2, "on"), (2, "off"), (4, "on"), (4, "off")):
        run = lammps.evaluate(system, allegro, ranks=ranks, newton=newton)
        assert_same(run, reference)
        # A single cutoff of ghosts, whatever the number of layers of the network.
        assert "communication cutoff set to 4.5 Angstrom = 1 layers x 4 + skin 0.5" in run.output, run.output
        assert ghost_cutoff(run) == R_MAX + SKIN


def test_three_layers_against_upstream_and_ase(lammps, tmp_path):
    """A network of three layers needs no deeper ghosts: on 1, 2 and 4 ranks it is upstream's and the calculator's."""
    sys.path[:0] = [str(ROOT / "tests/parity"), str(ROOT / "src/python")]
    pytest.importorskip("allegro")
    from ase import Atoms

    import allegro_cases
    import upstream
    from clebsch import export
    from clebsch.ase import ClebschCalculator

    options = dict(type_names=["O", "H"], r_max=R_MAX, per_type_energy_scales={"O": 12.0, "H": 8.0})
    model = allegro_cases.build("lmax-2-parity-3-layers", **options)
    path = str(tmp_path / "three.pt")
    export.allegro(model, path, verify=False)
    system = random_system(atoms=48, tilt=(2.0, -1.5, 1.0), spacing=1.3, seed=2)
    atoms = Atoms([system.type_names[k - 1] for k in system.types], system.positions, cell=system.cell, pbc=True)
    want = upstream.evaluate(model, atoms)
    atomic, forces, virial = (np.asarray(a, dtype=float) for a in (want.atomic, want.forces, want.virial))
    assert np.sqrt(np.mean(forces**2)) > 0.1
    reference = lammps.reference(system, path, style="radial exact")
    for ranks, newton in ((1, "on"), (2, "on"), (4, "off")):
        run = lammps.evaluate(system, path, style="radial exact", ranks=ranks, newton=newton)
        assert_same(run, reference)
        assert np.abs(run.forces() - forces).max() < 1e-10 * np.abs(forces).max()
        assert np.abs(run.columns("c_pe")[:, 0] - atomic).max() < 1e-10 * np.abs(atomic).max()
        pressure = np.array([run.values[key] for key in ("pxx", "pyy", "pzz", "pyz", "pxz", "pxy")])
        stress = pressure * run.values["vol"] / BAR
        wanted = virial[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
        assert np.abs(stress - wanted).max() < 1e-9 * np.abs(wanted).max()
        assert ranks == 1 or ghost_cutoff(run) == R_MAX + SKIN

    atoms.calc = ClebschCalculator(path, radial="exact")
    assert atoms.get_potential_energy() == pytest.approx(reference.values["pe"], rel=1e-10)
    assert np.abs(atoms.get_forces() - reference.forces()).max() < 1e-10 * np.abs(forces).max()
    assert np.abs(-atoms.get_stress() * BAR - pressure).max() < 1e-9 * np.abs(pressure).max()


def test_heat_flux_is_the_derivative_of_the_energys_moment(lammps, allegro):
    """Of a cluster: d/dt of sum r (kinetic + potential energy of the atom) is compute heat/flux by centroid virials."""
    system = random_system(boundary="f f f")
    text = lammps.header(system) + f"pair_style clebsch\npair_coeff * * {allegro} O H\n" + HEAT_FLUX
    run = lammps(text, files={"system.data": system})
    rows = [line.split() for line in run.output.splitlines() if re.match(r" *\d+ +[-+\d.e]+( +[-+\d.e]+){5} *$", line)]
    values = np.array(rows, dtype=float)[:5, 1:]
    moment, flux = values[:, :3], values[2, 3:]
    # Steps 0 to 4 of 0.002 fs, the fourth order's formula at step 2.
    derivative = (8 * (moment[3] - moment[1]) - (moment[4] - moment[0])) / (12 * 0.000002)
    assert np.linalg.norm(flux) > 1e-2
    np.testing.assert_allclose(flux, derivative, rtol=0, atol=1e-5 * np.linalg.norm(derivative))


def test_energy_is_conserved(lammps, allegro):
    """100 steps with rebuilds on 2 ranks end at the energy of the start, to the order of the time step."""
    system = random_system(atoms=40, spacing=1.6, seed=4)
    dynamics = "velocity all create 300 4711 loop geom\nfix 1 all nve\ntimestep {step}\n"
    drifts = []
    for step, count in ((0.0002, 50), (0.0001, 100)):
        text = dynamics.format(step=step)
        start = lammps.evaluate(system, allegro, ranks=2, after=text).values["etotal"]
        end = lammps.evaluate(system, allegro, ranks=2, after=text, run=f"run {count}").values["etotal"]
        drifts.append(abs(end - start))
    assert drifts[1] < 0.5 * drifts[0] + 1e-8 and drifts[1] < 1e-3, drifts


@pytest.mark.nightly
def test_drift(lammps, allegro, record_property):
    """In float32, 0.5 ps at constant energy after a run into balance: the slope of the energy is that of its noise."""
    system = random_system(atoms=40, spacing=1.6, seed=4)
    dynamics = "velocity all create 300 4711 loop geom\nfix 1 all nve\ntimestep 0.0002\n"
    style = "pair_style clebsch dtype float32\n" + f"pair_coeff * * {allegro} O H\n"
    output = "thermo_style custom step time temp etotal\nthermo_modify norm no format float %.9f\nthermo {}\nrun {}\n"
    text = lammps.header(system) + style + "neighbor 0.5 bin\nneigh_modify every 1 delay 0 check yes\n" + dynamics
    run = lammps(text + output.format(1000, 1000) + output.format(5, 2500), files={"system.data": system})
    sys.path.insert(0, str(ROOT / "examples"))
    from lammps_output import read_thermo

    thermo = read_thermo(run.folder / "log.test")[-1]
    energy = thermo["TotEng"] / len(system.types)
    slope = float(np.polyfit(thermo["Time"], energy, 1)[0])
    record_property("slope_eV_atom_ps", slope)
    print(f"slope {1e6 * slope:.1f} ueV/atom/ps, std {1e6 * energy.std():.1f} ueV/atom, {thermo['Temp'].mean():.0f} K")
    assert thermo["Temp"].mean() > 200 and abs(slope) < 1e-4 and energy.std() < 5e-5
