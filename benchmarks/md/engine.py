"""Writes LAMMPS's input for one point, runs it, and reads what it left behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cases import Base, Case

#: Most atoms whose forces are written out for the comparison.
SAMPLE = 20000
SECTIONS = ("Pair", "Neigh", "Comm", "Output", "Modify", "Other")


@dataclass(frozen=True)
class Program:
    """A LAMMPS executable with the plugin for it. `help` is what it prints about itself."""

    lmp: str
    plugin: str

    def help(self) -> str:
        try:
            return subprocess.run([self.lmp, "-help"], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.SubprocessError):
            return ""


@dataclass(frozen=True)
class Style:
    """How the pair style is run. `flags` go on the command line."""

    name: str
    program: Program
    keywords: str
    flags: tuple[str, ...] = ()


def styles(plain: Program, kokkos: Program | None, threads: int, gpus: int = 1) -> dict[str, Style]:
    """The styles that can be asked for; clebsch/kk runs on the GPUs of a Kokkos CUDA build, else on its threads."""
    known = {
        "cpu": Style("cpu", plain, "device cpu"),
        "cuda": Style("cuda", plain, "device cuda"),
    }
    if kokkos:
        gpu = re.search(r"KOKKOS package API:.*CUDA", kokkos.help()) is not None
        target = ("g", str(gpus)) if gpu else ("t", str(threads))
        known["kk"] = Style("kk", kokkos, "", ("-k", "on", *target, "-sf", "kk"))
    return known


#: What Open MPI wants to hear before it starts ranks as root, or more of them than there are cores.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}


def launcher(program: Program, ranks: int, mpirun: str = "") -> list[str]:
    """What goes before a command that runs on `ranks` ranks: `mpirun`, by default the one beside lmp or in PATH."""
    if ranks == 1:
        return []
    beside = [path for name in ("mpirun", "mpiexec") if (path := Path(program.lmp).parent / name).exists()]
    found = mpirun or (str(beside[0]) if beside else shutil.which("mpirun"))
    if not found:
        raise SystemExit(f"{ranks} ranks: expected mpirun beside {program.lmp} or in PATH, found none")
    return [found, "-n", str(ranks)]


@dataclass
class Plan:
    """One run: a case on its base cell, repeated."""

    case: Case
    base: Base
    copies: tuple[int, int, int]
    style: Style
    dtype: str
    timestep: float = 0.001  # fs
    steps: int = 0  # 0: the forces of the start alone
    warm: int = 0
    seconds: float = 30.0
    rebuild: int = 20
    temperature: float = 300.0
    radial: str = "table"
    phases: bool = True
    ranks: int = 1
    comm: str = ""  # of several ranks; empty: what the style takes by itself

    @property
    def atoms(self) -> int:
        return len(self.base) * int(np.prod(self.copies))

    @property
    def chunks(self) -> int:
        """Parts of the timed run, for its spread."""
        return 5 if self.steps >= 20 and self.steps % 5 == 0 else 1

    @property
    def stride(self) -> int:
        """Of the sample of atoms; prime to the base cell's size, so that every atom of the cell is met."""
        stride = max(1, self.atoms // SAMPLE)
        while np.gcd(stride, len(self.base)) != 1:
            stride += 1
        return stride

    def pair(self, extra: str = "") -> str:
        comm = f"comm {self.comm} " if self.comm and self.ranks > 1 else ""
        words = f"{self.style.keywords} {comm}dtype {self.dtype} radial {self.radial} {extra}".strip()
        return f'pair_style clebsch {words}\npair_coeff * * "{self.case.path}" {self.case.names}\n'

    def input(self) -> str:
        """The text of LAMMPS's input."""
        text = f"""units metal
atom_style atomic
boundary p p p
plugin load "{self.style.program.plugin}"
read_data base.data
replicate {" ".join(map(str, self.copies))}
{self.pair()}neighbor 1.0 bin
neigh_modify every {self.rebuild} delay 0 check no
group sample id 1:{self.atoms}:{self.stride}
thermo_style custom step temp pe ke etotal press
thermo_modify norm no format float %.15g
dump start sample custom 1 start.dump id fx fy fz
dump_modify start sort id format float %.9g
run 0
undump start
"""
        if not self.steps:
            return text
        text += f"""velocity all create {self.temperature} 4928 mom yes dist gaussian
timestep {self.timestep / 1000!r}
fix motion all nve
thermo 100
run {self.warm}
"""
        for _ in range(self.chunks):
            text += f"timer timeout {max(1, round(self.seconds / self.chunks))} every 10\n"
            text += f"run {-(-self.steps // self.chunks)}\n"
        if self.phases:
            steps = min(max(self.steps // 5, 10), self.steps)
            # The style is a new one: its first steps make room and record, as those of the first run did.
            text += f"timer timeout {self.seconds:.0f} every 10\n{self.pair('timing yes')}"
            text += f"run {self.warm}\nrun {steps}\n"
        return text

    def command(self) -> list[str]:
        """Without a buffer, so that the log of a run that was ended says how far it came."""
        words = ["-in", "in.md", "-log", "log.md", "-screen", "none", "-nonbuf"]
        return [*launcher(self.style.program, self.ranks), self.style.program.lmp, *self.style.flags, *words]


@dataclass
class Loop:
    """One `run` of a log."""

    seconds: float
    steps: int
    atoms: int
    sections: dict[str, float] = field(default_factory=dict)
    builds: int | None = None
    thermo: list[dict[str, float]] = field(default_factory=list)
    style: dict[str, float] = field(default_factory=dict)


def join(loops: list[Loop]) -> Loop:
    """Runs that follow each other, as one."""
    whole = Loop(sum(part.seconds for part in loops), sum(part.steps for part in loops), loops[0].atoms)
    whole.builds = sum(part.builds or 0 for part in loops)
    whole.sections = {name: sum(part.sections.get(name, 0.0) for part in loops) for name in loops[0].sections}
    whole.thermo = [row for part in loops for row in part.thermo]
    return whole


def read_log(text: str) -> list[Loop]:
    """The runs of a log: loop time, LAMMPS's breakdown (s), thermo rows and the style's own times (ms a step)."""
    loops: list[Loop] = []
    header: list[str] = []
    rows: list[dict[str, float]] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["Step"]:
            header, rows = words, []
        elif found := re.match(r"Loop time of (\S+) on \d+ procs for (\d+) steps with (\d+) atoms", line):
            loops.append(Loop(float(found[1]), int(found[2]), int(found[3]), thermo=rows))
            header = []
        elif header and len(words) == len(header):
            try:
                rows.append(dict(zip(header, map(float, words), strict=True)))
            except ValueError:  # a warning between two rows
                continue
        elif loops and words and words[0] in SECTIONS and line.count("|") >= 4:
            loops[-1].sections[words[0]] = float(line.split("|")[2] or 0)
        elif loops and line.startswith("Neighbor list builds"):
            loops[-1].builds = int(words[-1])
        elif loops and line.startswith("Pair style clebsch: ms per step"):
            loops[-1].style = {
                name: float(ms) for name, ms in re.findall(r"(graph|model|forces|LAMMPS) ([\d.e+-]+)", line)
            }
    return loops


@dataclass
class Outcome:
    """What a run gave; `failure` is empty when it went through."""

    failure: str
    loops: list[Loop]
    ids: np.ndarray
    forces: np.ndarray
    energy: float
    host_mb: float
    device_mb: float | None
    wall: float


def read_dump(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Ids (n,) and forces (n, 3) of a dump of one frame."""
    table = np.loadtxt(path, skiprows=9, ndmin=2)
    return table[:, 0].astype(int), table[:, 1:4]


def device_memory() -> float | None:
    """MB in use on the first GPU that the process may use, by nvidia-smi."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = ["nvidia-smi", f"--id={first}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.split("\n")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


class MemoryWatch(threading.Thread):
    """The most device memory in use above what was in use at the start."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before, self.peak, self.over = device_memory(), 0.0, threading.Event()

    def run(self) -> None:
        # Seldom: nvidia-smi takes locks of the driver that launches wait for. Memory grows at the start alone.
        while self.before is not None and not self.over.wait(1.5):
            self.peak = max(self.peak, (device_memory() or 0.0) - self.before)

    def end(self) -> float | None:
        self.over.set()
        self.join()
        return None if self.before is None else self.peak


def run(plan: Plan, threads: int, limit: float, keep: Path | None = None) -> Outcome:
    """Runs a plan in a folder of its own; `limit` seconds end it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "base.data").write_text(plan.base.data())
        (folder / "in.md").write_text(plan.input())
        environment = os.environ | MPI_ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}
        environment.setdefault("OMP_PROC_BIND", "false")
        watch = MemoryWatch() if plan.style.name != "cpu" else None
        if watch:
            watch.start()
        start = time.perf_counter()
        with open(folder / "stderr", "w+") as errors:
            process = subprocess.Popen(
                plan.command(), cwd=folder, env=environment, stdout=errors, stderr=errors, stdin=subprocess.DEVNULL
            )
            alarm = threading.Timer(limit, process.kill)
            alarm.start()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            alarm.cancel()
        wall = time.perf_counter() - start
        peak = watch.end() if watch else None
        path = folder / "log.md"
        log = path.read_text(errors="replace") if path.exists() else ""
        if keep:
            keep.write_text(log)
        outcome = Outcome("", read_log(log), np.array([]), np.array([]), np.nan, usage.ru_maxrss / 1024, peak, wall)
        if process.returncode != 0:
            said = [line for line in log.splitlines() if "ERROR" in line] or (
                folder / "stderr"
            ).read_text().splitlines()[-3:]
            ended = f"no end after {limit:.0f} s" if wall >= limit else f"exit status {process.returncode}"
            outcome.failure = f"{ended}: {' '.join(said)[-600:]}"
            return outcome
        outcome.ids, outcome.forces = read_dump(folder / "start.dump")
        outcome.energy = outcome.loops[0].thermo[-1]["PotEng"]
        return outcome


class Clock:
    """Whether `seconds` are over since it was made."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def over(self) -> bool:
        return time.monotonic() > self.end
