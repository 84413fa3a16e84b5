"""Prints the errors of every exported option against upstream: the figures behind test_nequip_export.py.

usage: parity_table.py            (CLEBSCH_LIBRARY names the library, as for the tests)
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "src/python"), str(HERE)]

import torch  # noqa: E402

import cases  # noqa: E402
import structures  # noqa: E402
import upstream  # noqa: E402
from clebsch import export  # noqa: E402
from clebsch.compare import Values, errors  # noqa: E402
from clebsch.neighbours import NeighbourFinder  # noqa: E402
from clebsch.runtime import Model  # noqa: E402


def run(model: Model, atoms) -> Values:
    types = torch.tensor([model.type_names.index(s) for s in atoms.get_chemical_symbols()])
    edges = NeighbourFinder(model.r_max).find(atoms.positions, atoms.cell, atoms.pbc)
    out = model.compute(edges.vectors, types, edges.receivers, edges.senders)
    return Values(out["atomic_energy"], out["forces"], out["virial"])


def main() -> None:
    warnings.simplefilter("ignore")
    atoms = structures.triclinic(cases.TYPES)
    columns = ("float64 exact", "float64 tables", "float32 tables")
    print("| case | " + " | ".join(f"{c}: E, F, virial" for c in columns) + " | table value, slope |")
    print("|---" * (len(columns) + 2) + "|")
    for name, options in cases.CASES.items():
        cells = []
        with tempfile.TemporaryDirectory() as folder:
            for dtype, radials in (("float64", ("exact", "table")), ("float32", ("table",))):
                reference = upstream.build(**{**options, "model_dtype": dtype})
                path = f"{folder}/{dtype}.pt"
                export.nequip(reference, path, verify=False)
                want = upstream.evaluate(reference, atoms)
                for radial in radials:
                    model = Model(path, radial=radial)
                    found = errors(run(model, atoms), want)
                    cells.append(", ".join(f"{found[k]:.0e}" for k in ("energy", "forces", "virial")))
            tables = model.tables
        worst = [max(t[k] for t in tables) for k in ("value_error", "slope_error")]
        print(f"| {name} | " + " | ".join(cells) + f" | {worst[0]:.0e}, {worst[1]:.0e} |", flush=True)


if __name__ == "__main__":
    main()
