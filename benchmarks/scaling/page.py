"""The tables of docs/developers/scaling.md."""

from __future__ import annotations

import json
from pathlib import Path

import common
import model as scaling
from model import COMMS, Model, Step
from predict import STRONG, WEAK, Measured

PAGE = common.ROOT / "docs/developers/scaling.md"
SHOWN = (1, 2, 4, 8, 16, 64, 256, 1024)  # GPUs
LETTERS = {"halo": "h", "ghost": "g", "gather": "a"}
#: (kind, atoms, GPUs) whose parts are listed.
PARTS = (("weak", 64000, 2), ("weak", 64000, 1024), ("strong", 64000, 64), ("strong", 1000000, 1024))
STEP_PARTS = ("rows", "ghost rows", "exchange", "LAMMPS", "reductions")
KINDS = ("rows", "remote nodes", "most remote nodes", "most partners", "messages", "bytes", "ghosts")


def table(head: list[str], rows: list[list]) -> list[str]:
    """Lines of markdown."""
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]


def size(kind: str, atoms: int) -> str:
    return f"{atoms:,} a GPU" if kind == "weak" else f"{atoms:,}"


def fastest(found: dict[tuple, Step], case: str, kind: str, atoms: int) -> list[str]:
    """Cells of SHOWN: ms, efficiency against the first that has a number, and which comm."""
    cells, first = [], None
    for gpus in SHOWN:
        steps = [found[key] for comm in COMMS if (key := (case, kind, atoms, comm, gpus)) in found]
        if not steps:
            cells.append("")
            continue
        best = min(steps, key=lambda step: (step.ms, step.comm != "halo"))
        first = first or best
        part = 100 * first.ms / best.ms * (1 if kind == "weak" else first.gpus / gpus)
        rest = "" if best is first else f" {part:.0f}%"
        cells.append(f"{best.ms:.3g}{rest}" + (f" {LETTERS[best.comm]}" if gpus > 1 else ""))
    return cells


def prediction(model: Model, found: dict[tuple, Step]) -> list[str]:
    """The fastest comm of each point, and the parts of some steps."""
    sizes = [(kind, atoms) for kind, all_atoms in (("weak", WEAK), ("strong", STRONG)) for atoms in all_atoms]
    rows = [[case, size(*which), *fastest(found, case, *which)] for case in model.cases for which in sizes]
    says = (
        "Milliseconds a step and efficiency (against the first column that has a number) of the fastest of halo (h), "
        "ghost (g) and gather (a), by number of GPUs:"
    )
    out = ["### Prediction", "", says, ""]
    out += table(["model", "atoms", *map(str, SHOWN)], rows)
    out += ["", "Where a step's time goes with comm halo, ms, and what the slowest rank has of the others:", ""]
    head = ["model", "atoms", "GPUs", "own rows", "copies' rows", "exchange", "LAMMPS", "reductions"]
    rows = []
    for case in model.cases:
        for kind, atoms, gpus in PARTS:
            if step := found.get((case, kind, atoms, "halo", gpus)):
                parts = [f"{step.parts[key]:.3g}" for key in STEP_PARTS]
                work = [f"{step.work.owned:,}", f"{step.work.remote:,}", step.work.partners, f"{step.bytes / 1e6:.3g}"]
                rows.append([case, size(kind, atoms), gpus, *parts, *work])
    return out + table([*head, "atoms of the rank", "copies", "partners", "MB sent a step"], rows)


def against(model: Model, points: list[Measured]) -> list[str]:
    """The model's error."""
    rows = []
    for point in sorted(points, key=lambda p: (p.case, p.comm, p.gpus, p.atoms)):
        copies = model.measured_copies(point.case, point.atoms, point.gpus)
        if step := model.step(point.case, copies, point.gpus, point.comm):
            difference = f"{100 * (step.ms / point.ms - 1):+.1f}%"
            rows.append([point.case, point.comm, point.gpus, f"{point.atoms:,}", f"{step.ms:.4g}", f"{point.ms:.4g}",
                         difference, f"`{point.name}`"])  # fmt: skip
    head = ["model", "comm", "GPUs", "atoms", "predicted, ms", "measured, ms", "difference", "record"]
    out = ["### Against measurements", "", *(table(head, rows) if rows else [])]
    absent = [comm for comm in COMMS if comm not in {point.comm for point in points}]
    return out + (["", f"Not measured yet on several GPUs: comm {', '.join(absent)}."] if absent else [])


def tables(model: Model, found: dict[tuple, Step], points: list[Measured]) -> str:
    """The page's numbers."""
    out = []
    if model.constants.missing:
        names = ", ".join(f"`{name}`" for name in model.constants.missing)
        out += [f"**These numbers rest on guesses** for constants that have not been measured yet: {names}.", ""]
    out += [*prediction(model, found), "", *against(model, points), "", "### One GPU", "", *one_gpu(model)]
    constants = json.loads((scaling.HERE / "constants.json").read_text())["constants"]
    known = model.constants
    rows = [
        [f"`{name}`", f"{known.numbers[name]:g} {entry['unit']}", known.sources[name], entry["says"]]
        for name, entry in constants.items()
    ]
    return "\n".join([*out, "", "### Constants", "", *table(["name", "value", "source", "what"], rows)])


def machine(model: Model, points: list[Measured]) -> str:
    """The numbers of a second machine: comparison, where the time of its steps goes, steps on one GPU, constants."""
    used = [model.records[name] for one in model.one.values() for name in one.names.values()]
    commits = ", ".join(dict.fromkeys(row["commit"][:7] for row in used))
    out = [f"{used[0]['machine']}, {used[0]['date']}, steps on one GPU of commits {commits}. Constants: "]
    sources = [f"{name} {model.constants.numbers[name]:.4g} ({source.removeprefix('measured: ')})"
               for name, source in model.constants.sources.items() if source.startswith("measured")]  # fmt: skip
    out[0] += "; ".join(sources) + "."
    lines = against(model, points)
    out += [*lines[1:], "", "Where the time of the predicted steps goes, ms:", ""]
    rows = []
    for point in sorted(points, key=lambda p: (p.case, p.comm, p.atoms)):
        copies = model.measured_copies(point.case, point.atoms, point.gpus)
        if step := model.step(point.case, copies, point.gpus, point.comm):
            parts = [f"{step.parts.get(name, 0):.3g}" for name in STEP_PARTS]
            rows.append([point.case, point.comm, f"{point.atoms:,}", *parts])
    out += table(["model", "comm", "atoms", "own rows", "copies' rows", "exchange", "LAMMPS", "reductions"], rows)
    return "\n".join([*out, "", *one_gpu(model)])


def one_gpu(model: Model) -> list[str]:
    """The fitted lines."""
    rows = []
    for case, one in model.one.items():
        names = ", ".join(f"`{one.names[atoms]}`" for atoms in sorted(one.names))
        rows.append([case, f"{one.a:.3f}", f"{1e3 * one.b:.3f}", f"{100 * one.residual:.1f}%", names])
    return table(["model", "a, ms", "b, us an atom", "line against measurements, at most", "records"], rows)


def counts_table(path: Path) -> str:
    """What `check --json` found."""
    runs: dict[tuple, dict] = {}
    for row in json.loads(path.read_text())["results"]:
        runs.setdefault((row["model"], row["box"], row["ranks"], row["way"]), {})[row["what"]] = row
    lines = []
    for key, rows in runs.items():
        differ = sum(row["counted"] != row["lammps"] for row in rows.values())
        verdict = f"{differ} of {len(rows)} numbers differ" if differ else f"all {len(rows)} numbers equal"
        lines.append([*key, *(f"{rows[kind]['counted']:,}" for kind in KINDS), verdict])
    return "\n".join(table(["model", "box", "ranks", "comm", *KINDS, "LAMMPS's"], lines))


def put(name: str, part: str) -> None:
    """Writes `part` between the page's lines of that name."""
    text = PAGE.read_text()
    begin, end = f"<!-- {name}:begin (benchmarks/run scaling writes between these lines) -->", f"<!-- {name}:end -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{PAGE.relative_to(common.ROOT)}: expected the lines '{begin}' and '{end}', got none")
    PAGE.write_text(f"{text.split(begin)[0]}{begin}\n{part}\n{end}{text.split(end)[1]}")
