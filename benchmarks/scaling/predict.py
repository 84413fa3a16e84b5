"""Weak and strong scaling up to 1,024 GPUs: tables and the picture of docs/developers/scaling.md.

    python3 benchmarks/scaling predict [--write] [--provisional] [--json OUT.json] [--checked CHECK.json]
    python3 benchmarks/scaling predict --tag h100 [--write]

Without --write the tables are printed. Constants that are to be measured come from benchmarks/results/summary.json;
while some are not there, --provisional takes the guesses of constants.json, and the page says so. `--checked`: what
`check --json` wrote. Measured steps on several GPUs are rows gpus{G}_{model}_{comm}_{atoms}_ms of summary.json
(records.py), and md_{model}_kk_{atoms}_{G}_ranks_ms, which are comm ghost's. `--tag`: from the steps of a second
machine, whose records have that tag, and compared with them alone.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import common
import model as scaling
from model import COMMS, Model, Step

GPUS = [2**k for k in range(11)]
WEAK, STRONG = (64000, 8000), (64000, 1000000, 16000000)  # atoms a GPU; atoms
ROWS = re.compile(r"gpus(?P<gpus>\d+)_(?P<case>\w+)_(?P<comm>ghost|halo|gather)_(?P<atoms>\d+)_ms$")
OLDER = re.compile(r"md_(?P<case>\w+)_kk_(?P<atoms>\d+)_(?P<gpus>\d+)_ranks_ms$")


@dataclass(frozen=True)
class Measured:
    """A step on several GPUs."""

    case: str
    comm: str
    gpus: int
    atoms: int
    ms: float
    name: str


def measured(model: Model, records: list[dict]) -> list[Measured]:
    """All that summary.json has; a row of records.py is taken before an older one of the same run."""
    names, found = {name.lower().replace("-", "_"): name for name in model.cases}, {}
    for pattern in (OLDER, ROWS):
        for row in records:
            words = pattern.match(row["name"])
            if words and words["case"] in names and int(words["gpus"]) > 1:
                comm = words.groupdict().get("comm", "ghost")
                key = names[words["case"]], comm, int(words["gpus"]), int(words["atoms"])
                found[key] = Measured(*key, row["value"], row["name"])
    return list(found.values())


def weak_copies(model: Model, case: str, each: int, gpus: int) -> tuple[int, int, int]:
    """Boxes of `gpus` cubes of the base cell's copies for `each` atoms, as cubic as powers of two allow."""
    cube, grid, axis = model.copies(case, each), [1, 1, 1], 2
    while grid[0] * grid[1] * grid[2] < gpus:
        grid[axis] *= 2
        axis = (axis - 1) % 3
    return tuple(n * g for n, g in zip(cube, grid, strict=True))


def largest(model: Model, case: str) -> int:
    """Atoms a GPU up to which lines are drawn: what has been run on one."""
    return max(model.one[case].larger, default=64000)


def predictions(model: Model) -> dict[tuple, Step]:
    """(case, 'weak' or 'strong', atoms, comm, gpus) -> Step."""
    found = {}
    for case in model.cases:
        for kind, sizes in (("weak", WEAK), ("strong", STRONG)):
            for atoms in sizes:
                for gpus in GPUS:
                    copies = weak_copies(model, case, atoms, gpus) if kind == "weak" else model.copies(case, atoms)
                    if model.atoms(case, copies) / gpus > 1.01 * largest(model, case):
                        continue
                    for comm in COMMS:
                        if step := model.step(case, copies, gpus, comm):
                            found[case, kind, atoms, comm, gpus] = step
    return found


def efficiency(found: dict[tuple, Step], key: tuple) -> float:
    """Of the first number of GPUs that the atoms fit on with that comm, that is one for most lines."""
    case, kind, atoms, comm, gpus = key
    first = found[min((k for k in found if k[:4] == key[:4]), key=lambda k: k[4])]
    ratio = first.ms / found[key].ms
    return ratio if kind == "weak" else ratio * first.gpus / gpus


def main(words: list[str]) -> int:
    """Predicts and writes what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="the page and its picture")
    parser.add_argument("--provisional", action="store_true", help="guesses where nothing has been measured")
    parser.add_argument("--json", type=Path, help="every predicted step")
    parser.add_argument("--checked", type=Path, metavar="CHECK.json")
    parser.add_argument("--tag", default="", help="of the records of another machine")
    args = parser.parse_args(words)
    import page  # it needs what is above
    import picture

    model, rows = scaling.load(args.provisional, args.tag), json.loads(common.SUMMARY.read_text())
    if args.tag:
        points = measured(model, list(scaling.tagged(rows, args.tag).values()))
        text = page.machine(model, points)
        page.put(f"scaling-{args.tag}", text) if args.write else print(text)
        return 0
    found = predictions(model)
    points = measured(model, rows)
    text = page.tables(model, found, points)
    if args.json:
        steps = [
            {"kind": key[1], "of": key[2], "efficiency": efficiency(found, key)} | asdict(step)
            for key, step in found.items()
        ]
        common.save(args.json, steps)
    if not args.write:
        print(text)
        return 0
    page.put("scaling", text)
    if args.checked:
        page.put("counts", page.counts_table(args.checked))
    picture.plot(model, found, points)
    print(f"written: {page.PAGE.relative_to(common.ROOT)}, {picture.PICTURE.relative_to(common.ROOT)}")
    return 0
