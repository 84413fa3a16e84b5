"""Is a model that is trained on chosen structures better than one that is trained on as many at random?

    python benchmarks/grade/retraining.py RETRAINING.npz --device cuda --json retraining.json [--fresh]
        [--arms old+random,old+doptimal,random,doptimal]

RETRAINING.npz: of pool.py, 200 structures of a pool of 4,000 by each choice. The shipped NequIP water weights are
trained on for 100 epochs, or with --fresh others at random are, always by one recipe: Adam down a cosine from 2e-3
(4e-3), squared errors of forces and of energies an atom, weights averaged. "old+": on 200 old structures too.
A seed is one order of training and one choice, where that has chance in it, and with --fresh one set of weights to begin
with. Runs are made side by side: by processes, and on a GPU, where a step is a graph, by several streams of a process.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "models/recipes/water-nequip"), str(ROOT / "src/python")]
import common  # noqa: E402

CUTOFF = 5.0
BATCH, TEST_BATCH = 40, 20  # structures
RATE, KEEP, CLIP = 2e-3, 0.995, 10.0
Data = dict[str, NDArray[Any]]


def part(packed: Data, name: str) -> Data:
    return {key.split("/")[1]: packed[key] for key in packed if key.startswith(f"{name}/")}


def joined(parts: list[Data]) -> Data:
    return {key: np.concatenate([one[key] for one in parts]) for key in parts[0]}


def edges_of(x: NDArray[Any], box: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Receivers, senders and Cartesian shifts of a cubic box: |x[sender] + shift - x[receiver]| < CUTOFF."""
    reach = int(np.ceil((CUTOFF + np.ptp(x)) / box))
    images = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 1, 3)
    gaps = x[None, None, :] - x[None, :, None] + box * images
    near = (gaps**2).sum(-1) < CUTOFF**2
    near &= (images != 0).any(-1) | ~np.eye(len(x), dtype=bool)[None]
    image, receiver, sender = np.nonzero(near)
    order = np.argsort(receiver, kind="stable")
    return receiver[order], sender[order], box * images[image[order], 0, 0]


class Boxes:
    """Structures of one size, as batches of `size` with as many edges each.

    A batch is filled up by edges from an atom to itself that are longer than the cutoff: they add nothing.
    """

    def __init__(self, data: Data, device: str, size: int) -> None:
        self.size = size
        self.atoms = data["positions"].shape[1]
        found = [edges_of(x.astype(float), a) for x, a in zip(data["positions"], data["box"], strict=True)]
        self.width = max(len(one[0]) for one in found)
        count = len(found)
        lists = np.zeros((count, 2, self.width), dtype=np.int64)
        # The last atom: receivers stay in order, which saves the convolution a sort.
        lists[:] = self.atoms - 1
        shifts = np.zeros((count, self.width, 3))
        shifts[:, :, 0] = 2 * CUTOFF
        for k, (receivers, senders, shift) in enumerate(found):
            lists[k, 0, : len(shift)], lists[k, 1, : len(shift)], shifts[k, : len(shift)] = receivers, senders, shift
        put = lambda values, dtype: torch.as_tensor(values).to(device, dtype)  # noqa: E731
        self.lists, self.shifts = put(lists, torch.int64), put(shifts, torch.float64)
        self.positions, self.forces = put(data["positions"], torch.float64), put(data["forces"], torch.float32)
        self.energies = put(data["energies"], torch.float32)
        self.types = put(np.tile([0, 1, 1], size * self.atoms // 3), torch.int64)
        self.owner = put(np.repeat(np.arange(size), self.atoms), torch.int64)
        self.sizes = put(np.full(size, self.atoms), torch.int64)
        self.starts = put(self.atoms * np.arange(size)[:, None, None], torch.int64)

    def __len__(self) -> int:
        return len(self.positions)

    def batch(self, which: Tensor) -> dict[str, Tensor]:
        """which (size,) on the device."""
        lists = self.lists[which] + self.starts
        return {"positions": self.positions[which].flatten(0, 1), "receivers": lists[:, 0].flatten(),
                "senders": lists[:, 1].flatten(), "shifts": self.shifts[which].flatten(0, 1),
                "forces": self.forces[which].flatten(0, 1), "energies": self.energies[which]}  # fmt: skip

    def predict(self, energy_model: torch.nn.Module, batch: dict[str, Tensor], train: bool) -> tuple[Tensor, Tensor]:
        """Energies an atom (size,) and forces."""
        x = batch["positions"].detach().requires_grad_()
        receivers, senders = batch["receivers"], batch["senders"]
        # The node that comes first in edge_index is the one that sums.
        vectors = x[senders] - x[receivers] + batch["shifts"]
        found = energy_model({"pos": x, "edge_index": torch.stack([receivers, senders]), "edge_vectors": vectors,
                              "atom_types": self.types, "batch": self.owner, "num_atoms": self.sizes})  # fmt: skip
        energy = found["total_energy"]
        (gradient,) = torch.autograd.grad(energy.sum(), x, create_graph=train)
        return (energy.flatten() / self.atoms).float(), -gradient.float()


class Training:
    """One step of the recipe: a CUDA graph on a GPU, on a stream of its own."""

    def __init__(self, model: torch.nn.Module, boxes: Boxes, steps: int, device: str, rate: float) -> None:
        self.boxes, self.model, self.steps, self.first = boxes, model, steps, rate
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]
        self.rate = torch.tensor(rate, device=device)
        cuda = device.startswith("cuda")
        self.optimizer = torch.optim.Adam(self.parameters, lr=self.rate if cuda else rate, amsgrad=True,
                                          capturable=cuda, foreach=True)  # fmt: skip
        self.which = torch.arange(boxes.size, device=device)
        self.loss = torch.zeros((), device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream() if cuda else None
        if cuda:
            torch.cuda.synchronize()
            with torch.cuda.stream(self.stream):
                self._capture()
            torch.cuda.synchronize()

    def _capture(self) -> None:
        """The first steps are warm-up, with a rate of nothing."""
        self.rate.zero_()
        kept = [p.detach().clone() for p in self.parameters]
        for _ in range(4):
            self._step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            # A stream of its own: graphs that run side by side must not share cuBLAS's workspace.
            with torch.cuda.graph(graph, stream=self.stream):
                self._step()
            self.graph = graph
        except RuntimeError as error:
            torch.cuda.synchronize()
            print(f"steps without a graph: {error}", flush=True)
        with torch.no_grad():
            for group in (self.parameters, self.average):
                for p, old in zip(group, kept, strict=True):
                    p.copy_(old)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def _step(self) -> None:
        batch = self.boxes.batch(self.which)
        energies, forces = self.boxes.predict(self.model, batch, True)
        of_forces = (forces - batch["forces"]).square().mean()
        of_energy = (energies - batch["energies"]).square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        (of_forces + 20.0 * of_energy).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP, foreach=True)
        self.optimizer.step()
        torch._foreach_mul_(self.average, KEEP)
        torch._foreach_add_(self.average, [p.detach() for p in self.parameters], alpha=1 - KEEP)
        self.loss.copy_(of_forces.detach())

    def __call__(self, step: int, which: Tensor) -> None:
        with torch.cuda.stream(self.stream):
            self._advance(step, which)

    def _advance(self, step: int, which: Tensor) -> None:
        rate = 0.5 * self.first * (1 + np.cos(np.pi * step / self.steps))
        self.rate.fill_(rate)
        if not self.rate.is_cuda:
            self.optimizer.param_groups[0]["lr"] = rate
        self.which.copy_(which)
        if self.graph is not None:
            self.graph.replay()
        else:
            self._step()

    def finish(self) -> None:
        """The averaged weights become the model's."""
        with torch.no_grad():
            for p, average in zip(self.parameters, self.average, strict=True):
                p.copy_(average)


def force_error(model: torch.nn.Module, boxes: Boxes) -> float:
    """RMSE, meV/A."""
    total = 0.0
    whole = len(boxes) // boxes.size * boxes.size
    for first in range(0, whole, boxes.size):
        batch = boxes.batch(torch.arange(first, first + boxes.size, device=boxes.positions.device))
        forces = boxes.predict(model, batch, False)[1]
        total += float((forces - batch["forces"]).square().double().sum())
    return 1e3 * float(np.sqrt(total / (whole * boxes.atoms * 3)))


def upstream(fresh: int | None) -> torch.nn.Module:
    """The shipped weights, or others at random; the part below the forces."""
    import export_model
    from nequip.utils.global_state import set_global_state

    from clebsch import library
    from clebsch.training.nequip import enable_clebsch

    set_global_state(allow_tf32=False)
    library.load()
    for module in export_model.model(fresh).modules():
        if type(module).__name__ == "ForceStressOutput":
            return enable_clebsch(module.func)
    raise SystemExit("expected upstream's ForceStressOutput in the model")


class Shared:
    """What the runs of a process have in common: the structures that judge, and weights of a seed to begin with."""

    def __init__(self, packed: Data, args: argparse.Namespace) -> None:
        self.packed, self.args = packed, args
        self.tests = {name: Boxes(part(packed, name), args.device, TEST_BATCH) for name in ("hard", "easy")}
        self.old = part(packed, "old")
        self._models: dict[int | None, tuple[torch.nn.Module, dict[str, float]]] = {}

    def model(self, seed: int) -> tuple[torch.nn.Module, dict[str, float]]:
        """A model of its own for a run, and its errors before."""
        key = seed if self.args.fresh else None
        if key not in self._models:
            model = upstream(key).to(self.args.device)
            self._models[key] = (model, self.errors(model))
        model, errors = self._models[key]
        return copy.deepcopy(model), errors

    def errors(self, model: torch.nn.Module) -> dict[str, float]:
        return {"hard": force_error(model, self.tests["hard"]), "300K": force_error(model, self.tests["easy"])}


class Run:
    """Trains one and judges it."""

    def __init__(self, shared: Shared, arm: str, seed: int) -> None:
        args, packed = shared.args, shared.packed
        torch.manual_seed(seed)
        self.begin, self.name, self.shared = time.monotonic(), f"{arm} {seed}", shared
        self.model, before = shared.model(seed)
        self.row: dict[str, Any] = {"arm": arm, "seed": seed, "fresh": args.fresh, "batch": args.batch}
        self.row |= {f"before_{name}": value for name, value in before.items()}
        picked = packed[f"choice/{arm.removeprefix('old+')}_{seed}"]
        chosen = {key: values[picked] for key, values in part(packed, "pool").items()}
        boxes = Boxes(joined([chosen, shared.old]) if arm.startswith("old+") else chosen, args.device, args.batch)
        each = len(boxes) // boxes.size
        self.steps, rng = args.epochs * each, np.random.default_rng(seed)
        mixed = np.stack([rng.permutation(len(boxes))[: each * boxes.size] for _ in range(args.epochs)])
        self.order = torch.from_numpy(mixed.reshape(self.steps, boxes.size)).to(args.device)
        rate = 2 * RATE if args.fresh else RATE
        self.train = Training(self.model.train(), boxes, self.steps, args.device, rate)
        self.row["start_s"] = round(time.monotonic() - self.begin, 1)

    def step(self, k: int) -> None:
        self.train(k, self.order[k])

    def finish(self) -> dict[str, Any]:
        self.train.finish()
        loss = 1e3 * float(self.train.loss) ** 0.5
        return {**self.row, **self.shared.errors(self.model.eval()), "steps": self.steps, "last_loss": loss,
                "graph": self.train.graph is not None, "seconds": round(time.monotonic() - self.begin, 1)}  # fmt: skip


def worker(place: int, todo: list[tuple[str, int]], args: argparse.Namespace, results: Any) -> None:
    """Some runs at a time, a step of each in turn."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    if args.device == "cuda":
        torch.cuda.set_device(place % torch.cuda.device_count())
    shared = Shared(dict(np.load(args.packed)), args)
    for first in range(0, len(todo), args.together):
        runs = [Run(shared, arm, seed) for arm, seed in todo[first : first + args.together]]
        wait()  # the orders are read on other streams
        begin, last = time.monotonic(), max(one.steps for one in runs)
        for k in range(last):
            for one in (one for one in runs if k < one.steps):
                one.step(k)
            if k + 1 == min(50, last) or (k + 1) % max(last // 5, 1) == 0:
                wait()
                now = time.monotonic() - begin
                print(f"{len(runs)} runs: step {k + 1} of {last}, {now:.0f} s, {1e3 * now / (k + 1):.1f} ms; last loss "
                      + ", ".join(f"{one.name} {1e3 * float(one.train.loss) ** 0.5:.0f}" for one in runs),
                      flush=True)  # fmt: skip
            ended = [one for one in runs if one.steps == k + 1]
            if ended:
                wait()
            for one in ended:
                results.put(one.finish())


def base_of(arm: str) -> str:
    """What an arm is compared with."""
    return "old+random" if arm.startswith("old+") else "random"


def mean_of(rows: list[dict[str, Any]], arm: str, key: str) -> float:
    values = [r[key] for r in rows if r["arm"] == arm]
    return float(np.mean(values)) if values else np.nan


def table(rows: list[dict[str, Any]]) -> None:
    print(f"{'':14s}{'runs':>6s}{'hard':>10s}{'of random':>11s}{'300 K':>10s}{'of random':>11s}   meV/A")
    print(f"{'before':20s}{rows[0]['before_hard']:10.1f}{'':11s}{rows[0]['before_300K']:10.1f}")
    for arm in dict.fromkeys(r["arm"] for r in rows):
        hard, easy = (mean_of(rows, arm, key) for key in ("hard", "300K"))
        base = [mean_of(rows, base_of(arm), key) for key in ("hard", "300K")]
        runs = sum(r["arm"] == arm for r in rows)
        print(f"{arm:14s}{runs:6d}{hard:10.1f}{hard / base[0]:11.3f}{easy:10.1f}{easy / base[1]:11.3f}", flush=True)


def records_of(rows: list[dict[str, Any]], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Errors of every choice over those of the random one, as summary.json has them; spread: largest less smallest."""
    found = []
    said = {"unit": "of random's error", "dtype": "float32", "deterministic": False, "error": None, "peer": None}
    start = "fresh" if rows[0]["fresh"] else "shipped"
    for arm in dict.fromkeys(r["arm"] for r in rows if r["arm"] != base_of(r["arm"])):
        for key, name in (("hard", "hard"), ("300K", "300_k")):
            values = [r[key] / mean_of(rows, base_of(arm), key) for r in rows if r["arm"] == arm]
            spread = float(np.ptp(values)) if len(values) > 1 else None
            label = f"grade_retraining_{start}_{name}_{arm.replace('+', '_')}"
            found.append({"name": label, "value": float(np.mean(values)), "spread": spread, **said, **about})
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packed", type=Path)
    parser.add_argument("--arms", default="random,doptimal")
    parser.add_argument("--once", default="", help="choices that are trained on with one seed, last")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=BATCH, help="structures a step")
    parser.add_argument("--workers", type=int, default=1, help="processes side by side, a GPU each in turn")
    parser.add_argument("--together", type=int, default=6, help="runs of a process at a time")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--fresh", action="store_true", help="train from random weights")
    parser.add_argument("--json", type=Path, default=Path("retraining.json"))
    args = parser.parse_args()
    todo = [(arm, seed) for seed in range(args.seeds) for arm in args.arms.split(",")]
    todo += [(arm, 0) for arm in args.once.split(",") if arm]
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=worker, args=(k, todo[k :: args.workers], args, results))
               for k in range(min(args.workers, len(todo)))]  # fmt: skip
    for one in workers:
        one.start()
    rows: list[dict[str, Any]] = []
    while len(rows) < len(todo):
        try:
            rows.append(results.get(timeout=5))
        except Exception:  # nothing came: are they alive?
            if any(one.exitcode not in (None, 0) for one in workers) or not any(one.is_alive() for one in workers):
                print("a run ended without a result", flush=True)
                break
            continue
        print({k: round(v, 2) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
        common.save(args.json, {"rows": rows, "epochs": args.epochs, **common.about(args.device)})
    for one in workers:
        one.join(timeout=5)
    if rows:
        table(rows)
        records = records_of(rows, common.about(args.device))
        common.save(args.json.with_name(f"{args.json.stem}_records.json"), records)


if __name__ == "__main__":
    main()
