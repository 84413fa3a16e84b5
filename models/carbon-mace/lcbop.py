"""The reference potential of the carbon model: LCBOP in LAMMPS, as an ASE calculator.

Long-range carbon bond-order potential of J. H. Los and A. Fasolino, Phys. Rev. B 68, 024107 (2003), with the
parameters that LAMMPS ships as C.lcbop. Its long-range part is cut at 6 A, so graphite has interlayer forces. Energies
are counted from isolated atoms.

Needs the LAMMPS Python module with the package MANYBODY.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ase import Atoms
from ase.calculators.lammpslib import LAMMPSlib
from ase.calculators.singlepoint import SinglePointCalculator


def parameters() -> Path:
    """C.lcbop of the LAMMPS in this Python environment; FileNotFoundError when it has none."""
    path = Path(sys.prefix) / "share/lammps/potentials/C.lcbop"
    if not path.is_file():
        raise FileNotFoundError(f"expected the parameters of LCBOP at {path}: install LAMMPS with scripts/quickstart")
    return path


def lcbop() -> LAMMPSlib:
    """A calculator of energy (eV), forces (eV/A) and stress (eV/A^3) for carbon in any cell, all directions periodic.

    One calculator serves structures of any number of atoms in turn; it restarts LAMMPS when that number changes.
    """
    return LAMMPSlib(
        lmpcmds=["pair_style lcbop", f'pair_coeff * * "{parameters()}" C', "neigh_modify delay 0 every 1"],
        lammps_header=["units metal", "atom_style atomic", "atom_modify map array sort 0 0", "newton on"],
        atom_types={"C": 1},
        keep_alive=True,
        log_file=None,
    )


def label(atoms: Atoms, calculator: LAMMPSlib, **info: object) -> Atoms:
    """A copy of `atoms` that carries the reference's energy, forces and stress, and `info`."""
    frame = atoms.copy()
    frame.calc = None
    frame.info = dict(info)
    work = atoms.copy()
    work.calc = calculator
    frame.calc = SinglePointCalculator(
        frame, energy=work.get_potential_energy(), forces=work.get_forces(), stress=work.get_stress()
    )
    return frame
