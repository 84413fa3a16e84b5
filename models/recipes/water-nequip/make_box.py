"""Makes the start of examples/water_box and its reference radial distributions.

The box holds 216 molecules at 300 K and 0.997 g/cm^3 under the reference potential (spcfw.py).

    python make_box.py --out ../../../examples/water_box

writes water.data (LAMMPS, `atom_style atomic`, units metal, with velocities; type 1 is O,
type 2 is H) and reference_rdf.csv (r in A, g_OO, g_OH, g_HH; all pairs, bonds included).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rdf import Rdf
from spcfw import KCAL_MOL, MASS, Water, spacing

TEMPERATURE = 300.0  # K
DENSITY = 0.997  # g/cm^3
SIDE = 6


def write_data(path: Path, water: Water) -> None:
    """Writes the present state for `units metal` (A, A/ps)."""
    length = SIDE * spacing(DENSITY)
    x = water.array("x") % length
    v = water.array("v") * 1000.0  # A/fs to A/ps
    n = 3 * water.molecules
    lines = [
        f"{water.molecules} water molecules, flexible SPC/Fw (cutoff 6 A), {TEMPERATURE:.0f} K, "
        f"{DENSITY} g/cm^3; units metal",
        "",
        f"{n} atoms",
        "2 atom types",
        "",
    ]
    lines += [f"0.0 {length:.10f} {d}lo {d}hi" for d in "xyz"]
    lines += ["", "Masses", "", f"1 {MASS['O']}  # O", f"2 {MASS['H']}  # H"]
    lines += ["", "Atoms  # atomic", ""]
    for i in range(n):
        p = " ".join(f"{c:.8f}" for c in x[i])
        lines.append(f"{i + 1} {1 if i % 3 == 0 else 2} {p}")
    lines += ["", "Velocities", ""]
    lines += [f"{i + 1} " + " ".join(f"{c:.8f}" for c in v[i]) for i in range(n)]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the two files")
    parser.add_argument("--ps", type=float, default=100.0, help="length of the reference run")
    parser.add_argument("--seed", type=int, default=20260)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    length = SIDE * spacing(DENSITY)
    water = Water((SIDE,) * 3, spacing(DENSITY), args.seed)
    water.melt(TEMPERATURE, hot=500.0)
    water.run(10.0)
    write_data(args.out / "water.data", water)
    print("wrote", args.out / "water.data", flush=True)

    rdf = Rdf(["O", "H", "H"] * water.molecules, r_max=np.floor(length * 5) / 10)
    seen = []
    for step in range(round(args.ps / 0.1)):
        water.run(0.1)
        rdf.add(water.array("x"), np.full(3, length))
        seen.append([water.lmp.get_thermo(k) for k in ("temp", "pe", "press")])
        if step % 100 == 99:
            t, e, p = np.mean(seen, axis=0)
            print(
                f"{0.1 * (step + 1):6.1f} ps  {t:6.1f} K  {e * KCAL_MOL / water.molecules:8.4f} "
                f"eV/molecule  {p:8.1f} atm",
                flush=True,
            )
    np.savetxt(
        args.out / "reference_rdf.csv",
        rdf.result(),
        fmt=["%.3f", "%.5f", "%.5f", "%.5f"],
        delimiter=",",
        header="r,g_OO,g_OH,g_HH",
        comments="",
    )
    water.close()


if __name__ == "__main__":
    main()
