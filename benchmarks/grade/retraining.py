"""Is a model that is trained on chosen structures better than one that is trained on as many at random?

    python benchmarks/grade/retraining.py RETRAINING.npz --device cuda --json retraining.json [--fresh]
        [--arms old+random,old+doptimal,random,doptimal]

RETRAINING.npz: of pool.py, 200 structures of a pool of 4,000 by each choice. The shipped NequIP water weights are
trained on for 100 epochs, or with --fresh others at random are, always by one recipe: Adam down a cosine from 2e-3
(4e-3), squared errors of forces and of energies an atom, weights averaged. "old+": on 200 old structures too.
A seed is one order of training and one choice, where that has chance in it, and with --fresh the weights to begin
with. Runs are made side by side: by processes, and on a GPU, where a step is a graph, by several streams of a process.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / "benchmarks"),
    str(ROOT / "benchmarks/grade"),
    str(ROOT / "models/recipes/water-nequip"),
    str(ROOT / "src/python"),
]
import common  # noqa: E402
from boxes import Boxes, Data, joined, part  # noqa: E402

BATCH, TEST_BATCH = 40, 20  # structures
RATE, KEEP, CLIP = 2e-3, 0.995, 10.0
RUN_IN, RATED = 10, 50  # steps after which the time of a step is looked at


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

    def __init__(self, packed: Data, todo: list[tuple[str, int]], args: argparse.Namespace) -> None:
        self.packed, self.args = packed, args
        self.tests = {name: Boxes(part(packed, name), args.device, TEST_BATCH) for name in ("hard", "easy")}
        used = np.unique(np.concatenate([packed[f"choice/{arm.removeprefix('old+')}_{seed}"] for arm, seed in todo]))
        self.place = np.full(used.max() + 1, -1)
        self.place[used] = np.arange(len(used))
        self.old = part(packed, "old")
        self.pool = part({k: v[used] for k, v in packed.items() if k.startswith("pool/")}, "pool")
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
        self.begin, self.arm, self.name, self.shared = time.monotonic(), arm, f"{arm} {seed}", shared
        self.model, before = shared.model(seed)
        self.row: dict[str, Any] = {"arm": arm, "seed": seed, "fresh": args.fresh, "batch": args.batch}
        self.row |= {f"before_{name}": value for name, value in before.items()}
        picked = shared.place[packed[f"choice/{arm.removeprefix('old+')}_{seed}"]]
        chosen = {key: values[picked] for key, values in shared.pool.items()}
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
    wait: Callable[[], Any] = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    if args.device == "cuda":
        torch.cuda.set_device(place % torch.cuda.device_count())
    shared = Shared(dict(np.load(args.packed)), todo, args)
    for first in range(0, len(todo), args.together):
        runs = [Run(shared, arm, seed) for arm, seed in todo[first : first + args.together]]
        wait()  # the orders are read on other streams
        for one in train(runs, wait, args):
            results.put(None if one is None else one.finish())


def train(runs: list[Run], wait: Callable[[], Any], args: argparse.Namespace) -> Iterator[Run | None]:
    """A step of each in turn; gives every run that has ended, and None for one that is left out for want of time."""
    begin, last, step = time.monotonic(), max(one.steps for one in runs), 0
    arms, started = args.arms.split(","), begin
    while step < last:
        for one in runs:
            if step < one.steps:
                one.step(step)
        step += 1
        if step in (RUN_IN, RATED, last) or step % max(last // 5, 1) == 0:
            wait()
            now = time.monotonic()
            begin = now if step == RUN_IN else begin
            said = ", ".join(f"{one.name} {1e3 * float(one.train.loss) ** 0.5:.0f}" for one in runs)
            print(f"step {step} of {last}, {now - started:.0f} s; last losses, meV/A: {said}", flush=True)
        if step == RATED:
            each = (time.monotonic() - begin) / (RATED - RUN_IN) / len(runs)
            print(f"{1e3 * each:.2f} ms a step of a run", flush=True)
            # The arms that are named last go first.
            for arm in reversed(arms[1:]):
                if each * sum(one.steps - step for one in runs) < args.until - time.monotonic():
                    break
                yield from (None for one in runs if one.arm == arm)
                runs = [one for one in runs if one.arm != arm]
        ended = [one for one in runs if one.steps == step]
        if ended:
            wait()
            yield from ended


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
            label = f"grade_retraining_{start}_{name}_{arm.translate(str.maketrans('+-', '__'))}"
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
    parser.add_argument("--seconds", type=float, default=1e9, help="for all; arms are left out, the last first")
    parser.add_argument("--fresh", action="store_true", help="train from random weights")
    parser.add_argument("--json", type=Path, default=Path("retraining.json"))
    args = parser.parse_args()
    args.until = time.monotonic() + args.seconds
    todo = [(arm, seed) for seed in range(args.seeds) for arm in args.arms.split(",")]
    todo += [(arm, 0) for arm in args.once.split(",") if arm]
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=worker, args=(k, todo[k :: args.workers], args, results))
               for k in range(min(args.workers, len(todo)))]  # fmt: skip
    for one in workers:
        one.start()
    rows: list[dict[str, Any]] = []
    left_out = 0
    while len(rows) + left_out < len(todo):
        try:
            found = results.get(timeout=5)
        except Exception:  # nothing came: are they alive?
            if any(one.exitcode not in (None, 0) for one in workers) or not any(one.is_alive() for one in workers):
                print("a run ended without a result", flush=True)
                break
            continue
        if found is None:
            left_out += 1
            continue
        rows.append(found)
        print({k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()}, flush=True)
        common.save(args.json, {"rows": rows, "epochs": args.epochs, **common.about(args.device)})
    for one in workers:
        one.join(timeout=5)
    if rows:
        table(rows)
        records = records_of(rows, common.about(args.device))
        common.save(args.json.with_name(f"{args.json.stem}_records.json"), records)


if __name__ == "__main__":
    main()
