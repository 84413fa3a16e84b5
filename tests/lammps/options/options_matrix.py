#!/usr/bin/env python3
"""Puts the outcomes of tests/lammps/options, which rows of the table they are and on what, into docs/correctness.md.

usage: options_matrix.py [--check] [RECORD ...]

RECORDs, which the tests write where CLEBSCH_OPTIONS_RECORD says, together replace the parts of their back ends in
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
#: Back ends, and what the page calls them.
BACK_ENDS = {
    "cpu": "CPU",
    "padded": "`device cpu:padded`",
    "bigbig": "CPU, BIGBIG",
    "kk-host": "`clebsch/kk`, host",
    "cuda": "`device cuda`",
    "kk-device": "`clebsch/kk`, GPU",
}


class Cells:
    """Outcomes of a session. A cell is of a row on a back end and a number of ranks and says `worst`, the largest
    difference from the reference of those runs that are not refused, or with `below` a bound of it, where only that was
    kept; `refused`, the remedy, where some or all are; `lacks`, what of the row this LAMMPS has not got; `failed`;
    `not run`, of a session that ended before."""

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


def ranks_of(part: dict[str, Any]) -> set[str]:
    """The numbers of ranks that a back end was run on."""
    return {count for cells in part["rows"].values() for count in cells}


def cell_of(cells: dict[str, dict[str, Any]], ranks: set[str]) -> str:
    """A back end's cells of one row, by number of ranks; `ranks` are those that the back end was run on."""
    kinds: dict[str, list[str]] = {}
    for count, cell in cells.items():
        if "lacks" in cell:
            kind = "not in this LAMMPS"
        elif "failed" in cell:
            kind = "**failed**"
        elif "not run" in cell:
            kind = "not run"
        else:
            kind = (
                ("below " if "below" in cell else "")
                + ("NUMBER" if "worst" in cell else "")
                + (", some refused" if "refused" in cell else "")
            )
            kind = "refused" if kind == ", some refused" else kind
        kinds.setdefault(kind, []).append(count)
    said = []
    for kind, counts in kinds.items():
        worst = max((cells[count].get("worst", 0.0) for count in counts), default=0.0)
        some = "" if set(counts) == ranks else f" ({', '.join(counts)})"
        said.append(kind.replace("NUMBER", f"{worst:.0e}") + some)
    return "; ".join(said)


def table(parts: dict[str, Any]) -> str:
    rows = list(dict.fromkeys(row for part in parts.values() for row in part["rows"]))
    measured = []
    for name, part in parts.items():
        ranks = ", ".join(sorted(ranks_of(part)))
        measured.append(f"{BACK_ENDS[name]}: LAMMPS {part['lammps']}, {part['date']}, ranks {ranks}")
    heads = ["option", *(BACK_ENDS[name] for name in parts), "refused with"]
    out = ["; ".join(measured) + ".", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        cells, remedies = [], []
        for part in parts.values():
            cells.append(cell_of(part["rows"].get(row, {}), ranks_of(part)))
            remedies += [cell["refused"] for cell in part["rows"].get(row, {}).values() if "refused" in cell]
        remedy = f"... {remedies[0].replace('|', '')} ..." if remedies else ""
        out.append(f"| {row} | {' | '.join(cells)} | {remedy} |")
    return "\n".join(out)


def complete(part: dict[str, Any]) -> None:
    """Gives a renewed part a cell for every row, in the table's order."""
    sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
    from option_rows import ROWS

    ran, rows = {int(count) for count in ranks_of(part)}, {}
    for row in ROWS:
        cells = part["rows"].get(row.name, {})
        made = {str(n): cells.get(str(n), {"not run": True}) for n in sorted(ran & set(row.ranks))}
        rows |= {row.name: made} if made else {}
    part["rows"] = rows


def main() -> int:
    words = sys.argv[1:]
    check = "--check" in words
    parts = read()
    renewed: set[str] = set()
    for path in (word for word in words if word != "--check"):
        for name, part in json.loads(Path(path).read_text()).items():
            rows = parts[name]["rows"] if name in renewed else {}
            renewed.add(name)
            for row, cells in part["rows"].items():
                rows.setdefault(row, {}).update(cells)
            parts[name] = part | {"rows": rows}
    for name in renewed:
        complete(parts[name])
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
