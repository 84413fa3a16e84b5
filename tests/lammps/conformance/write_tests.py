"""Writes the tests for LAMMPS's test_pair_style.

  write_tests.py [--harness PROGRAM --plugins FOLDERS] [--check] [TEST ...]

Values of tests with exact radial functions are those of reference.py. With tables they are the plugin's own, made by
test_pair_style -g, and only after they have been compared with the reference; without --harness such tests are left as
they are. --check writes nothing, compares the files with the reference, and exits with 1 where they differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402
from conformance_cases import CASES, EPSILON, Case  # noqa: E402
from reference import Values  # noqa: E402
from run import Harness  # noqa: E402

#: Tables against exact radial functions (docs/correctness.md), and files against the reference.
TABLES, SAME = 1e-6, 1e-13


def block(name: str, lines: list[str]) -> str:
    return f"{name}: ! |2\n" + "".join(f"  {line}\n" for line in lines) if lines else f'{name}: ! ""\n'


def vector(values: np.ndarray) -> str:
    return " ".join(f"{value:24.16e}" for value in values)


def text_of(name: str, case: Case, first: Values, last: Values) -> str:
    """A file as test_pair_style -g would write it, without the date."""
    style, coefficients = case.pair()
    before = [f"variable units index {case.units}"] if case.units != "metal" else []
    if case.units == "real":
        before.append(f"variable timestep index {reference.TIMESTEP['real']}")
    if case.data != "data.water":
        before.append(f"variable system index {case.data}")
    needed = ["pair clebsch"] + ["pair lj/cut"] * bool(case.lj)
    parts = [
        "---\n",
        "lammps_version: 4 Jul 2026\n",
        f"epsilon: {EPSILON}\n",
        f"skip_tests: {case.skip}\n" if case.skip else "",
        block("prerequisites", needed),
        block("pre_commands", before),
        block("post_commands", []),
        "input_file: in.clebsch\n",
        f"pair_style: {style}\n",
        block("pair_coeff", coefficients),
        block("extract", []),
        f"natoms: {len(first.forces)}\n",
    ]
    for when, values in (("init", first), ("run", last)):
        parts += [f"{when}_vdwl: {values.energy:.17g}\n", f"{when}_coul: 0\n"]
        parts.append(block(f"{when}_stress", [vector(values.virial)]))
        rows = [f"{i:3} {vector(force)}" for i, force in enumerate(values.forces, 1)]
        parts.append(block(f"{when}_forces", rows))
    return "".join(parts) + "...\n"


def values_of(path: Path) -> tuple[Values, Values]:
    """What a file expects at first and after its steps."""
    content = yaml.safe_load(path.read_text())

    def numbers(key: str) -> np.ndarray:
        return np.array([[float(word) for word in line.split()] for line in content[key].strip().splitlines()])

    return tuple(
        Values(float(content[f"{w}_vdwl"]), numbers(f"{w}_forces")[:, 1:], numbers(f"{w}_stress")[0])
        for w in ("init", "run")
    )


def difference(values: tuple[Values, Values], expected: tuple[Values, Values]) -> float:
    """The largest of energy, forces (root mean square) and virial, relative."""
    worst = 0.0
    for mine, other in zip(values, expected, strict=True):
        worst = max(worst, abs(mine.energy - other.energy) / abs(other.energy))
        for name in ("forces", "virial"):
            a, b = getattr(mine, name), getattr(other, name)
            worst = max(worst, float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2))))
    return worst


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--harness", help="test_pair_style")
    arguments.add_argument("--plugins", default="", help="folders with the plugin, separated by colons")
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("tests", nargs="*", metavar="TEST")
    given = arguments.parse_args()
    wrong = 0
    for name, case in CASES.items():
        if given.tests and name not in given.tests:
            continue
        expected, path = reference.run(case), HERE / f"{name}.yaml"
        bound = SAME if case.exact else TABLES
        if given.check:
            found = difference(values_of(path), expected)
            print(f"{name:16} {found:.1e} (limit {bound})")
            wrong += not found < bound
            continue
        if not case.exact:
            if not given.harness:
                print(f"{name}: left as it is; its values want --harness")
                continue
            with tempfile.TemporaryDirectory() as folder:
                harness = Harness(given.harness, given.plugins, Path(folder))
                (harness.folder / path.name).write_text(text_of(name, case, *expected))
                values = values_of(harness.generate(harness.folder / path.name))
            found = difference(values, expected)
            if not found < bound:
                print(f"{name}: the plugin's values differ from the reference by {found}, expected below {bound}")
                wrong += 1
                continue
            print(f"{name}: tables differ from the reference by {found:.1e}")
            expected = values
        path.write_text(text_of(name, case, *expected))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
