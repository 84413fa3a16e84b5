"""What scripts/gpu-campaign brought back, put where it belongs: the table of options (docs/correctness.md), the page of
the sanitizers, rows of benchmarks/results/summary.json, and tables of docs/developers/ranks_measured.md between their
marks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/developers/ranks_measured.md"
#: Files of tests of which a campaign runs every test.
WHOLE = ("options", "faults")


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}:begin (scripts/gpu-campaign record writes between these lines) -->", f"<!-- {name}:end -->"


def put(name: str, text: str) -> None:
    """Replaces what stands between the marks of a name, which the page must have."""
    begin, end = marks(name)
    page = PAGE.read_text()
    if begin not in page or end not in page:
        raise SystemExit(f"expected the lines '{begin}' and '{end}' in {PAGE.relative_to(ROOT)}")
    PAGE.write_text(f"{page.split(begin)[0]}{begin}\n{text.strip()}\n{end}{page.split(end)[1]}")
    print(f"{PAGE.relative_to(ROOT)}: {name}")


def of(where: dict) -> str:
    return f"{where['machine']}, driver {where['driver']}, commit {where['commit'][:9]}, {where['date']}"


def measured(folder: Path) -> list[tuple[list[dict], dict]]:
    """Points of gpu_ranks.py, each once a commit, of one commit after the other, and about whom they are."""
    points, wheres = {}, {}
    for path in sorted(folder.glob("ranks-*/gpu_ranks.json")):
        for row in json.loads(path.with_name("md.json").read_text()):
            where = {key: row[key] for key in ("machine", "driver", "commit", "date")}
            wheres[where["commit"]] = where
            mine = points.setdefault(where["commit"], {})
            mine |= {(p["point"], p["ranks"], p["comm"]): p for p in json.loads(path.read_text())}
            break  # a run is of one commit
    return [(list(mine.values()), wheres[commit]) for commit, mine in points.items()]


def alone(points: list[dict], p: dict, atoms: float) -> dict | None:
    """The step of p's model with so many atoms, to 3%, on one GPU."""
    found = [q for q in points if q["case"] == p["case"] and q["ranks"] == 1 and "step_ms" in q]
    return next((q for q in found if abs(q["atoms"] / atoms - 1) < 0.03), None)


def sizes(points: list[dict], where: dict) -> str:
    """The table of sizes: ms a step on one GPU and on several, speed-up and efficiency, memory of a GPU."""
    out = [f"{of(where)}; `benchmarks/md/gpu_ranks.py`, points on one GPU two at a time, each on a GPU of its own:", ""]
    out += ["| model, atoms | GPUs | ms a step | katom-steps/s | x one GPU with as many | of one GPU with its share "
            "| MB of a GPU | error of forces |"]  # fmt: skip
    out += ["|---|---|---|---|---|---|---|---|"]
    shown = set()
    for p in sorted(points, key=lambda p: (p["case"], p["atoms"], p["ranks"])):
        if (p["case"], p["atoms"], p["ranks"]) in shown:
            continue
        shown.add((p["case"], p["atoms"], p["ranks"]))
        head = f"| {p['case']}, {p['atoms']:,} | {p['ranks']} |"
        if "step_ms" not in p:
            out.append(f"{head} {said(p['failure']) or 'not run'} | | | | | |")
            continue
        beside = ["" if p["ranks"] == 1 or q is None else f"{q['step_ms'] / p['step_ms']:.3f}"
                  for q in (alone(points, p, p["atoms"]), alone(points, p, p["atoms"] / p["ranks"]))]  # fmt: skip
        spread = f" ± {100 * p['relative_spread']:.1f}%" if "relative_spread" in p else ""
        memory = f"{p['device_mb']:,.0f}" if p.get("device_mb") else ""
        speed = f"{p['step_ms']:.1f}{spread} | {p['katom_steps_s']:,.0f}"
        out.append(f"{head} {speed} | {beside[0]} | {beside[1]} | {memory} | {p['error']:.1e} |")
    return "\n".join(out)


def sections(points: list[dict], where: dict) -> str:
    """LAMMPS's own parts of a step on several GPUs, and what the step takes beyond its share of one GPU's."""
    out = [f"{of(where)}; milliseconds of LAMMPS's own sections (its first rank's):", ""]
    out += ["| model, atoms | GPUs | a step | beyond its share of one GPU's | Pair | Modify, with the wait for the GPU "
            "| Comm | Neigh | MB sent by the largest rank |"]  # fmt: skip
    out += ["|" + "---|" * 9]
    for p in sorted(points, key=lambda p: (p["case"], p["atoms"])):
        if p["ranks"] == 1 or "step_ms" not in p:
            continue
        one = alone(points, p, p["atoms"])
        beyond = f"{p['step_ms'] - one['step_ms'] / p['ranks']:+.2f}" if one else ""
        ms = {name: p["step_ms"] * share / 100 for name, share in p["sections_percent"].items()}
        sent = re.search(r"largest: \d+, (\d+)\)", " ".join(p["told"]))
        names = " | ".join(f"{ms[name]:.2f}" for name in ("Pair", "Modify", "Comm", "Neigh"))
        bytes_sent = f"{int(sent[1]) / 1e6:.1f}" if sent else ""
        head = f"| {p['case']}, {p['atoms']:,} | {p['ranks']} | {p['step_ms']:.2f} | {beyond}"
        out.append(f"{head} | {names} | {bytes_sent} |")
    return "\n".join(out)


def largest(points: list[dict]) -> str:
    """What went through and what did not, and why."""
    out = ["| atoms | GPUs | ms a step | MB of a GPU | |", "|---|---|---|---|---|"]
    each = {(p["ranks"], p.get("atoms", 0)): p for p in points}
    for _, p in sorted(each.items()):
        ran = not p["failure"] and "step_ms" in p
        figures = f"{p['step_ms']:.0f} | {p['device_mb'] or 0:,.0f} | ran" if ran else " | | " + said(p["failure"])
        out.append(f"| {p.get('atoms', 0):,} | {p['ranks']} | {figures} |")
    return "\n".join(out)


def said(failure: str) -> str:
    text = " ".join(failure.split()).replace("|", "/")
    short = "out of memory" in text.lower() or "Use fewer atoms a GPU" in text
    return "out of memory" if short else text[-160:]


def known_records() -> dict[str, dict]:
    return {row["name"]: row for row in json.loads((ROOT / "benchmarks/results/summary.json").read_text())}


def tag_of(machine: str) -> str:
    """What goes before the names of a machine's records: nothing for the GPUs that benchmarks/scaling has its constants
    of, else the GPU's name (h100)."""
    first = known_records().get("gpus2_round_us", {}).get("machine", machine)
    found = re.search(r"[A-Z]+\d+", machine)
    return "" if machine == first else found[0].lower() if found else "other"


def script(*words: object) -> None:
    subprocess.run([sys.executable, "-W", "ignore", *map(str, words)], cwd=ROOT, check=True)


def take_tests(folder: Path) -> None:
    """The table of options, and how many tests passed, of both runs together."""
    options = sorted(folder.glob("*/options.*.json"))
    if options:
        script("tests/lammps/options/options_matrix.py", *options)
    lines, where = [], {}
    for name in ("cuda", "kk"):
        path = folder / name / "summary.json"
        if path.exists():
            found = json.loads(path.read_text())
            lines += found.pop("tests")
            where = found
            print((path.parent / "table.txt").read_text() if (path.parent / "table.txt").exists() else "")
    if lines:
        (folder / "both").mkdir(exist_ok=True)
        (folder / "both/summary.json").write_text(json.dumps(where | {"tests": lines}))
        script("scripts/gpu-tests", "record", folder / "both", "--files", *WHOLE)
        for line in lines:
            if line["outcome"] == "failed":
                print("FAILED", line["test"], " ".join(line["text"].split())[:300])


def record(outs: list[Path]) -> int:
    """Takes what the folders hold, in their order; returns the exit status."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "results"
        for out in outs:
            with tarfile.open(out / "results.tar.xz") as archive:
                archive.extractall(name, filter="data")
        take_tests(folder)
        if (folder / "initcheck/sanitizers.json").exists():
            script("scripts/sanitizer_record.py", "record", folder / "initcheck", "--merge")
        rows = [*folder.glob("long_ranks_*_records.json"), *folder.glob("ranks-*/records.json")]
        rows += [*folder.glob("largest/records.json"), *folder.glob("links_records.json")]
        runs = measured(folder)
        points = [p for rows, _ in runs for p in rows]
        if points:
            script("benchmarks/scaling", "records", folder / "gpus_records.json", *folder.glob("ranks-*/md.json"))
            rows.append(folder / "gpus_records.json")
            put("sizes", "\n\n".join(sizes(*run) for run in runs))
            put("sections", "\n\n".join(sections(*run) for run in runs if any(p["ranks"] > 1 for p in run[0])))
        tag = tag_of(runs[0][1]["machine"]) if points else ""
        if rows:
            script("benchmarks/record.py", *(["--tag", tag] if tag else []), *rows)
        tried = folder / "largest/largest.json"
        if tried.exists():
            same = [p for p in points if p["case"] == "mace-M" and p["atoms"] > 400000]
            put("largest", largest([*same, *json.loads(tried.read_text())]))
        if told := [*folder.glob("parts*/parts.md")]:
            about = of(json.loads(told[0].with_name("parts.json").read_text()))
            put("parts", "\n".join([f"{about}.", *(path.read_text() for path in sorted(told))]))
    return 0
