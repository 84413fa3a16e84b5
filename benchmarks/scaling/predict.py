"""Weak and strong scaling up to 1,024 GPUs: tables and the picture of docs/developers/scaling.md.

    python3 benchmarks/scaling predict [--write] [--provisional] [--json OUT.json] [--checked CHECK.json]

Without --write the tables are printed. Constants that are to be measured come from benchmarks/results/summary.json; while
some are not there, --provisional takes the guesses of constants.json, and the page says so. `--checked`: what `check
--json` wrote. Measured steps on several GPUs are rows gpus{G}_{model}_{comm}_{atoms}_ms of summary.json (records.py),
and md_{model}_kk_{atoms}_{G}_ranks_ms, which are comm ghost's.
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

PAGE, PICTURE = common.ROOT / "docs/developers/scaling.md", common.ROOT / "docs/images/scaling.png"
GPUS = [2**k for k in range(11)]
SHOWN = (1, 2, 4, 8, 16, 64, 256, 1024)
WEAK, STRONG = (64000, 8000), (64000, 1000000, 16000000)  # atoms a GPU; atoms
COLOURS = {"weak": {64000: "tab:blue", 8000: "tab:orange"},
           "strong": {64000: "tab:blue", 1000000: "tab:orange", 16000000: "tab:green"}}  # fmt: skip
LINES = {"halo": "-", "ghost": "--", "gather": ":"}
MARKERS = {"halo": "o", "ghost": "s", "gather": "^"}
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


def tables(model: Model, found: dict[tuple, Step], points: list[Measured]) -> str:
    """The page's numbers."""
    out = []
    if model.constants.missing:
        out += ["**These numbers rest on guesses** for constants that have not been measured yet: "
                f"{', '.join(f'`{name}`' for name in model.constants.missing)}.", ""]  # fmt: skip
    out += ["### Prediction", "", "Milliseconds a step and efficiency (against the first column that has a number) of the fastest of halo (h), ghost (g) "
            "and gather (a):", "", "| model | atoms |" + "".join(f" {gpus} |" for gpus in SHOWN), "|---" * (2 + len(SHOWN)) + "|"]  # fmt: skip
    for case in model.cases:
        for kind, sizes in (("weak", WEAK), ("strong", STRONG)):
            for atoms in sizes:
                cells, first = [], None
                for gpus in SHOWN:
                    steps = [found[k] for comm in COMMS if (k := (case, kind, atoms, comm, gpus)) in found]
                    if not steps:
                        cells.append("")
                        continue
                    best = min(steps, key=lambda step: (step.ms, step.comm != "halo"))
                    first = first or best
                    part = first.ms / best.ms * (1 if kind == "weak" else first.gpus / gpus)
                    letter = "" if gpus == 1 else {"halo": " h", "ghost": " g", "gather": " a"}[best.comm]
                    cells.append(f"{best.ms:.3g}" if best is first else f"{best.ms:.3g} {100 * part:.0f}%{letter}")
                what = f"{atoms:,} a GPU" if kind == "weak" else f"{atoms:,}"
                out.append(f"| {case} | {what} | " + " | ".join(cells) + " |")
    out += ["", "Where a step's time goes with comm halo, and what the slowest rank has of the others:", "",
            "| model | atoms | GPUs | own rows' step | copies' rows | exchange | LAMMPS | reductions | own rows | copies | "
            "partners | MB a step |", "|---" * 12 + "|"]  # fmt: skip
    for case in model.cases:
        for kind, atoms, gpus in (
            ("weak", 64000, 2),
            ("weak", 64000, 1024),
            ("strong", 64000, 64),
            ("strong", 1000000, 1024),
        ):
            if not (step := found.get((case, kind, atoms, "halo", gpus))):
                continue
            parts = " | ".join(
                f"{step.parts[key]:.3g}" for key in ("rows", "ghost rows", "exchange", "LAMMPS", "reductions")
            )
            what = f"{atoms:,} a GPU" if kind == "weak" else f"{atoms:,}"
            work = step.work
            out.append(f"| {case} | {what} | {gpus} | {parts} | {work.owned:,} | {work.remote:,} | {work.partners} | "
                       f"{step.bytes / 1e6:.3g} |")  # fmt: skip
    out += ["", "### Against measurements", ""]
    if points:
        out += [
            "| model | comm | GPUs | atoms | predicted, ms | measured, ms | difference | record |",
            "|---" * 8 + "|",
        ]
        for point in sorted(points, key=lambda p: (p.case, p.comm, p.gpus, p.atoms)):
            step = model.step(point.case, model.copies(point.case, point.atoms), point.gpus, point.comm)
            if step:
                out.append(f"| {point.case} | {point.comm} | {point.gpus} | {point.atoms:,} | {step.ms:.4g} | {point.ms:.4g} | "
                           f"{100 * (step.ms / point.ms - 1):+.1f}% | `{point.name}` |")  # fmt: skip
        absent = [comm for comm in COMMS if comm not in {point.comm for point in points}]
        out += ["", f"Not measured yet on several GPUs: comm {', '.join(absent)}."] if absent else []
    else:
        out += ["No step on several GPUs has been measured."]
    out += ["", "### One GPU", "", "| model | a, ms | b, us an atom | largest difference of the line from a measurement | records |",
            "|---" * 5 + "|"]  # fmt: skip
    for case, one in model.one.items():
        names = ", ".join(f"`{one.names[size]}`" for size in sorted(one.names))
        out.append(f"| {case} | {one.a:.3f} | {1e3 * one.b:.3f} | {100 * one.residual:.1f}% | {names} |")
    out += ["", "### Constants", "", "| name | value | source | what |", "|---" * 4 + "|"]
    table = json.loads((scaling.HERE / "constants.json").read_text())["constants"]
    for name, entry in table.items():
        value = f"{model.constants.numbers[name]:g} {entry['unit']}"
        out.append(f"| `{name}` | {value} | {model.constants.sources[name]} | {entry['says']} |")
    return "\n".join(out)


def counts_table(path: Path) -> str:
    """What `check --json` found."""
    results = json.loads(path.read_text())["results"]
    kinds = ("rows", "remote nodes", "most remote nodes", "most partners", "messages", "bytes", "ghosts")
    out = ["| model | box | ranks | comm | " + " | ".join(kinds) + " | LAMMPS's |", "|---" * (5 + len(kinds)) + "|"]
    runs: dict[tuple, dict] = {}
    for row in results:
        runs.setdefault((row["model"], row["box"], row["ranks"], row["way"]), {})[row["what"]] = row
    for key, rows in runs.items():
        differ = sum(row["counted"] != row["lammps"] for row in rows.values())
        numbers = " | ".join(f"{rows[kind]['counted']:,}" for kind in kinds)
        verdict = f"{differ} of {len(rows)} differ" if differ else f"all {len(rows)} equal"
        out.append(f"| {' | '.join(map(str, key))} | {numbers} | {verdict} |")
    return "\n".join(out)


def plot(model: Model, found: dict[tuple, Step], points: list[Measured]) -> None:
    """docs/images/scaling.png."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figure, panels = plt.subplots(
        2, len(model.cases), figsize=(1 + 3.4 * len(model.cases), 6.6), sharex=True, squeeze=False
    )
    for column, case in enumerate(model.cases):
        for panel, (kind, sizes) in zip(panels[:, column], (("weak", WEAK), ("strong", STRONG)), strict=True):
            for atoms in sizes:
                for comm in COMMS:
                    keys = sorted((k for k in found if k[:4] == (case, kind, atoms, comm)), key=lambda k: k[4])
                    if len(keys) < 2:
                        continue
                    value = [efficiency(found, k) if kind == "weak" else found[k].ms for k in keys]
                    panel.plot([k[4] for k in keys], value, LINES[comm], color=COLOURS[kind][atoms], linewidth=1.3)
                    if kind == "strong" and comm == "halo":
                        ideal = [value[0] * keys[0][4] / k[4] for k in keys]
                        panel.plot([k[4] for k in keys], ideal, color="0.75", linewidth=0.8, zorder=0)
            one = model.one[case]
            for atoms in sizes:
                at_one = (one.points | one.larger).get(atoms)
                mine = [p for p in points if p.case == case]
                each = {p: p.atoms / (p.gpus * atoms) for p in mine}  # boxes of whole cells are a little larger
                mine = [p for p in mine if (p.atoms == atoms if kind == "strong" else 0.99 < each[p] < 1.03)]
                style = {"color": COLOURS[kind][atoms], "markersize": 6, "markeredgecolor": "black", "linestyle": ""}
                if at_one and kind == "strong":
                    panel.plot([1], [at_one], marker="o", **style)
                for p in mine:
                    if kind == "strong":
                        panel.plot([p.gpus], [p.ms], marker=MARKERS[p.comm], **style)
                    elif at_one:
                        panel.plot([p.gpus], [each[p] * at_one / p.ms], marker=MARKERS[p.comm], **style)
            panel.set(xscale="log", title=f"{case}, {kind}")
            panel.set_xscale("log", base=2)
            panel.grid(alpha=0.3)
            if kind == "strong":
                panel.set(yscale="log", xlabel="GPUs")
            else:
                panel.set_ylim(0, 1.05)
    panels[0][0].set_ylabel("efficiency")
    panels[1][0].set_ylabel("ms a step")
    for panel, kind in zip(panels[:, -1], ("weak", "strong"), strict=True):
        labels = {64000: "64,000", 8000: "8,000", 1000000: "1,000,000", 16000000: "16,000,000"}
        handles = [Line2D([], [], color=c, label=labels[n] + (" atoms a GPU" if kind == "weak" else " atoms"))
                   for n, c in COLOURS[kind].items()]  # fmt: skip
        handles += [Line2D([], [], color="0.3", linestyle=s, label=f"comm {c}") for c, s in LINES.items()]
        handles += [Line2D([], [], color="w", markeredgecolor="black", marker=m, label=f"measured, {c}")
                    for c, m in MARKERS.items() if c in {p.comm for p in points}]  # fmt: skip
        panel.legend(handles=handles, fontsize=7, loc="lower left")
    if model.constants.missing:
        figure.suptitle("provisional: some constants are guesses", fontsize=9)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=100, metadata={"Software": None})


def put(text: str, name: str, part: str) -> str:
    """The page with `part` between the lines of that name."""
    begin, end = f"<!-- {name}:begin (benchmarks/run scaling writes between these lines) -->", f"<!-- {name}:end -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{PAGE.relative_to(common.ROOT)}: expected the lines '{begin}' and '{end}', got none")
    return f"{text.split(begin)[0]}{begin}\n{part}\n{end}{text.split(end)[1]}"


def main(words: list[str]) -> int:
    """Predicts and writes what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="the page and its picture")
    parser.add_argument("--provisional", action="store_true", help="guesses where nothing has been measured")
    parser.add_argument("--json", type=Path, help="every predicted step")
    parser.add_argument("--checked", type=Path, metavar="CHECK.json")
    args = parser.parse_args(words)
    model = scaling.load(args.provisional)
    found = predictions(model)
    points = measured(model, json.loads(common.SUMMARY.read_text()))
    text = tables(model, found, points)
    if args.json:
        steps = [
            {"kind": key[1], "of": key[2], "efficiency": efficiency(found, key)} | asdict(step)
            for key, step in found.items()
        ]
        common.save(args.json, steps)
    if not args.write:
        print(text)
        return 0
    page = put(PAGE.read_text(), "scaling", text)
    PAGE.write_text(put(page, "counts", counts_table(args.checked)) if args.checked else page)
    plot(model, found, points)
    print(f"written: {PAGE.relative_to(common.ROOT)}, {PICTURE.relative_to(common.ROOT)}")
    return 0
