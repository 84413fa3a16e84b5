"""The parity matrix of MACE: every case of mace_cases.py against mace-torch on structures of 1 to 216 atoms.

PYTHONPATH=.deps/mace:src/python .venv/bin/python tests/parity/mace_table.py [CASE ...] [--write MD] [--keep JSON]

Prints a table. CLEBSCH_LIBRARY names the library. Without names: all cases. --keep: results are added to this file case
by case, and those that it has are not computed again. Ends with status 1 when a limit of docs/export.md is exceeded.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

warnings.simplefilter("ignore")

import torch  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.compare import FORCE_FLOOR, Values, errors, evaluate, upstream_mace  # noqa: E402
from clebsch.probe import Probe, all_pairs, random_structure  # noqa: E402
from clebsch.runtime import Model  # noqa: E402
from mace_cases import CASES, model_of  # noqa: E402
from mace_export import exact_upstream  # noqa: E402

#: What a model is run as, and the limit of its relative errors; the largest force component has ten times as much.
LIMITS = {("float64", "exact"): 1e-10, ("float64", "table"): 1e-6, ("float32", "table"): 1e-5}
KEYS = ("energy", "forces", "forces_max", "virial")


def opened(probe: Probe, cutoff: float) -> Probe:
    """The same atoms without images, in a cell larger than their extent and the cutoff."""
    size = float((probe.positions.amax(0) - probe.positions.amin(0)).max()) + 3 * cutoff
    cell = size * torch.eye(3, dtype=torch.float64)
    return Probe(probe.positions, cell, probe.types, *all_pairs(probe.positions, cell, cutoff))


def structures(types: int, cutoff: float) -> dict[str, Probe]:
    """Name -> structure. Sheared cells shorter than twice the cutoff, and one of 216 atoms; open clusters; one atom."""

    def lattice(side: int, seed: int) -> Probe:
        return random_structure(types, cutoff, seed, side)

    return {
        "8 atoms, sheared cell": lattice(2, 0),
        "8 atoms, another": lattice(2, 1),
        "1 atom, sheared cell": lattice(1, 2),
        "1 atom, open": opened(lattice(1, 3), cutoff),
        "27 atoms, open": opened(lattice(3, 4), cutoff),
        "216 atoms, sheared cell": lattice(6, 5),
    }


def worst(model: Model, probes: dict[str, Probe], answers: dict[str, Values]) -> dict[str, float]:
    """The largest error of every kind over the structures."""
    found = [errors(evaluate(model, probe), answers[name]) for name, probe in probes.items()]
    return {key: max(e[key] for e in found) for key in KEYS}


def one_case(name: str, folder: Path) -> dict[str, dict[str, float]]:
    """The errors of a case, by what it is run as. A float32 model is compared with the same weights in float64."""
    options = CASES[name]
    model = model_of(name)
    heads = options.get("heads")
    head = None if heads is None else options.get("head", heads[-1])
    path = folder / f"{name}.pt"
    made = export.mace(model, path, head=head, elements=options.get("keep"), verify=False)
    numbers, cutoff = made.metadata["atomic_numbers"], made.metadata["r_max"]
    reference = exact_upstream(model)
    probes = structures(len(numbers), cutoff)
    answers = {key: upstream_mace(reference, probe, numbers, head) for key, probe in probes.items()}
    for key, values in answers.items():
        size = float(values.forces.pow(2).mean().sqrt())
        assert key.startswith("1 atom") or size > FORCE_FLOOR, (
            f"{name}, {key}: forces of {size:.2g} eV/A measure nothing"
        )
    kinds = [kind for kind in LIMITS if kind[0] == "float32" or made.metadata["dtype"] == "float64"]
    return {" ".join(kind): worst(Model(path, dtype=kind[0], radial=kind[1]), probes, answers) for kind in kinds}


def largest(results: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, tuple[float, str]]]:
    """By kind and key: the largest error and its case."""
    out: dict[str, dict[str, tuple[float, str]]] = {}
    for name, rows in results.items():
        for kind, found in rows.items():
            for key, value in found.items():
                best = out.setdefault(kind, {}).get(key, (-1.0, ""))
                out[kind][key] = max(best, (value, name))
    return out


def markdown(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """The table: energy, forces, largest component, virial in every cell."""
    kinds = [" ".join(kind) for kind in LIMITS]
    lines = ["| case | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]

    def cell(values: Callable[[str], float] | None) -> str:
        return "" if values is None else ", ".join(f"{values(key):.0e}" for key in KEYS)

    for name, rows in results.items():
        cells = [cell(rows[kind].__getitem__ if kind in rows else None) for kind in kinds]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    top = largest(results)
    cells = [cell(lambda key, kind=kind: top[kind][key][0]) if kind in top else "" for kind in kinds]
    lines.append("| **largest** | " + " | ".join(cells) + " |")
    cells = [", ".join(top[kind][key][1] for key in KEYS) if kind in top else "" for kind in kinds]
    lines.append("| of | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def exceeded(results: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """What is beyond its limit."""
    limits = {" ".join(kind): limit for kind, limit in LIMITS.items()}
    return [
        f"{name}, {kind}: {key} {value:.1e}, expected at most {limits[kind] * (10 if key == 'forces_max' else 1):g}"
        for name, rows in results.items()
        for kind, found in rows.items()
        for key, value in found.items()
        if not value <= limits[kind] * (10 if key == "forces_max" else 1)
    ]


HEAD = """# MACE against mace-torch
Written by `tests/parity/mace_table.py`: mace-torch 0.3.16 in fp64, random weights, every case of
`tests/parity/mace_cases.py`. Structures: 8 (twice), 1 and 216 atoms in sheared cells with images, 1 and 27 atoms in
open space, all elements of the model, forces above 0.1 eV/A. A cell is the largest relative error of energy, forces
(RMS), forces (largest component) and virial over them, in the measures of docs/export.md. Limits 1e-10, 1e-6 and 1e-5,
for the largest component ten times as much.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=[])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.cases or list(CASES)
    known = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            start = time.perf_counter()
            try:
                results[name] = known.get(name) or one_case(name, Path(folder))
            except Exception as error:
                print(f"FAIL {name}: {type(error).__name__} {str(error)[:400]}", flush=True)
                results[name] = {"float64 exact": dict.fromkeys(KEYS, float("inf"))}
                continue
            known[name] = results[name]
            if options.keep:
                options.keep.write_text(json.dumps(known, indent=1) + "\n")
            print(markdown({name: results[name]}).splitlines()[2], f"{time.perf_counter() - start:.1f} s", flush=True)
    print("\n".join(markdown(results).splitlines()[-2:]))
    wrong = exceeded(results)
    print(f"{len(results)} cases, {len(wrong)} limits exceeded", *wrong, sep="\n  ")
    if options.write:
        options.write.write_text(HEAD + markdown(results) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
