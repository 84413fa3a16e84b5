#!/usr/bin/env python3
"""Puts the outcomes of tests/lammps/options, which rows of the table they are and on what, into docs/correctness.md.

usage: options_matrix.py [--check] [RECORD ...]

RECORDs, which the tests write where CLEBSCH_OPTIONS_RECORD says, replace the parts of their back ends in
benchmarks/results/options.json. Then the page's table is written; --check says whether it is that of options.json
instead.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks/results/options.json"
PAGE = ROOT / "docs/correctness.md"
BEGIN = "<!-- options:begin (tests/lammps/options/options_matrix.py writes between these lines) -->"
END = "<!-- options:end -->"
#: Columns of the page.
BACK_ENDS = ("CPU", "cpu:padded", "kk, host", "device cuda", "kk, device", "CPU, BIGBIG")


class Cells:
    """Outcomes of a session: a number, the worst difference, "refused", "refused with deep ghosts", or what lacks."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, dict[str, Any]]] = {}

    def add(self, back_end: str, ranks: int, row: str, cell: Any) -> None:
        self.found.setdefault(back_end, {}).setdefault(row, {})[str(ranks)] = cell

    def write(self, path: Path, back_ends: dict[str, Any]) -> None:
        parts = {}
        for name, rows in self.found.items():
            version = re.search(r"Simulator - (.*)", back_ends[name].help)
            parts[name] = {
                "lammps": version[1].strip() if version else "",
                "date": datetime.date.today().isoformat(),
                "rows": rows,
            }
        path.write_text(json.dumps(parts, indent=1) + "\n")


def read() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def cell_of(outcomes: dict[str, Any], all_ranks: set[str]) -> str:
    """One back end's outcomes of one row, ranks together where they are alike."""
    texts: dict[str, list[str]] = {}
    numbers = [value for value in outcomes.values() if isinstance(value, (int, float))]
    for ranks, value in outcomes.items():
        text = f"{max(numbers):.0e}" if isinstance(value, (int, float)) else value
        texts.setdefault(text, []).append(ranks)
    said = []
    for text, ranks in texts.items():
        some = "" if set(ranks) == set(outcomes) == all_ranks else f" ({', '.join(ranks)})"
        said.append(text + some)
    return "; ".join(said)


def table(parts: dict[str, Any]) -> str:
    names = [name for name in BACK_ENDS if name in parts]
    rows = list(dict.fromkeys(row for name in names for row in parts[name]["rows"]))
    measured = [f"{name}: LAMMPS {parts[name]['lammps']}, {parts[name]['date']}" for name in names]
    out = ["; ".join(measured) + ".", "", f"| option | {' | '.join(names)} |", "|" + "---|" * (len(names) + 1)]
    for row in rows:
        cells = []
        for name in names:
            ranks = {key for cells_of in parts[name]["rows"].values() for key in cells_of}
            cells.append(cell_of(parts[name]["rows"].get(row, {}), ranks))
        out.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(out)


def main() -> int:
    words = sys.argv[1:]
    check = "--check" in words
    parts = read()
    for path in (word for word in words if word != "--check"):
        parts |= json.loads(Path(path).read_text())
    parts = {name: parts[name] for name in BACK_ENDS if name in parts}
    page = PAGE.read_text()
    if BEGIN not in page or END not in page:
        print(f"expected the lines '{BEGIN}' and '{END}' in {PAGE.relative_to(ROOT)}", file=sys.stderr)
        return 1
    new = f"{page.split(BEGIN)[0]}{BEGIN}\n{table(parts)}\n{END}{page.split(END)[1]}"
    if check:
        if new != page:
            print(f"{PAGE.relative_to(ROOT)} has another table: {Path(__file__).name} renews it", file=sys.stderr)
        return int(new != page)
    RESULTS.write_text(json.dumps(parts, indent=1) + "\n")
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
