#!/usr/bin/env python3
"""What compute-sanitizer says of every kernel, as one table.

  scripts/sanitizer_record.py run OUT [--seconds S]   on the machine with the GPU: tests/gpu/test_small_models.py and
                                                      test_small_multilinear.py once without a tool, which tells the
                                                      kernels that each test launches, then under memcheck, initcheck,
                                                      synccheck and racecheck, side by side, without torch's cache of
                                                      memory; what a tool did not finish then, a process a test
  scripts/sanitizer_record.py combine OUT RUN ...     several runs, each of some tests or tools, as one
  scripts/sanitizer_record.py record OUT              here: benchmarks/results/sanitizers.json and the page
                                                      docs/developers/sanitizers.md of such a run

The library, and what else the machine needs, is found as scripts/gpu-tests finds it (.gpu, or a build of this
checkout). All ends within --seconds (default 560); a tool may take --tool-seconds. What a tool had finished by then is
kept: OUT gets sanitizers.json and sanitizers.md after every process that ends, and the tools' own texts. The exit
status is 1 when a tool reported something, a test failed, or a test or a kernel was not reached by a tool.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("scripts", "benchmarks", "tests/gpu")]
import common  # noqa: E402
from bundle import environment  # noqa: E402
from kernel_names import KERNELS, NAMES, named_in  # noqa: E402
from sanitizer_table import INTRO, TOOLS, clean, merged, page, reports  # noqa: E402

TESTS = ("tests/gpu/test_small_models.py", "tests/gpu/test_small_multilinear.py")
#: A report that holds all words of one of these has a harmless cause. Arrays of edges have room for more edges than
#: there are: autograd adds the layers' gradients of all rows, and exact radial networks go back through all; nothing
#: reads what comes of the rows behind the last edge. Planes of pairs have columns of padding, which composed_split
#: splits with the others and no product reads. Whoever loads a module asks for a name that few modules have.
EXPLAINED = (
    ("CUDAFunctor_add<double>", "clebsch::edge_gradient"),
    ("Uninitialized __global__", "at node_linear", "clebsch::edge_gradient"),
    ("Uninitialized __global__", "at composed_split"),
    ("cuModuleGetGlobal_v2",),
)
#: Reports that a tool prints at most: none may hide behind explained ones.
PRINTED = {"initcheck": 20000, "memcheck": 2000}
PAGE, RECORD = ROOT / "docs/developers/sanitizers.md", ROOT / "benchmarks/results/sanitizers.json"
#: Seconds that the run without a tool takes at most by default; it compiles the kernels.
PLAIN_SECONDS = 200.0
#: Where CUDA's installer puts it when it is not in PATH.
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")


def say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Process:
    """One pytest, under a tool or none. Its results are lines of JSON that tests/gpu/conftest.py writes."""

    tool: str
    name: str
    out: Path
    process: subprocess.Popen | None = None
    end: float = 0.0
    command: list[str] = field(default_factory=list)
    seconds: float = 0.0
    over: bool = False  # it was ended from outside

    def start(self, environ: dict[str, str]) -> None:
        for ending in (".txt", ".jsonl"):
            (self.out / f"{self.name}{ending}").unlink(missing_ok=True)
        with open(self.out / f"{self.name}.txt", "w") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environ, stdout=log, stderr=log, start_new_session=True
            )
        self.end = time.monotonic() + self.seconds

    def poll(self) -> bool:
        """True once it has ended, by itself or because its time is over."""
        if self.process.poll() is not None:
            return True
        if time.monotonic() < self.end:
            return False
        self.over = True
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return True

    def lines(self) -> tuple[list[str], dict[str, dict]]:
        """Collected tests, and the finished ones with their outcome; a line that was cut off is left out."""
        collected, found = [], {}
        path = self.out / f"{self.name}.jsonl"
        for text in path.read_text().splitlines() if path.exists() else []:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            collected = line.get("collected", collected)
            if "test" in line and found.get(line["test"], {}).get("outcome") != "failed":
                found[line["test"]] = line
        return collected, found

    def text(self) -> str:
        path = self.out / f"{self.name}.txt"
        return path.read_text(errors="replace") if path.exists() else ""


def pytest_command(name: str, out: Path, seconds: float, tests: list[str], *more: str) -> list[str]:
    own = [
        f"--results={out / name}.jsonl",
        f"--deadline={max(1.0, seconds - 30):.0f}",
        f"--limit={max(60.0, seconds / 3):.0f}",
    ]
    quiet = ["-q", "-rN", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return [sys.executable, "-W", "ignore", "-m", "pytest", *quiet, *own, "-m", "sanitize", *more, *tests]


def findings_in(text: str) -> list[dict]:
    """What a tool reported and EXPLAINED does not cover, and how often.

    The first lines of a report, and the kernel that its lines name ('' for none of ours).
    """
    found: dict[tuple[str, str], int] = {}
    blocks = re.split(r"^=========\s*$", text, flags=re.MULTILINE)
    for block in blocks:
        # pytest's own headings have more of these signs.
        lines = [line[9:].strip() for line in block.splitlines() if re.match(r"={9}(?!=)", line)]
        lines = [line for line in lines if line and not line.startswith("COMPUTE-SANITIZER") and "SUMMARY" not in line]
        # The exit status of a pytest with failures, which are told by name.
        lines = [line for line in lines if line != "Target application returned an error"]
        if lines and not any(all(word in block for word in words) for words in EXPLAINED):
            # A kernel's reports differ in threads and addresses alone.
            what = re.sub(r" / by thread.*| to 0x\w+|0x\w{8,}", "", " / ".join(lines[:4])[:400])[:200]
            key = next(filter(None, map(named_in, lines)), ""), what
            found[key] = found.get(key, 0) + 1
    return [{"kernel": kernel, "what": what, "times": times} for (kernel, what), times in found.items()]


def cell(tool: str, kernel: str, launches: dict[str, set[str]], tools: dict[str, dict]) -> str:
    """What a tool says of a kernel."""
    said = tools.get(tool)
    if said is None:
        return "not run"
    bad = reports(said, kernel)
    tests = launches.get(kernel, set())
    done = tests & set(said["finished"])
    if bad:
        return f"{bad} findings"
    if not tests:
        return "not reached"
    return f"clean ({len(done)} of {len(tests)})" if done else f"not finished (0 of {len(tests)})"


def unfinished(processes: list[Process], tool: str, tests: list[str]) -> list[str]:
    """Tests that a tool has not seen the end of."""
    found = [one.lines()[1] for one in processes if one.tool == tool]
    done = {test for lines in found for test, line in lines.items() if not line["text"].startswith("not begun")}
    return [test for test in tests if test not in done]


def problem_of(one: Process) -> str:
    """What kept a process from its end; '' where nothing did."""
    if one.process is None or one.process.poll() is None:
        return ""
    mine, lines = one.lines()
    if one.over:
        return f"{one.name}: ended after its time; {len(lines)} of {len(mine)} tests finished"
    if "SUMMARY" not in one.text():
        return f"{one.name}: the tool said nothing, exit status {one.process.returncode}"
    return ""


def summary(processes: list[Process], plain: list[Process], where: dict) -> dict:
    """All that is known so far."""
    launches: dict[str, set[str]] = {}
    collected: list[str] = []
    told: dict[str, dict] = {}
    for one in plain:
        mine, lines = one.lines()
        collected += [test for test in mine if test not in collected]
        told |= lines
    for test, line in told.items():
        for kernel in {named_in(name) for name in line.get("kernels", {})} - {""}:
            launches.setdefault(kernel, set()).add(test)
    tools: dict[str, dict] = {}
    for one in processes:
        said = tools.setdefault(
            one.tool, {"finished": [], "failed": [], "findings": [], "problems": [], "again": [], "seconds": 0}
        )
        _, lines = one.lines()
        said["finished"] = sorted({*said["finished"], *(t for t, line in lines.items() if line["outcome"] == "passed")})
        said["failed"] += [
            {"test": test, "text": line["text"][:400]}
            for test, line in lines.items()
            if line["outcome"] != "passed" and not line["text"].startswith("not begun")
        ]
        said["seconds"] += sum(line["seconds"] for line in lines.values())
        said["findings"] += findings_in(one.text())
        if problem := problem_of(one):
            said["problems"].append(problem)
    for said in tools.values():
        # A process that ended too early costs nothing once its tests have ended in others, nor does a test's time.
        late = [one for one in said["failed"] if "ran out of time" in one["text"] and one["test"] in said["finished"]]
        said["failed"] = [one for one in said["failed"] if one not in late]
        if collected and set(said["finished"]) >= set(collected):
            said["again"], said["problems"] = said["problems"], []
    rows = {
        kernel: {
            "op": op,
            "tests": len(launches.get(kernel, ())),
            **{t: cell(t, kernel, launches, tools) for t in TOOLS},
        }
        for op, names in KERNELS.items()
        for kernel in names
    }
    failed = [{"test": t, "text": line["text"][:400]} for t, line in told.items() if line["outcome"] != "passed"]
    return {
        **where,
        "tests": len(collected),
        "kernels": rows,
        "not_reached": [kernel for kernel in NAMES if kernel not in launches],
        "launches_known": bool(launches),
        "failed_without_a_tool": failed,
        "tools": {name: said | {"finished": len(said["finished"])} for name, said in tools.items()},
    }


def run(options: argparse.Namespace) -> int:
    begin, out = time.monotonic(), options.out.resolve()
    path = os.pathsep.join([os.environ.get("PATH", ""), *PLACES])
    sanitizer = shutil.which("compute-sanitizer", path=path)
    if sanitizer is None:
        say("compute-sanitizer is not in PATH: expected CUDA's tools")
        return 1
    out.mkdir(parents=True, exist_ok=True)

    def left() -> float:
        return options.seconds - (time.monotonic() - begin)

    with tempfile.TemporaryDirectory() as work:
        environ = environment(options.bundle, Path(work))
        environ |= {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OMP_NUM_THREADS": "1", "CLEBSCH_REQUIRE_GPU": "1"}
        os.environ.setdefault("CLEBSCH_COMMIT", environ.get("CLEBSCH_COMMIT", ""))
        lines = subprocess.run([sanitizer, "--version"], capture_output=True, text=True).stdout.splitlines()
        version = next((line.split("ersion", 1)[1].strip() for line in lines if "ersion" in line), "")
        where = common.about("cuda") | {"sanitizer": f"compute-sanitizer {version}".strip()}
        processes: list[Process] = []
        plain: list[Process] = []

        def write() -> dict:
            found = summary(processes, plain, where)
            (out / "sanitizers.json").write_text(json.dumps(found, indent=1) + "\n")
            (out / "sanitizers.md").write_text(page(found))
            return found

        def work_off(waiting: list[Process]) -> None:
            """At most --processes at a time."""
            running: list[Process] = []
            while waiting or running:
                ended = [one for one in running if one.poll()]
                running = [one for one in running if one not in ended]
                for one in ended:
                    say(f"{time.monotonic() - begin:4.0f} s  {one.name}: " + ("time is over" if one.over else "ended"))
                    write()
                while waiting and len(running) < options.processes:
                    one = waiting.pop(0)
                    one.seconds = min(one.seconds, left() - 5)
                    if one.seconds > 0:
                        one.start(environ)
                        running.append(one)
                time.sleep(0.2)

        def watched(tool: str, name: str, seconds: float, tests: list[str], *more: str) -> Process:
            command = pytest_command(name, out, seconds, tests, f"--tool={tool}", *more, *options.pytest)
            printed = str(PRINTED.get(tool, 50))
            tool_first = [sanitizer, "--tool", tool, "--error-exitcode", "3", "--print-limit", printed]
            processes.append(Process(tool, name, out, command=[*tool_first, *command], seconds=seconds))
            return processes[-1]

        # Without a tool first: kernels are compiled, model files made, and the profiler names what each test launches.
        seconds, count = min(PLAIN_SECONDS, left() / 2), max(1, min(24, options.processes))
        seconds = min(options.plain_seconds or seconds, left() - 5)
        if options.plain:
            plain += [Process("", path.stem, options.plain) for path in sorted(options.plain.glob("plain-*.jsonl"))]
        else:
            for shard in range(count):
                more = ["--kernels", f"--shard={shard}/{count}", *options.pytest]
                command = pytest_command(f"plain-{shard}", out, seconds, options.tests, *more)
                plain.append(Process("", f"plain-{shard}", out, command=command, seconds=seconds))
            work_off(list(plain))
        tests = [test for one in plain for test in one.lines()[0]]
        shards = max(1, min(options.shards, options.processes // len(options.tools)))
        seconds = min(options.tool_seconds, left() - 10)
        words = [(tool, shard) for shard in range(shards) for tool in options.tools]
        work_off([watched(tool, f"{tool}-{k}", seconds, options.tests, f"--shard={k}/{shards}") for tool, k in words])
        # A process that a test took down with it, or whose time was over, leaves tests: each gets one of its own.
        alone = [(tool, test) for tool in options.tools for test in unfinished(processes, tool, tests)]
        if alone and left() > 30:
            say(f"{time.monotonic() - begin:4.0f} s  {len(alone)} tests are left, one process each")
            seconds = options.test_seconds
            work_off([watched(tool, f"{tool}-one-{k}", seconds, [test]) for k, (tool, test) in enumerate(alone)])
        found = write()
    say(page(found))
    say(f"{time.monotonic() - begin:.0f} s; {out / 'sanitizers.md'}")
    return 0 if clean(found) else 1


def combine(options: argparse.Namespace) -> int:
    """Reads again what the processes of the runs left; of machine and date the last run's count."""
    runs = [json.loads((folder / "sanitizers.json").read_text()) for folder in options.runs]
    where = {key: runs[-1][key] for key in ("machine", "torch", "driver", "sanitizer", "date")}
    where["commit"] = ", ".join(dict.fromkeys(one["commit"][:9] for one in runs))
    where["command"] = "; ".join(dict.fromkeys(one["command"] for one in runs))
    paths = [path for folder in options.runs for path in sorted(folder.glob("*.jsonl"))]
    found = [Process(path.stem.split("-")[0], path.stem, path.parent) for path in paths]
    plain = [one for one in found if one.tool == "plain"]
    options.out.mkdir(parents=True, exist_ok=True)
    whole = summary([one for one in found if one.tool in TOOLS], plain, where)
    (options.out / "sanitizers.json").write_text(json.dumps(whole, indent=1) + "\n")
    (options.out / "sanitizers.md").write_text(page(whole))
    return 0


def record(options: argparse.Namespace) -> int:
    found = json.loads((options.out / "sanitizers.json").read_text())
    if options.merge:
        found = merged(json.loads(RECORD.read_text()), found)
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(INTRO + page(found) + (f"\n{options.note}\n" if options.note else ""))
    say(f"{RECORD.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}: " + ("clean" if clean(found) else "not clean"))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("run")
    one.add_argument("out", type=Path)
    one.add_argument("--bundle", type=Path, default=ROOT / ".gpu", help="folder that scripts/gpu-tests pack fills")
    one.add_argument("--seconds", type=float, default=560.0, help="of the whole run")
    one.add_argument("--tool-seconds", type=float, default=1e9, help="of one tool; what is left, when that is less")
    one.add_argument("--plain-seconds", type=float, help="of the run without a tool (200 or half of all)")
    one.add_argument("--plain", type=Path, help="OUT of an earlier run, whose run without a tool this one takes over")
    one.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    cores = len(os.sched_getaffinity(0))
    one.add_argument("--processes", type=int, default=max(4, cores * 3 // 4), help="at a time")
    one.add_argument("--shards", type=int, default=8, help="processes a tool, at most")
    one.add_argument("--test-seconds", type=float, default=100.0, help="of a test that has a process of its own")
    one.add_argument("--tests", nargs="+", default=list(TESTS), help="tests/gpu: all that are marked sanitize")
    one.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="last: options for pytest, as in -k mace")
    three = commands.add_parser("combine")
    three.add_argument("out", type=Path)
    three.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of `run`")
    two = commands.add_parser("record")
    two.add_argument("out", type=Path, help="folder of `run`")
    two.add_argument("--merge", action="store_true", help="of a run of some tools: what the others said stays")
    two.add_argument("--note", default="", help="a paragraph for the end of the page")
    options = parser.parse_args()
    return {"run": run, "combine": combine, "record": record}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
