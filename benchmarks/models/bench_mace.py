"""MACE on a GPU beside mace-torch eager, cuEquivariance and OpenEquivariance: one run, the same weights and graph.

python3 benchmarks/models/bench_mace.py OUT.json [--pieces elements million profile peers fp64] [--seconds 200]

Needs CLEBSCH_LIBRARY, and mace-torch for the peers (those that cannot be imported are named and left out), else the
files of make_mace_models.py. Rattled diamond, cutoff 6, correlation 3, random weights. Ours is the step on the GPU with
the graph there, as the peers' is; an answer is compared before it is timed: ours with ours in float64, a peer's with
ours. Of a peer the fastest of single calls, calls that follow each other and replays of a CUDA graph counts. Medians
and the middle half of repeats. `--device cpu --cells 1` rehearses it where no GPU is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
from bench_model import profile  # noqa: E402
from mace_peers import PEERS, made, upstream_step, version_of  # noqa: E402
from model_cases import Structure, diamond, model_path, save, tiled  # noqa: E402
from peer_times import peer_times  # noqa: E402

from clebsch.runtime import Model  # noqa: E402

HIDDEN = {"mace-S": "128x0e", "mace-M": "128x0e+128x1o", "mace-M-5el": "128x0e+128x1o"}
FIVE = [6, 7, 8, 14, 16]
REPEATS = 9
#: Relative force error beyond which nothing is timed.
LIMIT = {"float32": 1e-4, "float64": 1e-9}
#: The like for peers; their couplings and normalisation constants are those of a float32 model in float64 too.
PEER_LIMIT = {"float32": 1e-4, "float64": 1e-6}


def model_of(name: str, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The random model, on the CPU. mace-S and mace-M have one element, mace-M-5el five and the Agnesi transform."""
    import mace  # noqa: F401 - before e3nn
    from e3nn import o3
    from mace import modules

    torch.manual_seed(1)
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    elements = FIVE if name.endswith("5el") else [6]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return modules.ScaleShiftMACE(
            r_max=6.0, num_bessel=8, num_polynomial_cutoff=5, max_ell=3, interaction_cls=block,
            interaction_cls_first=block, num_interactions=2, num_elements=len(elements),
            hidden_irreps=o3.Irreps(HIDDEN[name]), MLP_irreps=o3.Irreps("16x0e"),
            atomic_energies=np.linspace(-3.0, -2.0, len(elements)), avg_num_neighbors=100.0, atomic_numbers=elements,
            correlation=3, gate=torch.nn.functional.silu, radial_MLP=[64, 64, 64], atomic_inter_scale=40.0,
            atomic_inter_shift=0.0, distance_transform="Agnesi" if len(elements) > 1 else "None",
        ).eval()  # fmt: skip
    finally:
        torch.set_default_dtype(before)


class Bench:
    """The machine, the models, and what has been measured."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.out, self.device, self.repeats, self.folder = options.out, options.device, options.repeats, folder
        self.end = time.time() + options.seconds
        self.gpu = self.device == "cuda"
        self.peers = [peer for peer in PEERS if options.peers is None or peer in options.peers]
        self.records: list[dict] = []
        self.files: dict[str, tuple[Path, torch.nn.Module | None]] = {}
        self.head = common.about(self.device)

    def attempt(self, name: str, limit: float, work: Callable, *arguments: object) -> object:
        """What `work` returns; None, and a line, where it fails or does not end, which stops nothing else."""
        left = min(limit, self.end - time.time())
        if left < 3:
            print(f"FAIL {name}: no time left", flush=True)
            return None

        def stop(*_: object) -> None:
            raise TimeoutError(f"no end after {left:.0f} s")

        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            return work(*arguments)
        except Exception as error:
            text = " ".join(str(error).split())[:400]
            print(f"FAIL {name}: {type(error).__name__} {text}", flush=True)
            if not isinstance(error, (ImportError, TimeoutError, torch.cuda.OutOfMemoryError)):
                print(traceback.format_exc(limit=-3), flush=True)
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if self.gpu:
                torch.cuda.empty_cache()
            save(self.out, self.records)

    def file(self, name: str) -> tuple[Path, torch.nn.Module | None]:
        """The model file, made from upstream's model where mace-torch is, and that model."""
        if name not in self.files:
            try:
                from clebsch import export

                path, model = self.folder / f"{name}.pt", model_of(name)
                export.mace(model, path, verify=False)
                self.files[name] = path, model
            except ImportError as error:
                print(f"{name}: from {model_path(name)}, without peers ({error})", flush=True)
                self.files[name] = model_path(name), None
        return self.files[name]

    def synchronize(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self.gpu else 0

    def add(self, record: dict) -> None:
        self.records.append(record | self.head)
        r = record
        what = f"{r['contestant']:16s} {r['model']:10s} {r['label']:8s} {r['dtype']} {r['order']:7s}"
        print(
            f"{what} {r['atoms']:7d} atoms {r['edges']:9d} edges {r['ms']:10.3f} +- {r['spread_ms']:.3f} ms  "
            f"{1e3 * r['ms'] / r['atoms']:.3f} us/atom  {r['kb_atom']:.1f} kB/atom  force error {r['error']:.1e}",
            flush=True,
        )

    def ours(self, name: str, label: str, structure: Structure, dtype: str, deterministic: bool) -> torch.Tensor:
        """Times one point; the forces. The reference is float64 on the same device, for float64 on the CPU."""
        path, _ = self.file(name)
        graph = structure.graph(6.0)
        exact_on = self.device if dtype == "float32" else "cpu"
        exact = Model(path, device=exact_on, dtype="float64", cuda_graph=False, threads=torch.get_num_threads())
        reference = exact.compute(*graph)["forces"]
        del exact
        if self.gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if self.gpu else 0
        model = Model(
            path, device=self.device, dtype=dtype, deterministic=deterministic, threads=torch.get_num_threads()
        )
        forces = model.compute(*graph)["forces"]
        error = float((forces - reference).square().mean().sqrt() / reference.square().mean().sqrt())
        if not error <= LIMIT[dtype]:
            raise RuntimeError(f"forces differ from float64 by {error:.1e}: not timed")
        for _ in range(3):
            model.compute(*graph)
        times = []
        for _ in range(self.repeats):
            start = time.perf_counter()
            if self.gpu:
                count = max(2, min(50, int(2e5 / len(graph[0]) * 20)))
                times.append(model.time_device(count))
            else:
                model.compute(*graph)
                times.append(1e3 * (time.perf_counter() - start))
        self.add(
            self.point("clebsch", name, label, structure, graph, dtype, times, self.peak() - before, error)
            | {"order": "ordered" if deterministic else "atomic"}
        )
        return forces

    def point(self, contestant, name, label, structure, graph, dtype, times, memory, error) -> dict:
        ms, spread = common.quartiles(times) if times else (None, None)
        return {
            "contestant": contestant, "model": name, "label": label, "dtype": dtype, "order": "", "error": error,
            "atoms": len(structure), "edges": len(graph[0]), "ms": ms, "spread_ms": spread,
            "kb_atom": memory / len(structure) / 1e3,
        }  # fmt: skip

    def peer(
        self, peer: str, other: torch.nn.Module, name: str, label: str, structure: Structure, forces: torch.Tensor
    ):
        """Times one upstream contestant, after its forces have been compared with ours."""
        graph = structure.graph(6.0)
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        step = upstream_step(other, structure, graph, self.device)
        found = step()["forces"].detach().cpu().double()
        dtype = str(next(other.parameters()).dtype).removeprefix("torch.")
        error = float((found - forces).square().mean().sqrt() / forces.square().mean().sqrt())
        if not error <= PEER_LIMIT[dtype]:
            raise RuntimeError(f"forces differ from ours by {error:.1e}: not timed")
        found = peer_times(step, max(self.repeats - 2, 3), self.device)
        self.add(
            self.point(peer, name, label, structure, graph, dtype, [], self.peak(), error)
            | found
            | {"version": version_of(peer)}
        )

    def beside_peers(self, names: list[str], sizes: dict[str, int], dtype: str) -> None:
        """Ours with atomic sums and with sums in a fixed order, then every peer."""
        for name in names:
            answers: dict[str, torch.Tensor] = {}
            for label, cells in sizes.items():
                for deterministic in (True, False):
                    found = self.attempt(
                        f"{name} {label}", 40, self.ours, name, label, diamond(cells), dtype, deterministic
                    )
                    answers |= {} if found is None else {label: found}
            upstream = self.file(name)[1]
            for peer in self.peers if upstream is not None else ():
                other = self.attempt(f"{peer} {name}", 40, made, peer, upstream, dtype, self.device)
                for label in answers if other is not None else ():
                    what = (peer, other, name, label, diamond(sizes[label]), answers[label])
                    self.attempt(f"{peer} {name} {label}", 40, self.peer, *what)
                del other

    def elements(self, cells: int) -> None:
        """Five elements at random with the Agnesi transform, and one of them alone, in the same model."""
        for label, types in (("1 of 5", 1), ("5 of 5", 5)):
            structure = diamond(cells)
            structure.types = torch.as_tensor(np.random.default_rng(1).integers(0, types, len(structure)))
            for deterministic in (True, False):
                self.attempt(f"{label}", 40, self.ours, "mace-M-5el", label, structure, "float32", deterministic)

    def million(self, cells: int, copies: int) -> None:
        """Many copies of one cell, side by side: the forces are those of the cell."""
        path, _ = self.file("mace-M")
        cell = diamond(cells)
        graph = cell.graph(6.0)
        model = Model(path, device=self.device, dtype="float32", deterministic=False)
        expected = model.compute(*graph)["forces"]
        del model
        big = tiled(cell, graph, copies)
        atoms = cell.positions.shape[0] * copies**3
        if self.gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        model = Model(path, device=self.device, dtype="float32", deterministic=False)
        start = time.perf_counter()
        forces = model.compute(*big)["forces"].reshape(copies**3, len(expected), 3)
        first = time.perf_counter() - start
        error = float((forces - expected).square().mean().sqrt() / expected.square().mean().sqrt())
        if not error <= LIMIT["float32"]:
            raise RuntimeError(f"forces differ from those of the cell by {error:.1e}: not timed")
        times = []
        for _ in range(5):
            start = time.perf_counter()
            times.append(model.time_device(1) if self.gpu else 0.0)
            if not self.gpu:
                model.compute(*big)
                times[-1] = 1e3 * (time.perf_counter() - start)
        whole = Structure(np.zeros((atoms, 3)), 0.0, np.zeros(atoms))
        point = self.point("clebsch", "mace-M", "million", whole, big, "float32", times, self.peak(), error)
        self.add(point | {"order": "atomic", "first_call_s": first})


def kernels(path: Path, label: str, structure: Structure) -> list[dict]:
    """Kernels of one step by their time, printed and returned."""
    return profile(str(path), label, structure)


#: Name of benchmarks/targets.json -> model, label, dtype, unit.
NAMES = {
    "mace_m_8000_us_atom": ("mace-M", "8000", "float32", "us/atom"),
    "mace_m_8000_mb_atom": ("mace-M", "8000", "float32", "MB/atom"),
    "mace_m_1000_ms": ("mace-M", "1000", "float32", "ms"),
    "mace_m_64_ms": ("mace-M", "64", "float32", "ms"),
    "mace_s_8000_us_atom": ("mace-S", "8000", "float32", "us/atom"),
    "mace_m_fp64_1000_us_atom": ("mace-M", "1000", "float64", "us/atom"),
}


def value_of(record: dict, unit: str) -> tuple[float, float]:
    """Value and spread in the unit."""
    if unit == "MB/atom":
        return record["kb_atom"] / 1e3, 0.0
    scale = 1e3 / record["atoms"] if unit == "us/atom" else 1.0
    return scale * record["ms"], scale * record["spread_ms"]


def named(records: list[dict]) -> list[dict]:
    """Records for benchmarks/record.py: atomic sums, as the peers have; the best peer of the run beside them."""
    out = []

    def base(record: dict, name: str, value: float, spread: float, unit: str) -> dict:
        keys = ("dtype", "error", "machine", "torch", "driver", "commit", "date", "command", "atoms", "edges")
        found = {"name": name, "value": value, "unit": unit, "spread": spread, "deterministic": False, "peer": None}
        return found | {key: record[key] for key in keys} | {"kb_atom": record["kb_atom"]}

    def select(model: str, label: str, dtype: str = "float32") -> list[dict]:
        return [r for r in records if (r["model"], r["label"], r["dtype"]) == (model, label, dtype)]

    for name, (model, label, dtype, unit) in NAMES.items():
        points = select(model, label, dtype)
        mine = [r for r in points if r["order"] == "atomic"]
        if not mine:
            continue
        record = base(mine[0], name, *value_of(mine[0], unit), unit)
        ordered = [value_of(r, unit)[0] for r in points if r["order"] == "ordered"]
        record["deterministic_value"] = ordered[0] if ordered else None
        peers = [(value_of(r, unit)[0], r) for r in points if r["contestant"] != "clebsch"]
        if peers:
            value, best = min(peers, key=lambda pair: pair[0])
            record["peer"] = {"name": best["contestant"], "version": best["version"], "value": value}
            record["peers"] = {f"{r['contestant']}, {r['way']}": v for v, r in peers}
        out.append(record)
    five = [r for r in select("mace-M-5el", "5 of 5") if r["order"] == "atomic"]
    single = [r for r in select("mace-M", "8000") if r["order"] == "atomic"]
    if five and single and five[0]["atoms"] == single[0]["atoms"]:
        ratio = five[0]["ms"] / single[0]["ms"]
        spread = ratio * (five[0]["spread_ms"] / five[0]["ms"] + single[0]["spread_ms"] / single[0]["ms"])
        record = base(five[0], "mace_m_5el_ratio", ratio, spread, "x single species")
        record["details"] = "five elements at random with Agnesi over mace_m_8000 without a transform"
        alone = [r["ms"] for r in select("mace-M-5el", "1 of 5") if r["order"] == "atomic"]
        record["over_one_of_five"] = five[0]["ms"] / alone[0] if alone else None
        out.append(record)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pieces", nargs="*", default=["elements", "million", "profile", "peers", "fp64"])
    parser.add_argument("--seconds", type=float, default=200.0, help="nothing is begun after so long")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--cells", type=int, nargs="*", default=[2, 5, 10], help="8 cells^3 atoms each")
    parser.add_argument("--models", nargs="*", default=["mace-M", "mace-S"])
    parser.add_argument("--peers", nargs="*", help="of mace_peers.py; all")
    parser.add_argument("--copies", type=int, default=5, help="of the largest cell an edge, in the piece million")
    options = parser.parse_args()
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    cells = options.cells
    sizes = {str(8 * n**3): n for n in cells}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        print("#", json.dumps(bench.head), flush=True)
        for piece in options.pieces:
            start = time.time()
            if piece == "peers":
                bench.beside_peers(options.models, sizes, "float32")
            elif piece == "fp64":
                bench.beside_peers(["mace-M"], dict([list(sizes.items())[min(1, len(cells) - 1)]]), "float64")
            elif piece == "elements":
                bench.elements(cells[-1])
            elif piece == "million":
                bench.attempt("million", 90, bench.million, cells[-1], options.copies)
            elif piece == "profile":
                profiles = {}
                for label in (str(8 * n**3) for n in (cells[0], cells[-1])):
                    rows = bench.attempt("profile", 30, kernels, bench.file("mace-M")[0], label, diamond(sizes[label]))
                    profiles |= {} if rows is None else {f"mace-M {label}": rows}
                options.out.with_suffix(".profile.json").write_text(json.dumps(profiles, indent=1) + "\n")
            else:
                print(f"FAIL unknown piece {piece}")
            print(f"== {piece}: {time.time() - start:.0f} s", flush=True)
    records = named(bench.records)
    save(options.out.with_suffix(".records.json"), records)
    for r in records:
        peer = f"; best peer {r['peer']['name']} {r['peer']['value']:.4g}" if r["peer"] else ""
        print(f"{r['name']} {r['value']:.4g} {r['unit']} (+- {r['spread']:.2g}, error {r['error']:.1e}){peer}")
    return 0 if bench.records else 1


if __name__ == "__main__":
    sys.exit(main())
