"""Where the time of clebsch.evaluate goes beyond the model's own: python3 benchmarks/ase/batch_parts.py [OUT.json]

1,000 structures of 64 atoms of MACE-M, as bench_batch.py. Prints: a call with batches that follow each other without
the host and with ones that wait for it, with and without forces; the model's own time of an atom for a structure of
8,000 atoms, for the graph of a batch and for a step from a batch's positions, so that kernels that are slower in a
batch are told from search, lists and transfers; the host's parts one after the other; the longest times in which the
GPU does nothing, and its kernels by name in a batch beside those of the large structure, microseconds an atom.
Takes 15 s on a GPU.
`--device cpu --count 12 --large 3` rehearses the host's parts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import common, diamond, many, model_path, spread_of  # noqa: E402
from clebsch import Evaluator, batch  # noqa: E402
from clebsch.neighbours import NeighbourFinder  # noqa: E402
from clebsch.runtime import Model  # noqa: E402


def times_of(work: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def graph_of(structures: list, r_max: float) -> tuple[torch.Tensor, ...]:
    """Edge vectors, types, receivers and senders of all structures as one graph."""
    finder, first, found = NeighbourFinder(r_max), 0, []
    for atoms in structures:
        edges = finder.find(atoms.positions, atoms.cell.array, atoms.pbc)
        found.append((edges.vectors, edges.receivers + first, edges.senders + first))
        first += len(atoms)
    vectors, receivers, senders = (torch.cat(parts) for parts in zip(*found, strict=True))
    return vectors.contiguous(), torch.zeros(first, dtype=torch.int64), receivers, senders


def kernels_of(work: Callable[[], object]) -> tuple[dict[str, float], list[float], float]:
    """Microseconds of each kernel and copy by name, of each time in between that nothing runs, and of all from the
    first to the last."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end, event.name)
        for event in seen.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    names: dict[str, float] = defaultdict(float)
    idle, end = [], spans[0][0] if spans else 0.0
    for start, stop, name in spans:
        names[name[:70]] += stop - start
        if start > end:
            idle.append(start - end)
        end = max(end, stop)
    return names, sorted(idle, reverse=True), end - spans[0][0] if spans else 0.0


class Parts:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.gpu = options, options.device.startswith("cuda")
        self.path = model_path("mace-M")
        self.structures = many(options.count, 2)
        self.atoms = sum(map(len, self.structures))
        threads = torch.get_num_threads()
        self.evaluator = Evaluator(self.path, options.device, "float32", threads=threads)
        self.threads, self.told = threads, common.about(options.device) | {"cpu": common.cpu_name()}

    def tell(self, name: str, value: float, unit: str, spread: float = 0.0) -> None:
        self.told[name] = value
        print(f"{name:44s} {value:10.4f} +- {spread:.4f} {unit}", flush=True)

    def calls(self) -> None:
        for how in ("ahead", "together"):
            os.environ["CLEBSCH_BATCHES"] = how
            for name, wanted in (("", {}), (", energies alone", {"forces": False, "stress": False})):
                times_of(lambda w=wanted: self.evaluator(self.structures, **w), 3)
                times = times_of(lambda w=wanted: self.evaluator(self.structures, **w), self.options.repeats)
                middle, spread = spread_of(times)
                self.tell(f"evaluate, {how}{name}", 1e3 * middle / self.atoms, "us/atom", 1e3 * spread / self.atoms)
                self.tell(f"evaluate, {how}{name}, shortest", 1e3 * min(times) / self.atoms, "us/atom")
        os.environ.pop("CLEBSCH_BATCHES")

    def batches(self) -> list[list[int]]:
        most = batch._ATOMS_ON_GPU if self.gpu else batch._ATOMS_ON_CPU
        return batch._batches([len(atoms) for atoms in self.structures], most)

    def model(self) -> None:
        """The model's own time: of the large structure, of a batch's graph, of a batch's step from positions."""
        first = [self.structures[k] for k in self.batches()[0]]
        large = diamond(self.options.large)
        self.large, self.large_atoms = Model(self.path, device="cuda", dtype="float32"), len(large)
        of_batch = Model(self.path, device="cuda", dtype="float32")
        graphs = [(self.large, large.graph(self.large.r_max), "one large"),
                  (of_batch, graph_of(first, of_batch.r_max), "a batch's graph")]  # fmt: skip
        for model, graph, name in graphs:
            for _ in range(3):
                model.compute(*graph)
            times = [1e3 * model.time_device(10) / len(graph[1]) for _ in range(7)]
            self.tell(f"model, {name}, {len(graph[1])} atoms", *self.with_unit(times))
            self.tell(f"edges an atom, {name}", len(graph[2]) / len(graph[1]), "")
        run = self.evaluator.model.last_run
        times = [1e3 * self.evaluator.model.time_device(10) / run["rows"] for _ in range(7)]
        self.tell(f"model, from positions, {run['rows']} rows", *self.with_unit(times))
        print(f"# {run}", flush=True)

    @staticmethod
    def with_unit(times: list[float]) -> tuple[float, str, float]:
        middle, spread = spread_of(times)
        return middle, "us/atom", spread

    def host(self) -> None:
        """The parts of a call, each by itself, and what of a batch is not hidden behind the batch before."""
        structures, elements, model = self.structures, self.evaluator._elements, self.evaluator.model
        chosen = self.batches()
        found = batch._Collected(len(structures), True, True)
        rows: dict[str, list[float]] = defaultdict(list)

        def note(name: str, work: Callable[[], object]) -> object:
            begin = time.perf_counter()
            result = work()
            rows[name].append(1e3 * (time.perf_counter() - begin))
            return result

        for _ in range(5):
            note("call: elements", lambda: self.evaluator._load(structures, lambda *_: None))
            note("call: batches", self.batches)
            for number, indices in enumerate(chosen):
                place, size = number % 3, sum(len(structures[k]) for k in indices)
                packed = note("batch: arrays", lambda k=indices: batch._Packed.of(structures, k))
                tensors = note("batch: types", lambda p=packed: p.tensors(elements))
                note("batch: list", lambda p=place, t=tensors: model.prepare_systems(p, *t))
                note("batch: start", lambda p=place, n=size: model.start_systems(p, room=n))
                result = note("batch: wait, results", lambda p=place: model.finish_systems(p))
                if self.gpu:
                    rows["batch: results (within the last)"].append(model.last_run["read_ms"])
                note("batch: places", lambda p=packed, r=result: found.take(p, r))
        for name, times in rows.items():
            self.tell(name, float(np.median(times)), "ms", float(np.ptp(np.quantile(times, [0.25, 0.75]))))

    def kernels(self) -> None:
        call, idle, whole = kernels_of(lambda: self.evaluator(self.structures))
        large, _, _ = kernels_of(lambda: self.large.time_device(4))
        self.tell("GPU, first to last kernel of a call", whole / self.atoms, "us/atom")
        self.tell("GPU, nothing runs", sum(idle) / self.atoms, "us/atom")
        print("longest times without work, us:", " ".join(f"{us:.0f}" for us in idle[:12]), flush=True)
        more = {name: us / self.atoms - large.get(name, 0.0) / (5 * self.large_atoms) for name, us in call.items()}
        self.told["kernels"] = {name: [us / self.atoms, more[name]] for name, us in call.items()}
        print("kernels by what they take more than in the large structure: us/atom in a batch, more")
        for name in sorted(more, key=lambda name: -more[name])[:24]:
            print(f"   {call[name] / self.atoms:8.4f} {more[name]:+8.4f}  {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--large", type=int, default=10, help="8 large^3 atoms")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(min(8, os.cpu_count() or 1))
    parts = Parts(options)
    for work in [parts.calls, parts.host, *([parts.model, parts.kernels] if parts.gpu else [])]:
        work()
    if options.out:
        options.out.write_text(json.dumps(parts.told, indent=1))


if __name__ == "__main__":
    main()
