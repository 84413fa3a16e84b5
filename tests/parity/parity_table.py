"""Prints the errors of every exported option against upstream, and the largest of each column: the figures behind
test_nequip_export.py and test_allegro_export.py.

usage: parity_table.py [nequip|allegro] [CASE ...]         (CLEBSCH_LIBRARY names the library, as for the tests)
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "src/python"), str(HERE)]

import torch  # noqa: E402

import allegro_cases  # noqa: E402
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


#: Family -> its cases, and a function that builds one's upstream model and exports it to a path.
FAMILIES: dict[str, tuple[dict, Callable[[str, str], torch.nn.Module], Callable]] = {
    "nequip": (
        cases.CASES,
        lambda name, dtype: upstream.build(**{**cases.CASES[name], "model_dtype": dtype}),
        export.nequip,
    ),
    "allegro": (allegro_cases.CASES, allegro_cases.build, export.allegro),
}
QUANTITIES = ("energy", "forces", "virial")
COLUMNS = (("float64", "exact"), ("float64", "table"), ("float32", "table"))


def row(family: str, name: str) -> list[float]:
    """Errors of energy, forces and virial for every column, then those of the tables' values and slopes."""
    _, build, write = FAMILIES[family]
    atoms = structures.triclinic(cases.TYPES)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        paths, wanted = {}, {}
        for dtype in ("float64", "float32"):
            reference = build(name, dtype)
            paths[dtype] = f"{folder}/{dtype}.pt"
            write(reference, paths[dtype], verify=False)
            wanted[dtype] = upstream.evaluate(reference, atoms)
        for dtype, radial in COLUMNS:
            model = Model(paths[dtype], radial=radial)
            error = errors(run(model, atoms), wanted[dtype])
            found += [error[k] for k in QUANTITIES]
        found += [max(table[k] for table in model.tables) for k in ("value_error", "slope_error")]
    return found


def line(name: str, values: list[float]) -> str:
    """A row of the table."""
    groups = [values[k : k + 3] for k in range(0, len(values), 3)]
    return f"| {name} | " + " | ".join(", ".join(f"{x:.0e}" for x in group) for group in groups) + " |"


def main() -> None:
    warnings.simplefilter("ignore")
    family, *chosen = sys.argv[1:] or ["nequip"]
    if family not in FAMILIES:
        raise SystemExit(f"expected nequip or allegro, got {family!r}")
    heads = [f"{dtype} {radial}: E, F, virial" for dtype, radial in COLUMNS]
    print("| case | " + " | ".join(heads) + " | table value, slope |")
    print("|---" * (len(heads) + 2) + "|")
    rows = []
    for name in chosen or FAMILIES[family][0]:
        rows.append(row(family, name))
        print(line(name, rows[-1]), flush=True)
    print(line(f"largest of {len(rows)}", [max(column) for column in zip(*rows, strict=True)]))


if __name__ == "__main__":
    main()
