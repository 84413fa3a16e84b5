#!/usr/bin/env python3
"""Runs ctest's entries that are pytest files with their cases side by side, and writes what became of every case.

  scripts/ctest_cases.py BUILD OUT --labels releases,conformance [--jobs N] [--seconds N] [--only REGEX] [--but REGEX]

BUILD is a configured build folder: commands, environment, time limits and exit statuses for "skipped" are ctest's.
With many cores a long file is cut: by pytest-xdist where this Python has it, and the table of options by back
end and number of ranks, each of which is a set of runs. --jobs is the number of processes at a time, --seconds when
what has not ended is ended; it counts as not finished. OUT gets cases.json (entry, case, outcome, reason, seconds),
table.md, the output of every entry in logs/, and in options/ what tests/lammps/options/options_matrix.py takes. Exit
status 1: a case failed, or an entry did not finish.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

#: Cases of tests/lammps/options/test_options.py that share their runs, by a number of ranks behind; its other tests.
BACK_ENDS, CASE, REST = ("cpu-", "padded-", "kk-host-", "bigbig-"), "test_option[", "test_the_"
#: Files worth several processes, the longest first: those by which pytest-xdist cuts them.
WIDE = {
    "halo": 6,
    "faults": 5,
    "kokkos": 4,
    "styles": 4,
    "allegro": 4,
    "ranks": 3,
    "computes": 3,
    "errors": 3,
    "mace": 3,
}
WIDE |= {
    name: 2 for name in ("loading", "committee", "extrapolation", "monte_carlo", "types", "examples", "transports")
}


@dataclass
class Piece:
    """A part of an entry that is a process of its own."""

    entry: str
    name: str
    command: list[str]
    environment: dict[str, str]
    folder: Path
    timeout: float
    skip_code: int | None
    processes: int = 1
    pytest: bool = False

    def report(self, out: Path) -> Path:
        return out / "reports" / f"{self.name}.xml"

    def log(self, out: Path) -> Path:
        return out / "logs" / f"{self.name}.txt"


def cut(entry: str, command: list[str]) -> list[tuple[str, list[str], int]]:
    """(name, more words, processes) of an entry's pieces."""
    file = Path(command[-1]).name
    if file == "test_options.py":
        asked = command[command.index("-k") + 1].split(" or ") if "-k" in command else [*BACK_ENDS, REST]
        found = [(f"{name}{ranks}", f"{name}{ranks}") for name in BACK_ENDS for ranks in (4, 2, 1)]
        found = [(name, words) for name, words in found if any(name == one or one == name[:-1] for one in asked)]
        found += [("rest", f"not {CASE}")] if REST in asked else []
        return [(f"{entry}-{name}", ["-k", words], 1) for name, words in found]
    wide = next((count for name, count in WIDE.items() if file.startswith(f"test_{name}")), 1)
    if wide > 1 and importlib.util.find_spec("xdist"):
        return [(entry, ["-n", str(wide), "--dist", "worksteal"], wide)]
    return [(entry, [], 1)]


def pieces_of(build: Path, labels: set[str], only: str, but: str, out: Path) -> list[Piece]:
    words = ["ctest", "--test-dir", str(build), "--show-only=json-v1"]
    listed = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    found = []
    for test in listed["tests"]:
        of = {item["name"]: item["value"] for item in test.get("properties", [])}
        name = test["name"]
        if not labels & set(of.get("LABELS", [])) or not re.search(only, name) or (but and re.search(but, name)):
            continue
        command = test["command"]
        environment = dict(pair.split("=", 1) for pair in of.get("ENVIRONMENT", []))
        where, limit = Path(of.get("WORKING_DIRECTORY", build)), float(of.get("TIMEOUT", 1500))
        pytest = "pytest" in command or any(word.endswith("with_release.py") for word in command)
        for piece, more, processes in cut(name, command) if pytest else [(name, [], 1)]:
            one = Piece(name, piece, [*command, *more], environment, where, limit, of.get("SKIP_RETURN_CODE"))
            one.processes, one.pytest = processes, pytest
            if command[-1].endswith("test_options.py"):
                one.environment = environment | {"CLEBSCH_OPTIONS_RECORD": str(out / "options" / f"{piece}.json")}
            if pytest:
                one.command += ["-rs", f"--junitxml={one.report(out)}"]
            found.append(one)
    return found


def run_all(pieces: list[Piece], out: Path, jobs: int, end: float) -> list[dict]:
    """Every case. The table is written whenever a process ends, too: the machine may be taken away before the last."""
    waiting, running, status = list(pieces), {}, dict.fromkeys(piece.name for piece in pieces)
    cases = {piece.name: cases_of(piece, None, out) for piece in pieces}
    while (waiting or running) and time.monotonic() < end:
        free = jobs - sum(piece.processes for piece, _, _ in running.values())
        for piece in list(waiting):
            if piece.processes <= max(free, 0) or not running:
                with open(piece.log(out), "w") as log:
                    process = subprocess.Popen(
                        piece.command,
                        cwd=piece.folder,
                        env=os.environ | piece.environment,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                running[piece.name] = piece, process, time.monotonic()
                waiting.remove(piece)
                free -= piece.processes
        time.sleep(0.1)
        for name, (piece, process, began) in list(running.items()):
            if process.poll() is not None:
                status[name] = process.returncode
                print(f"{time.monotonic() - began:6.0f} s  {process.returncode:3d}  {name}", flush=True)
                del running[name]
                cases[name] = cases_of(piece, process.returncode, out)
                write(out, [case for some in cases.values() for case in some])
            elif time.monotonic() - began > piece.timeout:
                os.killpg(process.pid, signal.SIGKILL)
    for _, process, _ in running.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return [case for piece in pieces for case in cases_of(piece, status[piece.name], out)]


def cases_of(piece: Piece, code: int | None, out: Path) -> list[dict]:
    """One entry a case; what is no pytest, or left no report, is one case."""
    log = piece.log(out).read_text(errors="replace") if piece.log(out).exists() else ""

    def case(name: str, outcome: str, reason: str, seconds: float = 0.0) -> dict:
        reason = reason.replace(str(Path.cwd()), ".")[-1500:]
        return {"entry": piece.entry, "case": name, "outcome": outcome, "reason": reason, "seconds": seconds}

    if code is None:
        return [case(piece.name, "not finished", log[-300:])]
    if piece.skip_code is not None and code == piece.skip_code:
        return [case(piece.name, "skipped", log.strip())]
    if rows := re.findall(r"^([\w-]+) +(\d\S* +\w+ (?:passed|skipped|failed|missing).*)$", log, re.MULTILINE):
        # tests/lammps/conformance/run.py
        bad = set(re.findall(r"^([\w-]+): FAILED$", log, re.MULTILINE))
        return [case(name, "failed" if name in bad else "passed", " ".join(text.split())) for name, text in rows]
    if not piece.pytest or not piece.report(out).exists():
        return [case(piece.name, "passed" if code == 0 else "failed", log)]
    found = []
    for node in ElementTree.parse(piece.report(out)).getroot().iter("testcase"):
        kinds = {child.tag: child for child in node}
        bad = kinds.get("failure", kinds.get("error"))
        mark = bad if bad is not None else kinds.get("skipped")
        outcome = "failed" if bad is not None else "skipped" if "skipped" in kinds else "passed"
        text = "" if mark is None else mark.get("message", "")
        if bad is not None:
            text += "\n" + (bad.text or "")
        found.append(case(node.get("name", ""), outcome, text, float(node.get("time", 0))))
    if code not in (0, 5) and not any(line["outcome"] == "failed" for line in found):
        found.append(case(f"{piece.name}: exit status {code}", "failed", log))
    return found


def table(cases: list[dict]) -> str:
    """A row an entry, then what was skipped and why, then what failed."""
    rows = collections.defaultdict(list)
    for case in cases:
        rows[case["entry"]].append(case)
    kinds = ("passed", "failed", "skipped", "not finished")
    lines = ["| entry | " + " | ".join(kinds) + " | seconds |", "|---|" + "---|" * (len(kinds) + 1)]
    for entry, mine in [*sorted(rows.items()), ("all", cases)]:
        counts = collections.Counter(case["outcome"] for case in mine)
        numbers = [str(counts[kind]) for kind in kinds] + [f"{sum(case['seconds'] for case in mine):.0f}"]
        lines.append(f"| {entry} | " + " | ".join(numbers) + " |")
    skipped = collections.Counter(
        case["reason"].splitlines()[-1][:160] for case in cases if case["outcome"] == "skipped"
    )
    lines += ["", *(f"- skipped {count}: {reason}" for reason, count in skipped.most_common())]
    for case in cases:
        if case["outcome"] in ("failed", "not finished"):
            told = [line for line in case["reason"].splitlines() if line.startswith("E ")] or case[
                "reason"
            ].splitlines()
            lines.append(f"- {case['outcome']}: {case['entry']} {case['case']}: {' / '.join(told[:3])[:400]}")
    return "\n".join(lines) + "\n"


def write(out: Path, cases: list[dict]) -> None:
    (out / "cases.json").write_text(json.dumps(cases, indent=1))
    (out / "table.md").write_text(table(cases))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--labels", required=True, help="of ctest, separated by commas")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--seconds", type=float, default=3600.0)
    arguments.add_argument("--only", default="", help="entries that a regular expression finds")
    arguments.add_argument("--but", default="", help="not those that this one finds")
    arguments.add_argument("--first", default="", help="entries that begin before the others")
    given = arguments.parse_args()
    out = given.out.resolve()
    end = time.monotonic() + given.seconds
    for folder in ("logs", "reports", "options"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    pieces = pieces_of(given.build.resolve(), set(given.labels.split(",")), given.only, given.but, out)
    # The longest of those that come first.
    pieces.sort(key=lambda p: (not re.search(given.first, p.entry), "options" not in p.name, -p.processes))
    if not pieces:
        arguments.error(f"expected entries of ctest with the labels {given.labels}, found none in {given.build}")
    cases = run_all(pieces, out, given.jobs, end)
    write(out, cases)
    print(table(cases))
    return int(any(case["outcome"] in ("failed", "not finished") for case in cases))


if __name__ == "__main__":
    sys.exit(main())
