"""Many small structures: clebsch.evaluate beside one large structure, the ASE loop of an older release, and mace-torch.

python3 benchmarks/ase/bench_batch.py OUT.json [--device cuda] [--count 1000] [--cells 2] [--large 10] [--old FOLDER]

MACE-M with random weights, energies, forces and stresses in float32. Ours is a second and later call of an Evaluator,
from ase.Atoms to arrays; "first" is the first call, without loading. Forces are compared with float64 first. --old is a
checkout of another release with a build, or a folder with lib/libclebsch.so and python/clebsch (default: .gpu/old,
CLEBSCH_OLD): its calculator loops over the structures in a process of its own, and its forces are compared with ours.
With mace-M.pt in that folder (pack_old.sh) it reads that file, of the same weights, instead of ours.
mace-torch computes batches of its own. `--device cpu --count 12 --large 3` rehearses it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import LIMIT, Mace, common, diamond, error_of, mace_m, many, old_release, spread_of  # noqa: E402
from clebsch import Evaluator  # noqa: E402
from clebsch.runtime import Model  # noqa: E402


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, options.device
        self.structures = many(options.count, options.cells)
        self.atoms = sum(len(atoms) for atoms in self.structures)
        self.head = common.about(self.device) | {"cpu": common.cpu_name()}
        self.found: dict[str, dict] = {}

    def add(self, name: str, seconds: float, spread: float, **more: object) -> None:
        per_atom = 1e6 / self.atoms if "atoms" not in more else 1e6 / more["atoms"]
        self.found[name] = {"us_atom": seconds * per_atom, "spread": spread * per_atom} | more
        common.save(self.options.out, {"head": self.head, "found": self.found})
        words = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in more.items())
        print(f"{name:18s} {seconds * per_atom:9.3f} +- {spread * per_atom:.3f} us/atom  {words}", flush=True)

    def large(self, path: Path) -> None:
        """The model's own time a step of one large structure, as the row mace_m_8000_det_us_atom has it."""
        structure = diamond(self.options.large)
        model = Model(path, device=self.device, dtype="float32", threads=torch.get_num_threads())
        graph = structure.graph(model.r_max)
        for _ in range(3):
            model.compute(*graph)
        times = []
        for _ in range(self.options.repeats):
            begin = time.perf_counter()
            if self.device.startswith("cuda"):
                times.append(1e-3 * model.time_device(10))
            else:
                model.compute(*graph)
                times.append(time.perf_counter() - begin)
        self.add("one large", *spread_of(times), atoms=len(structure))

    def ours(self, path: Path) -> None:
        threads = torch.get_num_threads()
        chosen = self.structures[:: max(1, len(self.structures) // 20)]
        exact = Evaluator(path, self.device, "float64", threads=threads, cuda_graph=False)(chosen)
        evaluator = Evaluator(path, self.device, "float32", threads=threads, max_atoms=self.options.max_atoms)
        begin = time.perf_counter()
        self.results = evaluator(self.structures)
        first = time.perf_counter() - begin
        again = evaluator(chosen)
        error = error_of(np.concatenate(again.forces), np.concatenate(exact.forces))
        within = self.results.forces[:: max(1, len(self.structures) // 20)]
        error = max(error, error_of(np.concatenate(within), np.concatenate(exact.forces)))
        stress = error_of(again.stresses, exact.stresses)
        if not (error <= LIMIT["float32"] and stress <= 10 * LIMIT["float32"]):
            raise RuntimeError(f"forces differ from float64 by {error:.1e}, stresses by {stress:.1e}: not timed")
        evaluator(self.structures)
        times = []
        for _ in range(self.options.repeats):
            begin = time.perf_counter()
            evaluator(self.structures)
            times.append(time.perf_counter() - begin)
        run = evaluator.model.last_run
        self.add("evaluate", *spread_of(times), first_s=first, error=error, stress_error=stress,
                 replayed=run["replayed"], captures=run["captures"])  # fmt: skip
        alone, times = None, []
        for turn in range(3 + self.options.repeats):  # the first compile kernels and record the step without gradients
            begin = time.perf_counter()
            alone = evaluator(self.structures, forces=False, stress=False)
            if turn >= 3:
                times.append(time.perf_counter() - begin)
        error = float(np.abs(alone.energies - self.results.energies).max() / np.abs(self.results.energies).max())
        if not error <= LIMIT["float32"]:
            raise RuntimeError(f"energies alone differ by {error:.1e}: not timed")
        self.add("energies alone", *spread_of(times), error=error)

    def old(self, path: Path, folder: Path, seconds: float) -> None:
        found = old_release(self.options.old)
        if found is None:
            print("no older release: give --old", flush=True)
            return
        environment, release = found
        path = own if (own := release / "mace-M.pt").is_file() else path
        np.savez(
            folder / "structures.npz",
            positions=[atoms.positions for atoms in self.structures],
            cells=[atoms.cell.array for atoms in self.structures],
            numbers=self.structures[0].numbers,
        )
        program = [sys.executable, "-W", "ignore", Path(__file__).with_name("loop.py"), path, folder / "structures.npz"]
        words = [str(word) for word in [*program, folder / "old.npz", self.device, seconds]]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=seconds + 90)
        if done.returncode != 0:
            raise RuntimeError(f"the older release failed: {done.stderr[-600:]}")
        old = np.load(folder / "old.npz")
        count = len(old["seconds"])
        error = error_of(np.concatenate(old["forces"]), np.concatenate(self.results.forces[:count]))
        if not error <= LIMIT["float32"]:
            raise RuntimeError(f"forces of the older release differ by {error:.1e}: not timed")
        steady = old["seconds"][min(10, count // 3) :]
        middle, spread = spread_of(steady.tolist())
        self.add("older release", float(np.mean(steady)), spread, atoms=len(self.structures[0]), structures=count,
                 median_us_atom=1e6 * middle / len(self.structures[0]), error=error)  # fmt: skip

    def peer(self, peer: str, upstream: object, size: int) -> None:
        """mace-torch's model on batches of its own, lists by vesin included."""
        from mace_peers import made, version_of

        calculator = Mace(made(peer, upstream, "float32", self.device), self.device)
        chosen, times, forces = self.structures[: 4 * size], [], []
        for turn in range(3):
            begin = time.perf_counter()
            forces = [calculator.forces_of(chosen[k : k + size]) for k in range(0, len(chosen), size)]
            if turn > 0:
                times.append(time.perf_counter() - begin)
        error = error_of(np.concatenate(forces), np.concatenate(self.results.forces[: len(chosen)]))
        if not error <= LIMIT["float32"]:
            raise RuntimeError(f"forces differ from ours by {error:.1e}: not timed")
        self.add(peer, min(times), 0.0, atoms=sum(map(len, chosen)), error=error, version=version_of(peer), batch=size)


def named(bench: Bench) -> list[dict]:
    """Rows of results/summary.json."""
    found, rows = bench.found, []
    if "evaluate" not in found or "one large" not in found:
        return rows
    ours, large = found["evaluate"], found["one large"]
    peers = [(name, r) for name, r in found.items() if "version" in r]
    name, best = min(peers, key=lambda pair: pair[1]["us_atom"], default=("", None))
    peer = best and {"name": name, "version": best["version"], "value": best["us_atom"] / large["us_atom"]}
    base = {"dtype": "float32", "deterministic": True, "error": ours["error"]} | bench.head
    ratio = ours["us_atom"] / large["us_atom"]
    spread = ratio * (ours["spread"] / ours["us_atom"] + large["spread"] / large["us_atom"])
    rows.append(base | {"name": "batch_64x1000", "value": ratio, "unit": "x one large structure", "spread": spread,
                        "peer": peer, "us_atom": ours["us_atom"]})  # fmt: skip
    if old := found.get("older release"):
        gain = old["us_atom"] / ours["us_atom"]
        rows.append(base | {"name": "batch_64x1000_speedup", "value": gain, "unit": "x the ASE loop of fa712e2",
                            "spread": gain * (ours["spread"] / ours["us_atom"]),
                            "peer": {"name": "ASE loop", "version": "fa712e2", "value": 1.0}})  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--cells", type=int, default=2, help="8 cells^3 atoms a structure")
    parser.add_argument("--large", type=int, default=10, help="8 large^3 atoms of the one that is compared with")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--max-atoms", type=int)
    parser.add_argument("--old", help="an older release")
    parser.add_argument("--seconds", type=float, default=25.0, help="for the older release's loop")
    options = parser.parse_args()
    torch.set_num_threads(min(8, os.cpu_count() or 1))
    bench, failed = Bench(options), []
    print("#", json.dumps(bench.head), flush=True)

    def attempt(what: str, work, *arguments) -> None:
        try:
            work(*arguments)
        except Exception as error:
            if not isinstance(error, ImportError):
                failed.append(what)
            print(f"FAIL {what}: {type(error).__name__} {' '.join(str(error).split())[:500]}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, upstream = mace_m(folder)
        attempt("one large", bench.large, path)
        attempt("evaluate", bench.ours, path)
        attempt("older release", bench.old, path, folder, options.seconds)
        for peer in ("mace-torch eager", "cuEquivariance") if upstream is not None else ():
            attempt(peer, bench.peer, peer, upstream, min(32, max(1, options.count // 4)))
    rows = named(bench)
    common.save(options.out.with_suffix(".records.json"), rows)
    for r in rows:
        beside = f"; best peer {r['peer']['name']} {r['peer']['value']:.4g}" if r["peer"] else ""
        print(f"{r['name']} {r['value']:.4g} {r['unit']} (+- {r['spread']:.2g}, error {r['error']:.1e}){beside}")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
