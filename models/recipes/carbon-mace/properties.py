"""Crystals of the carbon model beside the reference potential: lattices, elastic constants, defects, phonons.

    python properties.py ../../carbon-mace.pt [--out .]

Writes properties.json and phonons.png. Uses the functions of examples/ase.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from ase import Atoms, units
from ase.build import bulk
from ase.filters import FrechetCellFilter
from ase.optimize import FIRE
from carbon import A_DIAMOND, crystal, lonsdaleite, vacancy
from lcbop import lcbop

from clebsch.ase import ClebschCalculator

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples/ase"))
from elastic_constants import elastic_constants, relaxed_lattice  # noqa: E402
from phonons import Phonons, diamond_phonons, draw  # noqa: E402


def relaxed(atoms: Atoms, calculator, cell: bool = True) -> Atoms:
    """Atoms, and the cell if asked, at their nearest minimum."""
    out = atoms.copy()
    out.calc = calculator
    FIRE(FrechetCellFilter(out) if cell else out, logfile=None).run(fmax=2e-3, steps=600)
    return out


def lattices(calculator) -> dict:
    """Energies (eV an atom, counted from diamond but for diamond's own) and lattice constants (A)."""
    a = relaxed_lattice(calculator)
    diamond = bulk("C", "diamond", a, cubic=True)
    diamond.calc = calculator
    base = diamond.get_potential_energy() / len(diamond)
    out = {"diamond_a_A": a, "diamond_energy_eV": base}
    graphite = relaxed(crystal("graphite-ab", small=True), calculator)
    lengths = graphite.cell.lengths()
    out |= {"graphite_a_A": lengths[0] / 2, "graphite_c_A": lengths[2]}
    out["graphite_minus_diamond_meV"] = 1000 * (graphite.get_potential_energy() / len(graphite) - base)
    apart = graphite.copy()
    cell = graphite.cell.array.copy()
    cell[2] *= 4
    apart.set_cell(cell)
    top = apart.positions[:, 2] > graphite.cell.array[2, 2] / 2 - 0.5
    apart.positions[top, 2] += 1.5 * graphite.cell.array[2, 2]
    apart.calc = calculator
    lost = apart.get_potential_energy() - graphite.get_potential_energy()
    out["graphite_exfoliation_meV"] = 1000 * lost / len(graphite)
    hexagonal = relaxed(lonsdaleite((1, 1, 1)), calculator)
    out["lonsdaleite_minus_diamond_meV"] = 1000 * (hexagonal.get_potential_energy() / len(hexagonal) - base)
    cube = bulk("C", "diamond", a, cubic=True) * (3, 3, 3)
    hole = relaxed(vacancy(cube, np.random.default_rng(0)), calculator, cell=False)
    out["diamond_vacancy_eV"] = hole.get_potential_energy() - base * len(hole)
    out["diamond_vacancy_unrelaxed_eV"] = _energy(vacancy(cube, np.random.default_rng(0)), calculator) - base * len(
        hole
    )
    return out


def _energy(atoms: Atoms, calculator) -> float:
    atoms.calc = calculator
    return atoms.get_potential_energy()


def elasticity(calculator, a: float) -> dict:
    """C11, C12, C44 and the bulk modulus of diamond in GPa."""
    diamond = bulk("C", "diamond", a, cubic=True)
    diamond.calc = calculator
    c11, c12, c44 = elastic_constants(diamond)
    return {"C11_GPa": c11, "C12_GPa": c12, "C44_GPa": c44, "bulk_GPa": (c11 + 2 * c12) / 3}


def special(crystal: Phonons) -> dict:
    """Frequencies of diamond at the zone's centre and corners, THz."""
    points = crystal.cell.cell.bandpath().special_points
    waves = 2 * np.pi * crystal.cell.cell.reciprocal().array
    return {k: crystal.frequencies(points[k] @ waves)[0].round(3).tolist() for k in ("G", "X", "L", "W")}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."))
    args = parser.parse_args()

    calculators = {"reference": lcbop(), "model": ClebschCalculator(args.model, dtype="float64")}
    looks = {"reference": {"color": "#b6bcc6", "linewidth": 3.5}, "model": {"color": "#2563a8", "linewidth": 1.2}}
    report, crystals = {}, {}
    for name, calculator in calculators.items():
        report[name] = lattices(calculator)
        report[name] |= elasticity(calculator, report[name]["diamond_a_A"])
        crystals[name] = diamond_phonons(calculator)
        report[name] = {k: round(float(v), 4) for k, v in report[name].items()} | {
            "phonons_THz": special(crystals[name])
        }
    bins = np.arange(0.0, 45.0, 0.5)
    densities = [crystal.density(bins) for crystal in crystals.values()]
    report["density_of_states_overlap"] = round(float(np.minimum(*densities).sum() * 0.5), 4)
    draw({name: (crystals[name], looks[name]) for name in crystals}, args.out / "phonons.png")
    (args.out / "properties.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    print(f"experiment: a {A_DIAMOND} A; elastic constants 1079, 124, 578 GPa; 1 GPa is {units.GPa:.6f} eV/A^3")


if __name__ == "__main__":
    main()
