"""Runs rows of the table: many in one process of LAMMPS, with `clear` between them, and what each left behind.

A process that ends early has ended in one row, which is then done (refused or failed); the rest goes on in the next.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from lammps_runs import MPI_ENVIRONMENT, System, several
from option_reference import DESCRIPTIONS, Atoms, LennardJones, Values, reference_of, write_model
from option_row import Place, Row, Story, Term
from option_rows import LISTS
from option_systems import bonds

#: Of thermo_style, all of which a run prints at its end.
BOX = ("xlo", "xhi", "ylo", "yhi", "zlo", "zhi", "xy", "xz", "yz")
VIRIAL = tuple(f"c_virial[{k}]" for k in range(1, 7))
#: LAMMPS's units: eV in one of its energies, and eV/Angstrom^3 in one of its pressures (force->nktv2p).
UNITS = {"metal": (1.0, 1 / 1.6021765e6), "real": (1 / 23.060549, 1 / 23.060549 / 68568.415)}
PERIODIC = {"p": True, "f": False, "s": False, "m": False}


@dataclass
class BackEnd:
    """A LAMMPS and how the style is run in it. python: Python has that LAMMPS too; launcher: the words before a command
    on a number of ranks; launched: also on one."""

    name: str
    lmp: str
    plugin: str
    keywords: str = ""
    arguments: tuple[str, ...] = ()
    gpu: bool = False
    python: bool = False
    launcher: Callable[[int], list[str]] = several
    environment: tuple[tuple[str, str], ...] = ()
    seconds: float = 1500  # for a process
    launched: bool = False

    @cached_property
    def help(self) -> str:
        return subprocess.run([self.lmp, "-h"], capture_output=True, text=True, env=environment(self)).stdout

    @cached_property
    def styles(self) -> set[str]:
        """Styles of this LAMMPS, such as "fix gcmc"."""
        found, kind = set(), ""
        for line in self.help.splitlines():
            if match := re.match(r"\* (\w+) styles", line):
                kind = match[1].lower()
            elif kind:
                found |= {f"{kind} {name}" for name in line.split()}
        return found

    def missing(self, row: Row) -> str:
        """What of a row this LAMMPS lacks; '' when nothing."""
        if row.in_python and not self.python:
            return "a package of Python"
        needed = row.styles()
        if "-k" in self.arguments and "pair hybrid/scaled" in needed:
            needed.add("pair hybrid/scaled/kk")  # LAMMPS refuses the plain one in Kokkos
        return ", ".join(sorted(needed - self.styles))


@dataclass
class Job:
    """A row run with one kind of model and one way of communication."""

    row: Row
    kind: str
    comm: str

    @property
    def key(self) -> str:
        return f"{self.row.key}-{self.kind}-{self.comm}"

    def __str__(self) -> str:
        return f"{self.row.name}, {self.kind}, comm {self.comm}"


@dataclass
class Done:
    """A job that was run: the story of each of its parts (partitions, LAMMPS of a process), or what stopped it."""

    job: Job
    stories: list[Story]
    stopped: str = ""
    place: Place | None = None


def environment(back_end: BackEnd) -> dict[str, str]:
    found = {**os.environ, **MPI_ENVIRONMENT, **dict(back_end.environment)}
    found.setdefault("OMP_NUM_THREADS", "1")
    return found


def jobs_of(row: Row, ranks: int, turn: int) -> list[Job]:
    """On one rank a row meets message passing with ghosts folded and, by `comm ghost`, as nodes of the model, and a
    strictly local model; on two ranks message passing with features exchanged and with ghosts, on four with one of
    these. `turn`, the row's place in the table, says which model it is and which rows have a strictly local one."""
    if row.remedies(Place()):
        return [Job(row, "nequip", "auto")]  # for all models alike
    if ranks == 1:
        return [Job(row, "nequip", "auto"), Job(row, "mace", "ghost"), Job(row, "allegro", "auto")]
    first, second = ("nequip", "mace") if turn % 2 else ("mace", "nequip")
    exchanged = Job(row, first, "gather" if turn % 3 == 0 else "halo")
    local = [Job(row, "allegro", "auto" if turn % 2 else "halo")] if turn % 4 == 0 else []
    if ranks == 2:
        return [exchanged, Job(row, second, "ghost"), *local]
    return [exchanged if turn % 4 else Job(row, second, "ghost"), *local]


# --- inputs ----------------------------------------------------------------------------------------------------------
def write_data(system: System, path: Path, bonded: list[tuple[int, int]] | None) -> None:
    """As System.write; with bonds, of atom_style bond."""
    system.write(path)
    if bonded is None:
        return
    head, atoms = path.read_text().split("Atoms # atomic\n")
    head = head.replace(" atom types\n", f" atom types\n{len(bonded)} bonds\n1 bond types\n")
    lines = [" ".join([line.split()[0], "1", *line.split()[1:]]) for line in atoms.split("\n") if line.strip()]
    pairs = [f"{k} 1 {i} {j}" for k, (i, j) in enumerate(bonded, 1)]
    path.write_text(f"{head}Atoms # bond\n\n" + "\n".join(lines) + "\n\nBonds\n\n" + "\n".join(pairs) + "\n")


def input_of(job: Job, back_end: BackEnd, earlier: bool = False) -> str:
    """Commands of a job, from `clear` on."""
    row, system = job.row, job.row.system()
    models = {kind: f"{kind}.pt" for kind in DESCRIPTIONS}
    words = {
        **models,
        "key": job.key,
        "model": models[job.kind],
        "style": f"{back_end.keywords} {row.keywords} comm {job.comm}".strip(),
    }
    part = ".${p}" if row.partition else ""
    extra = "bond_style zero\nbond_coeff *\n" if row.atom_style == "bond" else ""
    columns = " ".join((*BOX, *VIRIAL))
    shown = "".join(f'print "RESULT {job.key} {key} $({key}:%.17g)"\n' for key in ("pe", "vol", *BOX, *VIRIAL))
    head = (
        f"units {row.units}\natom_style {row.atom_style}\nnewton {row.newton}\nboundary {system.boundary}\n"
        f'plugin load "{back_end.plugin}"\n'
    )
    start = "read_data {key}.data\n" if earlier else row.start
    commands = (row.before + start + extra + row.pair + LISTS).format(**words)
    watched = (
        f"compute pe all pe/atom pair\ncompute virial all pressure NULL virial\nthermo 1\n"
        f"thermo_style custom step temp pe {columns}\nthermo_modify norm no\n"
        f"dump atoms all custom 1 {job.key}.dump{part} id type x y z fx fy fz c_pe\n"
        f"dump_modify atoms sort id format float %.17g\n"
    )
    run = (row.earlier if earlier else row.run).format(**words)
    if earlier:
        return head + commands + run
    # The options of a row come before what watches it: a list of commands ends with the first one that runs.
    lines = run.splitlines()
    first = next(k for k, line in enumerate(lines) if re.match(r"run |minimize |neb ", line))
    before, after = ("\n".join(part) + "\n" for part in (lines[:first], lines[first:]))
    if "thermo_style" in before:
        watched = watched.replace(f"thermo_style custom step temp pe {columns}\n", "")
    return f'{head}{commands}{before}{watched}{after}{shown}print "DONE {job.key}"\n'


def numbers_of(text: str, key: str) -> dict[str, float]:
    found = re.findall(rf"^RESULT {re.escape(key)} (\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def frames_of(path: Path) -> list[dict[str, np.ndarray]]:
    """All frames of a custom dump sorted by atom id: column -> values."""
    frames = []
    for frame in path.read_text().split("ITEM: TIMESTEP\n")[1:]:
        names, *rows = frame.split("ITEM: ATOMS ")[1].splitlines()
        columns = names.split()
        values = np.array([[float(word) for word in row.split()] for row in rows]).reshape(len(rows), len(columns))
        frames.append(dict(zip(columns, values.T, strict=True)))
    return frames


# --- runs ------------------------------------------------------------------------------------------------------------
def command_of(back_end: BackEnd, ranks: int, name: str, partition: str = "") -> list[str]:
    words = [back_end.lmp, "-in", f"in.{name}", "-log", f"log.{name}", *back_end.arguments]
    words += ["-partition", partition] if partition else []
    return [*(back_end.launcher(ranks) if ranks > 1 or back_end.launched else []), *words]


def execute(command: list[str], back_end: BackEnd, folder: Path) -> tuple[int, str]:
    """(exit status, output); a process that does not end in time is ended, with all of its ranks."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(back_end), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", timeout=back_end.seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return -1, (error.stdout or b"").decode(errors="replace") + f"\nno end after {back_end.seconds:g} s\n"
    return done.returncode, done.stdout


def prepare(folder: Path, jobs: list[Job]) -> None:
    for kind in DESCRIPTIONS:
        if not (folder / f"{kind}.pt").exists():
            write_model(kind, folder / f"{kind}.pt")
    for job in jobs:
        system = job.row.system()
        write_data(system, folder / f"{job.key}.data", bonds(system) if job.row.atom_style == "bond" else None)


def run_jobs(jobs: list[Job], back_end: BackEnd, ranks: int, folder: Path) -> list[Done]:
    """All jobs, in as few processes as there are rows that stop one, and those that need a process of their own."""
    prepare(folder, jobs)
    other = {1: 2, 2: 4, 4: 1}[ranks]
    done = {}
    first = [job for job in jobs if job.row.earlier]
    if first:
        (folder / "in.earlier").write_text("clear\n".join(input_of(job, back_end, earlier=True) for job in first))
        status, text = execute(command_of(back_end, other, "earlier"), back_end, folder)
        if status:
            done |= {job.key: Done(job, [], f"on {other} ranks before: {text[-2000:]}") for job in first}
    for job in jobs:
        if job.row.partition:
            done[job.key] = in_partitions(job, back_end, ranks, folder)
        elif job.row.in_python:
            done[job.key] = in_python(job, back_end, ranks, folder)
    left = [job for job in jobs if job.key not in done]
    while left:
        (folder / "in.rows").write_text("".join(f'clear\nprint "JOB {j.key}"\n{input_of(j, back_end)}' for j in left))
        status, text = execute(command_of(back_end, ranks, "rows"), back_end, folder)
        parts = dict(zip((job.key for job in left), re.split(r"^JOB .*\n", text, flags=re.MULTILINE)[1:], strict=False))
        ended = []
        for job in left:
            if f"DONE {job.key}" not in parts.get(job.key, ""):
                break
            story = Story(frames_of(folder / f"{job.key}.dump"), parts[job.key], numbers_of(text, job.key))
            ended.append(Done(job, [story]))
        if len(ended) < len(left):
            job = left[len(ended)]
            ended.append(Done(job, [], f"{parts.get(job.key) or text}\nexit status {status}"))
        done |= {one.job.key: one for one in ended}
        left = left[len(ended) :]
    for one in done.values():
        one.place = Place(one.job.kind, one.job.comm == "ghost", back_end.gpu, "-k" in back_end.arguments)
    return [done[job.key] for job in jobs]


def in_partitions(job: Job, back_end: BackEnd, ranks: int, folder: Path) -> Done:
    """Several LAMMPS side by side; NEB's last replica ends where the file says, here the others moved a little."""
    partition, system = job.row.partition[ranks], job.row.system()
    final = system.positions + 0.05 * np.sin(np.arange(system.positions.size)).reshape(-1, 3)
    lines = [f"{k} {x[0]:.17g} {x[1]:.17g} {x[2]:.17g}" for k, x in enumerate(final, 1)]
    (folder / f"{job.key}.final").write_text(f"{len(lines)}\n" + "\n".join(lines) + "\n")
    (folder / f"in.{job.key}").write_text(input_of(job, back_end))
    status, text = execute(command_of(back_end, ranks, job.key, partition), back_end, folder)
    stories = []
    for k in range(int(partition.split("x")[0])):
        log = folder / f"log.{job.key}.{k}"
        text += log.read_text() if log.exists() else ""
        if status == 0:
            frames = frames_of(folder / f"{job.key}.dump.{k + 1}")
            stories.append(Story(frames, log.read_text(), numbers_of(log.read_text(), job.key)))
    return Done(job, stories, text if status else "")


IN_PYTHON = """
import sys
from itertools import zip_longest
from lammps import lammps

# Command by command in turn: what one LAMMPS does comes between what the other does.
names = sys.argv[1:]
each = [lammps(cmdargs=["-log", f"log.{name}", "-screen", "none"]) for name in names]
for commands in zip_longest(*(open(f"in.{name}").read().splitlines() for name in names)):
    for lmp, command in zip(each, commands):
        if command:
            lmp.command(command)
# MPI's launcher kills the other ranks of one that ends without MPI_Finalize.
each[0].close()
each[1].finalize()
"""


def in_python(job: Job, back_end: BackEnd, ranks: int, folder: Path) -> Done:
    """Two LAMMPS in a process, one with the job's model and one with another."""
    other = Job(job.row, next(kind for kind in DESCRIPTIONS if kind != job.kind), job.comm)
    prepare(folder, [other])
    (folder / "both.py").write_text(IN_PYTHON)
    for one in (job, other):
        (folder / f"in.{one.key}").write_text(input_of(one, back_end))
    words = [sys.executable, "both.py", job.key, other.key]
    status, text = execute([*(back_end.launcher(ranks) if ranks > 1 else []), *words], back_end, folder)
    if status:
        return Done(job, [], text)
    stories = []
    for one in (job, other):
        log = (folder / f"log.{one.key}").read_text()
        stories.append(Story(frames_of(folder / f"{one.key}.dump"), log, numbers_of(log, one.key)))
        stories[-1].kind = one.kind
    return Done(job, stories)


# --- comparison ------------------------------------------------------------------------------------------------------
def pieces_of(text: str) -> dict[str, tuple[int, ...]]:
    """Model file -> the pieces of its radial tables, as the log of a run names them; () for exact ones."""
    found = {}
    for part in text.split("Pair style clebsch: ")[1:]:
        if match := re.match(r"\w+ model (\w+)\.pt\n", part):
            counts = re.findall(r"radial tables of (\d+) pieces", part.split(" ghost")[0])
            found[match[1]] = tuple(int(count) for count in counts)
    return found


def expected(row: Row, kind: str, story: Story) -> tuple[Values, Atoms]:
    """The reference's values of the last frame, in eV and Angstrom."""
    frame, box = story.frames[-1], story.values
    cell = np.diag([box[f"{axis}hi"] - box[f"{axis}lo"] for axis in "xyz"])
    cell[1, 0], cell[2, 0], cell[2, 1] = (box[key] for key in ("xy", "xz", "yz"))
    positions = np.stack([frame[axis] - box[f"{axis}lo"] for axis in "xyz"], axis=1)
    periodic = tuple(PERIODIC[letter[0]] for letter in row.system().boundary.split())
    atoms = Atoms(frame["id"].astype(int), frame["type"].astype(int), positions, cell, periodic)
    pieces, total = pieces_of(story.text), None
    for term in row.terms:
        part = evaluate_term(term, kind, atoms, pieces, "interaction" in row.keywords).scaled(term.scale)
        total = part if total is None else total + part
    return total, atoms


def evaluate_term(term: Term, kind: str, atoms: Atoms, pieces: dict, interaction: bool) -> Values:
    if isinstance(term.of, LennardJones):
        return term.of(atoms)
    name = kind if term.of == "model" else term.of
    reference = reference_of(name, pieces[name])
    values = reference(atoms, term.names, term.excluded)
    if interaction:
        values.atomic = values.atomic - reference.alone(term.names)[atoms.types - 1]
    return values


def differences(row: Row, kind: str, story: Story) -> dict[str, float]:
    """LAMMPS against the reference: of energy, energies of atoms, forces and virial, each over the largest there is
    (over 1 eV, 1 eV/Angstrom where all are smaller)."""
    energy, pressure = UNITS[row.units]
    want, atoms = expected(row, kind, story)
    frame, values = story.frames[-1], story.values
    w = np.array([values[name] for name in VIRIAL]) * values["vol"] * pressure
    got = {
        "energy": (np.array([values["pe"]]) * energy, np.array([want.atomic.sum()])),
        "atomic energies": (frame["c_pe"] * energy, want.atomic),
        "forces": (np.stack([frame[f"f{c}"] for c in "xyz"], axis=1) * energy, want.forces),
        "virial": (w, want.virial[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]),
    }
    scales = {key: max(1.0, np.abs(b).max(initial=0.0)) for key, (_, b) in got.items()}
    return {key: float(np.abs(a - b).max(initial=0.0) / scales[key]) for key, (a, b) in got.items()}


def refusal(done: Done) -> str:
    """LAMMPS's error, on one line."""
    return " ".join(("ERROR" + done.stopped.split("ERROR")[-1]).split())


def judge(row: Row, runs: list[Done], limit: float) -> tuple[dict[str, float | str], list[str]]:
    """What to write down of a row's runs (options_matrix.Cells), and what is wrong with them: each has the reference's
    values and did what the row is there for, or is refused with the row's text."""
    worst, refused, problems = 0.0, [], []
    for done in runs:
        remedies = row.remedies(done.place)
        if done.stopped:
            error = refusal(done) if "ERROR" in done.stopped else done.stopped
            named = [remedy for remedy in remedies if remedy in error]
            refused += named
            if not named:
                problems.append(f"{done.job}: expected {' or '.join(remedies) or 'no error'}, got {error[-800:]}")
            continue
        if remedies:
            problems.append(f"{done.job}: expected an error that says {' or '.join(remedies)}, got a run")
        for part, story in enumerate(done.stories):
            errors = differences(row, story.kind or done.job.kind, story)
            errors = {name: error for name, error in errors.items() if name not in row.unlike(part)}
            worst = max(worst, *errors.values())
            if not max(errors.values()) < limit:
                problems.append(f"{done.job}: {errors}")
            if not row.happened(story):
                problems.append(f"{done.job}: it did not happen: {story.values}")
    cell: dict[str, float | str] = {} if len(refused) == len(runs) else {"worst": float(f"{worst:.1e}")}
    if refused:
        cell["refused"] = refused[0]
    return {"failed": problems[0][:200]} if problems else cell, problems
