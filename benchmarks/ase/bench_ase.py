"""Steps of ASE's dynamics beside the model's own time: one run, the same structures.

python3 benchmarks/ase/bench_ase.py OUT.json [--device cuda] [--cells 2 10] [--repeats 7] [--seconds 140]

"step" is a step of velocity Verlet in ASE at 300 K with ClebschCalculator, new lists included; "model" is
Model.time_device of the same structure from sorted edges, "ase" a step with a calculator that returns zeros, which is
ASE's integrator. Forces are compared with float64 and without a skin before the first timed step and after the last.
mace-torch's MACE-M runs beside it where it is installed, with vesin's lists. `--device cpu --cells 2 3` rehearses it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import LIMIT, Mace, atoms_of, common, diamond, dynamics, error_of, mace_m, model_path, spread_of  # noqa: E402
from clebsch.ase import ClebschCalculator  # noqa: E402


class Nothing(Calculator):
    """Zeros, in no time: what is left is ASE's integrator."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012

    def check_state(self, atoms, tol=0.0) -> list[str]:
        return []

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes) -> None:
        self.results = {"energy": 0.0, "forces": np.zeros((len(atoms), 3))}


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.device, self.repeats, self.gpu = options.device, options.repeats, options.device.startswith("cuda")
        self.out, self.end = options.out, time.time() + options.seconds
        self.head = common.about(self.device) | {"cpu": common.cpu_name()}
        self.records: list[dict] = []

    def add(self, record: dict) -> None:
        self.records.append(record | self.head)
        common.save(self.out, self.records)
        r = record
        parts = "  ".join(f"{k[:-3]} {r[k]:.3f}" for k in ("model_ms", "listed_ms", "forces_ms", "ase_ms") if k in r)
        more = ""
        if "model_ms" in r:
            more = f"  x{r['step_ms'] / r['model_ms']:.2f}, +{r['step_ms'] - r['model_ms']:.3f} ms"
        print(
            f"{r['contestant']:12s} {r['model']:8s} {r['atoms']:6d} atoms  step {r['step_ms']:.3f} +- "
            f"{r['spread_ms']:.3f} ms  {parts}{more}  lists {r.get('lists', '-')}  error {r['error']:.1e}",
            flush=True,
        )

    def model_ms(self, path: Path, atoms: Atoms) -> tuple[float, float]:
        """Milliseconds of the model alone, from sorted edges; spread."""
        calculator = ClebschCalculator(path, self.device, "float32", threads=torch.get_num_threads())
        model = calculator.model
        from clebsch.neighbours import NeighbourFinder

        edges = NeighbourFinder(model.r_max).find(atoms.positions, atoms.cell, atoms.pbc)
        types = torch.zeros(len(atoms), dtype=torch.int64)
        graph = (edges.vectors.contiguous(), types, edges.receivers, edges.senders)
        times = []
        for _ in range(3):
            model.compute(*graph)
        for _ in range(self.repeats):
            begin = time.perf_counter()
            if self.gpu:
                times.append(model.time_device(20))
            else:
                model.compute(*graph)
                times.append(1e3 * (time.perf_counter() - begin))
        return spread_of(times)

    def ours(self, name: str, path: Path, atoms: Atoms) -> np.ndarray:
        exact = ClebschCalculator(path, self.device, "float64", skin=0.0, threads=torch.get_num_threads())
        calculator = ClebschCalculator(path, self.device, "float32", threads=torch.get_num_threads())
        errors: list[float] = []

        def check(now: Atoms) -> None:
            other = now.copy()
            other.calc = exact
            errors.append(error_of(now.get_forces(), other.get_forces()))
            if not errors[-1] <= LIMIT["float32"]:
                raise RuntimeError(f"forces differ from float64 by {errors[-1]:.1e}: not timed")

        steps = 50 if self.gpu else 3
        step, spread, run = dynamics(atoms, calculator, steps, self.repeats, check)
        lists = calculator.model.lists
        listed = [calculator.model.time_device(20) for _ in range(self.repeats)] if self.gpu else [np.nan] * 5
        # Forces of atoms that have moved a little, without the integrator.
        random, forces = np.random.default_rng(1), []
        for _ in range(self.repeats):
            begin = time.perf_counter()
            for _ in range(steps):
                run.atoms.positions[0, 0] += 1e-4 * random.uniform()
                run.atoms.get_forces()
            forces.append(1e3 * (time.perf_counter() - begin) / steps)
        nothing, _, _ = dynamics(atoms, Nothing(), steps, self.repeats, lambda _: None)
        model, model_spread = self.model_ms(path, atoms)
        self.add({
            "contestant": "clebsch", "model": name, "atoms": len(atoms), "step_ms": step, "spread_ms": spread,
            "model_ms": model, "model_spread_ms": model_spread, "listed_ms": spread_of(listed)[0],
            "forces_ms": spread_of(forces)[0], "ase_ms": nothing, "lists": lists,
            "steps": steps * self.repeats + 12, "error": max(errors),
        })  # fmt: skip
        start = atoms.copy()
        start.calc = calculator
        return start.get_forces()

    def peer(self, peer: str, model: object, atoms: Atoms, forces: np.ndarray) -> None:
        from mace_peers import made, version_of

        calculator = Mace(made(peer, model, "float32", self.device), self.device)
        errors = []

        def check(now: Atoms) -> None:
            if not errors:
                start = atoms.copy()
                start.calc = calculator
                errors.append(error_of(start.get_forces(), forces))
                if not errors[0] <= LIMIT["float32"]:
                    raise RuntimeError(f"forces differ from ours by {errors[0]:.1e}: not timed")

        step, spread, _ = dynamics(atoms, calculator, 2, 5, check, warm=2)
        self.add({
            "contestant": peer, "model": "MACE-M", "atoms": len(atoms), "step_ms": step, "spread_ms": spread,
            "error": errors[0], "version": version_of(peer),
        })  # fmt: skip


def named(records: list[dict]) -> list[dict]:
    """Rows of results/summary.json."""
    rows = []

    def row(name: str, record: dict, value: float, spread: float, unit: str, peer: dict | None = None) -> None:
        keys = ("error", "machine", "torch", "driver", "commit", "date", "command", "atoms", "lists")
        rows.append({"name": name, "value": value, "unit": unit, "spread": spread, "dtype": "float32",
                     "deterministic": True, "peer": peer} | {k: record.get(k) for k in keys})  # fmt: skip

    def find(model: str, large: bool) -> dict | None:
        found = [r for r in records if r["contestant"] == "clebsch" and r["model"] == model]
        sizes = sorted({r["atoms"] for r in found})
        return next((r for r in found if sizes and r["atoms"] == sizes[-1 if large else 0]), None)

    if r := find("carbon", True):
        row("ase_8000_overhead", r, r["step_ms"] / r["model_ms"], r["spread_ms"] / r["model_ms"], "x the model's time")
        row("ase_8000_step_ms", r, r["step_ms"], r["spread_ms"], "ms")
    if r := find("carbon", False):
        row("ase_64_overhead_ms", r, r["step_ms"] - r["model_ms"], r["spread_ms"] + r["model_spread_ms"], "ms")
    if r := find("MACE-M", True):
        peers = [p for p in records if p["contestant"] != "clebsch" and p["atoms"] == r["atoms"]]
        best = min(peers, key=lambda p: p["step_ms"], default=None)
        peer = best and {"name": best["contestant"], "version": best["version"], "value": best["step_ms"]}
        row("ase_mace_m_8000_step_ms", r, r["step_ms"], r["spread_ms"], "ms", peer)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cells", type=int, nargs="*", default=[2, 10], help="8 cells^3 atoms each")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=140.0, help="no peer is begun after so long")
    options = parser.parse_args()
    torch.set_num_threads(min(8, os.cpu_count() or 1))
    bench, failed = Bench(options), False
    print("#", json.dumps(bench.head), flush=True)

    def attempt(what: str, work, *arguments):
        nonlocal failed
        try:
            return work(*arguments)
        except Exception as error:
            failed = failed or not isinstance(error, ImportError)
            print(f"FAIL {what}: {type(error).__name__} {' '.join(str(error).split())[:400]}", flush=True)
        return None

    with tempfile.TemporaryDirectory() as folder:
        for cells in options.cells:
            attempt(f"carbon {cells}", bench.ours, "carbon", model_path("carbon-mace"), atoms_of(diamond(cells), [6]))
        made = attempt("MACE-M", mace_m, Path(folder))
        for cells in options.cells if made and made[0].exists() else ():
            atoms = atoms_of(diamond(cells), [6])
            forces = attempt(f"MACE-M {cells}", bench.ours, "MACE-M", made[0], atoms)
            for peer in ("mace-torch eager", "cuEquivariance") if made[1] is not None and forces is not None else ():
                if time.time() < bench.end:
                    attempt(f"{peer} {cells}", bench.peer, peer, made[1], atoms, forces)
    rows = named(bench.records)
    common.save(options.out.with_suffix(".records.json"), rows)
    for r in rows:
        print(f"{r['name']} {r['value']:.4g} {r['unit']} (+- {r['spread']:.2g}, error {r['error']:.1e})")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
