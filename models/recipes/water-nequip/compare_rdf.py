"""Radial distributions of a LAMMPS dump beside the reference's: a table and a figure.

    python compare_rdf.py rdf.dump ../../../examples/water_box/reference_rdf.csv rdf.csv rdf.png

Type 1 is O, type 2 is H. Prints the largest difference of each function beyond the bonds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ase.io import iread
from rdf import PAIRS, Rdf


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("figure", type=Path)
    parser.add_argument("--label", default="NequIP in Clebsch", help="of the model in the figure")
    args = parser.parse_args()

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    reference = np.loadtxt(args.reference, delimiter=",", skiprows=1)
    width = reference[1, 0] - reference[0, 0]
    rdf, frames = None, 0
    for atoms in iread(args.dump, ":", format="lammps-dump-text", specorder=["O", "H"]):
        lengths = atoms.cell.lengths()
        if rdf is None:
            reach = min(reference[-1, 0] + 0.5 * width, 0.5 * lengths.min())
            r_max = width * np.floor(reach / width + 1e-6)
            rdf = Rdf(atoms.get_chemical_symbols(), r_max, width)
        rdf.add(atoms.positions, lengths)
        frames += 1
    model = rdf.result()
    np.savetxt(
        args.table,
        model,
        fmt=["%.3f", "%.5f", "%.5f", "%.5f"],
        delimiter=",",
        header="r,g_OO,g_OH,g_HH",
        comments="",
    )

    beyond = {("O", "O"): 2.0, ("O", "H"): 1.4, ("H", "H"): 2.0}
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    for column, (pair, axis) in enumerate(zip(PAIRS, axes, strict=True), start=1):
        there = reference[: len(model)]
        chosen = model[:, 0] > beyond[pair]
        largest = np.abs(model[chosen, column] - there[chosen, column]).max()
        print(f"g_{''.join(pair)}: largest difference {largest:.3f} ({frames} frames)")
        axis.plot(reference[:, 0], reference[:, column], "k-", lw=1, label="SPC/Fw reference")
        axis.plot(model[:, 0], model[:, column], "C0--", lw=1.5, label=args.label)
        axis.set(xlabel="r / Å", ylabel=f"g$_{{{''.join(pair)}}}$(r)")
        axis.set(xlim=(beyond[pair], model[-1, 0]), ylim=(0, 1.15 * there[chosen, column].max()))
    axes[0].legend(frameon=False)
    figure.savefig(args.figure, dpi=130)


if __name__ == "__main__":
    main()
