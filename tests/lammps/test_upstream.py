"""LAMMPS with an exported model against upstream nequip itself, evaluated in eager mode."""

import sys
from pathlib import Path

import numpy as np
import pytest
from lammps_runs import random_system

PARITY = Path(__file__).resolve().parents[1] / "parity"
#: eV per (bar Angstrom^3), LAMMPS's constant for units metal
BAR_VOLUME = 1.0 / 1.6021765e6


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """(module of helpers, upstream model, exported file)"""
    pytest.importorskip("nequip")
    sys.path[:0] = [str(PARITY), str(PARITY.parents[1] / "src/python")]
    import upstream as helpers
    from clebsch import export

    options = dict(type_names=["O", "H"], r_max=4.0, num_layers=3, l_max=2, parity=True, num_features=8)
    model = helpers.build(**options)
    path = tmp_path_factory.mktemp("upstream") / "nequip.pt"
    export.nequip(model, path, verify=False)
    return helpers, model, str(path)


SYSTEMS = {
    "orthogonal": lambda: random_system(atoms=48, spacing=1.3),
    "triclinic": lambda: random_system(atoms=48, tilt=(2.0, -1.5, 1.0), spacing=1.3, seed=2),
    "small": lambda: random_system(atoms=3, lengths=(3.1, 3.3, 2.9), spacing=1.3, seed=6),
    "open": lambda: random_system(atoms=30, boundary="f f f", spacing=1.3, seed=5),
}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("style, tolerance", [("radial exact", 1e-10), ("", 1e-6), ("dtype float32", 1e-5)])
def test_against_upstream(lammps, upstream, name, style, tolerance, record_property):
    from ase import Atoms

    helpers, model, path = upstream
    system = SYSTEMS[name]()
    symbols = [system.type_names[kind - 1] for kind in system.types]
    periodic = system.boundary == "p p p"
    expected = helpers.evaluate(model, Atoms(symbols, system.positions, cell=system.cell, pbc=periodic))
    forces, atomic, w = (np.asarray(a, dtype=float) for a in (expected.forces, expected.atomic, expected.virial))
    run = lammps.evaluate(system, path, style=style, ranks=2 if style == "" else 1)

    force = np.sqrt(np.mean((run.forces() - forces) ** 2) / np.mean(forces**2))
    energy = abs(run.values["pe"] - atomic.sum()) / max(1.0, abs(atomic.sum()))
    each = np.abs(run.columns("c_pe")[:, 0] - atomic).max() / max(1.0, np.abs(atomic).max())
    pressure = np.array([run.values[key] for key in ("pxx", "pyy", "pzz", "pxy", "pxz", "pyz")])
    wanted = np.array([w[0, 0], w[1, 1], w[2, 2], w[0, 1], w[0, 2], w[1, 2]])
    virial = np.abs(pressure * run.values["vol"] * BAR_VOLUME - wanted).max() / np.sqrt(np.mean(wanted**2))
    errors = dict(force=force, energy=energy, atomic=each, virial=virial)
    for key, value in errors.items():
        record_property(key, float(value))
    print(f"{name}, {style or 'table'}: " + ", ".join(f"{key} {value:.1e}" for key, value in errors.items()))
    assert np.sqrt(np.mean(forces**2)) > 0.1
    assert force < tolerance and energy < tolerance and each < tolerance and virial < 10 * tolerance
