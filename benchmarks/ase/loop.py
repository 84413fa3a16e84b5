"""One calculator after another over structures, and molecular dynamics of one: what users of ASE do. For any release.

python3 loop.py MODEL STRUCTURES.npz OUT.npz DEVICE SECONDS     with that release's package and CLEBSCH_LIBRARY

It knows nothing of this checkout, so that an older release can run it. STRUCTURES.npz: positions (S, N, 3), cells
(S, 3, 3), numbers (N,). OUT.npz: the structures that fitted into the time, their energies (K,), forces (K, N, 3) and
the seconds of each (K,). The first few compile kernels and are the caller's to leave out.
"""

import sys
import time

import numpy as np
from ase import Atoms

from clebsch.ase import ClebschCalculator


def main(model: str, structures: str, out: str, device: str, seconds: str) -> None:
    given = np.load(structures)
    calculator = ClebschCalculator(model, device=device, dtype="float32")
    energies, forces, times = [], [], []
    end = time.perf_counter() + float(seconds)
    for positions, cell in zip(given["positions"], given["cells"], strict=True):
        atoms = Atoms(numbers=given["numbers"], positions=positions, cell=cell, pbc=True)
        begin = time.perf_counter()
        atoms.calc = calculator
        forces.append(atoms.get_forces())
        energies.append(atoms.get_potential_energy())
        atoms.get_stress()
        times.append(time.perf_counter() - begin)
        if begin > end:
            break
    np.savez(out, energies=energies, forces=forces, seconds=times)


if __name__ == "__main__":
    main(*sys.argv[1:])
