"""Counts of rows, messages and bytes against what the plugin's log says, on many CPU ranks: every number, exactly.

    python3 benchmarks/scaling check [--ranks 8,16] [--model FILE.pt] [--lmp PATH] [--plugin PATH]

A tiny random model of three layers (tests/unit/tiny_model.py) unless files are named; `run 0`. Boxes: 192 atoms of
water, whose domains are thinner than the list's reach, and 576, where there are atoms that some ranks have no copy of.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "md")]

import common  # noqa: E402
from counts import Box, Count, all_counts, gather_bytes, processor_grid  # noqa: E402

import cases  # noqa: E402

SKIN = 0.5
#: name: copies of the 192 atoms of water.
BOXES = {"192 atoms of water": (1, 1, 1), "576 atoms of water": (1, 1, 3)}
INPUT = """units metal
atom_style atomic
newton on
plugin load "{plugin}"
read_data system.data
pair_style clebsch comm {way} device cpu
pair_coeff * * "{model}" {names}
neighbor {skin} bin
run 0
"""

LINE = re.compile(
    r"comm (?P<way>halo|gather) through .+?: (\d+) rows, (\d+) remote nodes \(largest rank: (\d+), (\d+) from (\d+) "
    r"ranks\); all ranks send (\d+) (?:messages|slots) and (\d+) bytes a step \(largest: (\d+), (\d+)\)"
)
FIELDS = ("rows", "remote nodes", "most rows", "most remote nodes", "most partners", "messages", "bytes",
          "most messages", "most bytes")  # fmt: skip
GRID = re.compile(r"(\d+) by (\d+) by (\d+) MPI processor grid")
GHOSTS = re.compile(r"^Nghost: +(\S+) ave +(\S+) max", re.MULTILINE)


@dataclass(frozen=True)
class ModelFacts:
    """What counts need of a model file."""

    layers: int
    type_names: list[str]
    cutoffs: np.ndarray  # (T, T) [centre][neighbour]
    widths: list[int]  # numbers a node of each exchange
    number_bytes: int
    r_max: float

    def reach(self, names: list[str], skin: float) -> np.ndarray:
        """For LAMMPS's types, which `names` maps to the model's."""
        index = [self.type_names.index(name) for name in names]
        cutoffs = self.cutoffs[np.ix_(index, index)]
        return np.maximum(cutoffs, cutoffs.T) + skin


def irreps_width(text: str) -> int:
    """Numbers of e.g. 8x0e+6x1o."""
    return sum(int(m) * (2 * int(degree) + 1) for m, degree in re.findall(r"(\d+)x(\d+)[eo]", text))


def read_model(path: str) -> ModelFacts:
    """From the metadata: the features between layers are what the next convolution takes in; MACE's carry the energy of
    the layers so far besides."""
    with zipfile.ZipFile(path) as file:
        name = next(name for name in file.namelist() if name.endswith("clebsch.json"))
        facts = json.loads(file.read(name))
    inputs = {entry["module"]: re.search(r"in1=(\S+)", entry["problem"])[1] for entry in facts["radial"]}
    carried = 1 if facts["family"] == "mace" else 0
    widths = [irreps_width(inputs[f"layer{k}.interaction"]) + carried for k in range(1, facts["layers"])]
    return ModelFacts(facts["layers"], facts["type_names"], np.array(facts["pair_cutoffs"]), widths,
                      {"float32": 4, "float64": 8}[facts["dtype"]], facts["r_max"])  # fmt: skip


def expected(counts: list[Count], way: str, widths: list[int], number_bytes: int) -> tuple[int, ...]:
    """What the line should say, in the order of FIELDS."""
    messages = [count.messages(len(widths)) for count in counts]
    sizes = [count.bytes(widths, number_bytes) for count in counts]
    if way == "gather":
        messages = [2 * len(widths) * (len(counts) - 1)] * len(counts)
        sizes = [gather_bytes([count.owned for count in counts], widths, number_bytes)] * len(counts)
    remote = [count.remote for count in counts]
    owned = [count.owned for count in counts]
    return (sum(owned), sum(remote), max(owned), max(remote), max(len(count.receives) for count in counts),
            sum(messages), sum(sizes), max(messages), max(sizes))  # fmt: skip


def compare(output: str, box: Box, ranks: int, reach: np.ndarray, widths: list[int], number_bytes: int) -> list[tuple]:
    """(what, counted, LAMMPS's) of a run; the two are equal where both are right."""
    line = LINE.search(" ".join(output.split()))
    grid = GRID.findall(output)
    if not line or not grid:
        raise ValueError(
            f"expected LAMMPS's grid of processors and a line about comm halo or gather, got {output[-2000:]}"
        )
    counts = all_counts(box, ranks, reach)
    said = [int(number) for number in line.groups()[1:]]
    rows = list(zip(FIELDS, expected(counts, line["way"], widths, number_bytes), said, strict=True))
    rows.insert(0, ("grid", processor_grid(ranks, box.edges), tuple(map(int, grid[-1]))))
    if ghosts := GHOSTS.search(output):  # with comm halo ghosts are as deep as the list reaches
        average, most = float(ghosts[1]), float(ghosts[2])
        rows.append(("ghosts", sum(count.ghosts for count in counts), round(average * ranks)))
        rows.append(("most ghosts", max(count.ghosts for count in counts), round(most)))
    return rows


def water(copies: tuple[int, int, int]) -> Box:
    """Of benchmarks/md's 192 atoms; every copy displaced by itself, so that no two domains are the same."""
    base = cases.water()
    shifts = np.stack([m.ravel() for m in np.meshgrid(*map(np.arange, copies), indexing="ij")], axis=1) * base.length
    positions = (shifts[:, None] + base.positions).reshape(-1, 3)
    positions += 0.05 * np.random.default_rng(1).standard_normal(positions.shape)
    return Box(base.length * np.array(copies), positions, np.tile(base.types, len(shifts)))


def data_file(box: Box) -> str:
    """LAMMPS's, with all digits."""
    head = [f"system\n\n{len(box)} atoms\n2 atom types\n"]
    head += [f"0.0 {edge:.17g} {axis}lo {axis}hi" for edge, axis in zip(box.edges, "xyz", strict=True)]
    atoms = [
        f"{number} {kind} {x:.17g} {y:.17g} {z:.17g}"
        for number, (kind, (x, y, z)) in enumerate(zip(box.types, box.positions, strict=True), 1)
    ]
    return "\n".join([*head, "\nMasses\n\n1 15.9994\n2 1.008\n\nAtoms # atomic\n", *atoms, ""])


def run(box: Box, model: str, names: list[str], ranks: int, way: str, args: argparse.Namespace) -> str:
    """LAMMPS's output of `run 0`."""
    with tempfile.TemporaryDirectory() as folder:
        text = INPUT.format(plugin=args.plugin, way=way, model=model, names=" ".join(names), skin=SKIN)
        (Path(folder) / "in.counts").write_text(text)
        (Path(folder) / "system.data").write_text(data_file(box))
        command = [args.mpiexec, "-np", str(ranks), args.lmp, "-in", "in.counts", "-log", "none"]
        # More ranks than cores: MPICH's waiting ranks would keep the cores from the working ones, most of all in the
        # collectives in shared memory that it takes to after so many calls.
        sleeping = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "2000000000"}
        environment = os.environ | sleeping | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=args.limit)
    if done.returncode != 0:
        raise SystemExit(f"{ranks} ranks, comm {way}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def main(words: list[str]) -> int:
    """Runs, prints counted and LAMMPS's numbers, and writes OUT.json; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="8,16")
    parser.add_argument("--ways", default="halo", help="of halo, gather")
    parser.add_argument("--model", action="append", default=[], help="float32 or float64 as the file says")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit", type=float, default=300.0, help="a run ends after so many seconds")
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--mpiexec", default=os.environ.get("CLEBSCH_MPIEXEC", str(ROOT / ".venv/bin/mpiexec")))
    args = parser.parse_args(words)
    args.lmp, args.plugin = (str(Path(path).absolute()) for path in (args.lmp, args.plugin))
    results, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        if not args.model:
            args.model = [f"{folder}/tiny.pt"]
            options = ["dtype=float64", "layers=3", "lmax=1"]
            subprocess.run([sys.executable, ROOT / "tests/unit/tiny_model.py", *args.model, *options], check=True)
        for model in args.model:
            facts = read_model(model)
            names = (facts.type_names * 2)[:2]
            for title, copies in BOXES.items():
                box = water(copies)
                for way, ranks in ((w, int(r)) for w in args.ways.split(",") for r in args.ranks.split(",")):
                    output = run(box, str(Path(model).absolute()), names, ranks, way, args)
                    rows = compare(output, box, ranks, facts.reach(names, SKIN), facts.widths, facts.number_bytes)
                    print(f"{Path(model).name}, {title}, {ranks} ranks, comm {way}")
                    for what, counted, said in rows:
                        wrong += counted != said
                        print(f"  {what:18s} {counted!s:>12} {said!s:>12}  {'equal' if counted == said else 'DIFFERS'}")
                        results.append({"model": Path(model).name, "box": title, "ranks": ranks, "way": way,
                                        "what": what, "counted": counted, "lammps": said})  # fmt: skip
    print("all numbers are equal" if not wrong else f"{wrong} numbers differ")
    if args.json:
        common.save(args.json, {"results": results} | common.about("cpu"))
    return 1 if wrong else 0
