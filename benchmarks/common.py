"""What every benchmark shares: where things are, what a record says about its run, and the file of records.

Importing it puts the Python package, the cases and references of tests/gpu and the folder of the models' benchmarks on
the path. A record is one row of results/summary.json:

    {"name", "value", "unit", "spread", "dtype", "deterministic", "error", "peer", "machine", "torch", "driver",
     "commit", "date", "command"}

`spread` is the middle half of five or more repeats, `peer` {"name", "version", "value"} of the same run, `commit` ends
with "-dirty" where sources differed from it. Records are written by benchmarks, never by hand.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SUMMARY, TARGETS = HERE / "results/summary.json", HERE / "targets.json"
FIELDS = (
    "name", "value", "unit", "spread", "dtype", "deterministic", "error", "peer", "machine", "torch", "driver",
    "commit", "date", "command",
)  # fmt: skip
#: The field of records that hold more than the best peer: values by the peer's name and the way it was run.
ALL_PEERS = "peers"

sys.path[:0] = [str(ROOT / folder) for folder in ("src/python", "tests/gpu", "benchmarks/models")]

# A process can hold one libclebsch, and clebsch.library loads the one that CLEBSCH_LIBRARY names, or else an installed
# one. Programs with an option --library import this module first, so that it is theirs.
if "--library" in sys.argv[:-1]:
    os.environ["CLEBSCH_LIBRARY"] = str(Path(sys.argv[sys.argv.index("--library") + 1]).resolve())


def event_times(work: Callable[[], object], repeats: int, inner: int) -> list[float]:
    """Microseconds of one `work` on the GPU, `repeats` times the mean of `inner` that follow each other."""
    import torch  # other benchmarks do without

    found = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(inner):
            work()
        end.record()
        end.synchronize()
        found.append(1e3 * begin.elapsed_time(end) / inner)
    return found


def first_line(*command: str) -> str:
    """The first line that a program prints; '' where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return done.stdout.strip().split("\n")[0] if done.returncode == 0 else ""
    except (OSError, subprocess.SubprocessError):
        return ""


def version_of(package: str) -> str:
    """The installed version; '' without the package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cpu_name() -> str:
    """The processor's name and how many cores there are."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def commit() -> str:
    """The commit that is measured. A copied tree has no use for git's state: CLEBSCH_COMMIT names it there."""
    if given := os.environ.get("CLEBSCH_COMMIT"):
        return given
    git = ("git", "-C", str(ROOT))
    head = first_line(*git, "rev-parse", "--short=9", "HEAD")
    dirty = first_line(*git, "status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results")
    return head + ("-dirty" if head and dirty else "")


def about(device: str = "cuda") -> dict[str, str]:
    """Machine, versions, commit, date and command: what every record says. device: what was measured, cuda or cpu."""
    ask = ("nvidia-smi", "--format=csv,noheader")
    gpu = first_line(*ask, "--query-gpu=name") if device.startswith("cuda") else ""
    program = Path(sys.argv[0]).resolve()
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    named = str(program.relative_to(ROOT)) if program.is_relative_to(ROOT) else program.name
    return {
        "machine": gpu or cpu_name(),
        "torch": version_of("torch"),
        "driver": first_line(*ask, "--query-gpu=driver_version") if gpu else "",
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": " ".join([named, *words]),
    }


def quartiles(values: list[float]) -> tuple[float, float]:
    """The median and the middle half."""
    first, middle, third = statistics.quantiles(values, n=4)
    return middle, third - first


def targets() -> list[dict]:
    """Every target: name, unit, sense ("max" or "min"), must, goal; `missed`, of one that is not reached: why."""
    return json.loads(TARGETS.read_text())["targets"]


def save(path: Path | str, records: list[dict] | dict) -> None:
    """Writes what was measured as JSON."""
    Path(path).write_text(json.dumps(records, indent=1) + "\n")


def kept_part(record: dict) -> dict:
    """The record without what summary.json does not hold; floats to six digits."""
    row = {key: record.get(key) for key in FIELDS}
    for key in ("value", "spread", "error"):
        if isinstance(row[key], float):
            row[key] = float(f"{row[key]:.6g}")
    if record.get(ALL_PEERS):
        row[ALL_PEERS] = {name: float(f"{value:.6g}") for name, value in record[ALL_PEERS].items()}
    if record.get("dirty") and row["commit"] and not row["commit"].endswith("-dirty"):
        row["commit"] += "-dirty"
    if row["peer"]:
        row["peer"] = {key: row["peer"].get(key) for key in ("name", "version", "value")}
        if isinstance(row["peer"]["value"], float):
            row["peer"]["value"] = float(f"{row['peer']['value']:.6g}")
    return row


def merge(records: list[dict], path: Path = SUMMARY) -> list[dict]:
    """Puts records into summary.json, in place of those of the same names; returns the new rows."""
    rows = [kept_part(record) for record in records]
    known = {row["name"]: row for row in (json.loads(path.read_text()) if path.exists() else [])}
    for row in rows:
        missing = [key for key in ("name", "value", "unit", "machine", "commit", "date", "command") if not row[key]]
        if [key for key in missing if key != "value" or row["value"] is None]:
            raise ValueError(f"{row['name']}: expected {', '.join(missing)} in the record, got none")
        known[row["name"]] = row
    lines = ",\n".join(json.dumps(known[name]) for name in sorted(known))
    path.write_text(f"[\n{lines}\n]\n")
    return rows
