"""A stack of four pair blocks learns all distances of a water cluster from a quarter of them.

  python train.py [--device cpu] [--steps 160] [--atoms 32] [--width 64] [--batch 4] [--out OUT]

A pair tensor (atoms, atoms, width) starts from a quarter of the distances, which of them are known, and elements. A
block adds the triangle multiplicative update outgoing, incoming, and two layers a pair: distances of one triangle say
something about the third, so this is the operator's own ground. Clusters are cut from the shipped box of water
(examples/water_box); those of another box (benchmarks/md/water192_settled.data) are never trained on.

The same stack, start and data train twice: with clebsch.triangle and with torch's composition of the same formulas.
On a GPU both run under autocast to bfloat16. Prints losses, times of a step and errors on the other box; writes
OUT/pair_stack.json and OUT/pair_stack.png.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from clebsch.triangle import TriangleMultiplicativeUpdate, triangle_multiplicative_update_reference
from clebsch.triangle.module import boltz_weights

ROOT = Path(__file__).resolve().parents[2]
BLOCKS, KNOWN, CENTRES = 4, 0.25, torch.linspace(0.5, 12.0, 24)


class Composed(TriangleMultiplicativeUpdate):
    """The same module of torch's operations."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return triangle_multiplicative_update_reference(x, self.direction, mask, **boltz_weights(self), eps=self.eps)


class Stack(nn.Module):
    def __init__(self, width: int, update: type[TriangleMultiplicativeUpdate]) -> None:
        super().__init__()
        self.embed = nn.Linear(len(CENTRES) + 6, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "outgoing": update(width, direction="outgoing"),
                    "incoming": update(width, direction="incoming"),
                    "transition": nn.Sequential(
                        nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
                    ),
                }
            )
            for _ in range(BLOCKS)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """(batch, n, n, features), pairs that exist (batch, n, n) to distances in Angstrom."""
        z = self.embed(features)
        for block in self.blocks:
            z = z + block["outgoing"](z, mask)
            z = z + block["incoming"](z, mask)
            z = z + block["transition"](z)
        out = self.head(z)[..., 0].float()
        return 5 + out + out.transpose(1, 2)


class Box:
    """A periodic box of water out of a LAMMPS data file (atom_style atomic)."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text().splitlines()
        self.side = next(float(line.split()[1]) for line in lines if line.endswith("xlo xhi"))
        first = next(at for at, line in enumerate(lines) if line.startswith("Atoms")) + 2
        count = next(int(line.split()[0]) for line in lines if line.endswith(" atoms"))
        rows = [line.split() for line in lines[first : first + count]]
        self.kinds = torch.tensor([int(row[1]) - 1 for row in rows])
        self.places = torch.tensor([[float(x) for x in row[2:5]] for row in rows], dtype=torch.float64)

    def clusters(self, batch: int, atoms: int, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features (batch, atoms, atoms, ..), pairs that exist, distances, pairs to be found; clusters of 3/4 of
        `atoms` to all of them, which the arrays are padded to."""
        features = torch.zeros(batch, atoms, atoms, len(CENTRES) + 6)
        mask, wanted = (torch.zeros(batch, atoms, atoms, dtype=torch.bool) for _ in range(2))
        distances = torch.zeros(batch, atoms, atoms)
        for at in range(batch):
            centre = torch.rand(3, generator=random, dtype=torch.float64) * self.side
            away = self.places - centre
            away -= self.side * (away / self.side).round()
            n = int(torch.randint(atoms * 3 // 4, atoms + 1, (1,), generator=random))
            near = away.norm(dim=1).argsort()[:n]
            places = away[near] + 0.05 * torch.randn(n, 3, generator=random, dtype=torch.float64)
            apart = torch.cdist(places, places).float()
            known = torch.rand(n, n, generator=random).triu(1)
            known = (known + known.T < KNOWN) | torch.eye(n, dtype=torch.bool)
            kinds = torch.nn.functional.one_hot(self.kinds[near], 2).float()
            basis = torch.exp(-((apart[..., None] - CENTRES) ** 2) / 0.5) * known[..., None]
            features[at, :n, :n] = torch.cat(
                (
                    basis,
                    known[..., None].float(),
                    torch.eye(n)[..., None],
                    kinds[:, None].expand(n, n, 2),
                    kinds[None].expand(n, n, 2),
                ),
                -1,
            )
            mask[at, :n, :n], wanted[at, :n, :n], distances[at, :n, :n] = True, ~known, apart
        return features, mask, distances, wanted


def train(name: str, model: Stack, boxes: tuple[Box, Box], args: argparse.Namespace) -> dict:
    random = torch.Generator().manual_seed(2)
    device = torch.device(args.device)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    half = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()

    def error(box: Box, seed: int) -> tuple[float, Tensor, Tensor]:
        features, mask, distances, wanted = box.clusters(
            4 * args.batch, args.atoms, torch.Generator().manual_seed(seed)
        )
        with torch.no_grad(), half:
            found = torch.cat(
                [
                    model(f.to(device), m.to(device))
                    for f, m in zip(features.split(args.batch), mask.split(args.batch), strict=True)
                ]
            )
        found = found.cpu()[wanted]
        return (found - distances[wanted]).abs().mean().item(), found, distances[wanted]

    before = error(boxes[1], 3)[0]
    losses, times = [], []
    for step in range(args.steps):
        features, mask, distances, wanted = (t.to(device) for t in boxes[0].clusters(args.batch, args.atoms, random))
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with half:
            found = model(features, mask)
        loss = torch.nn.functional.smooth_l1_loss(found[wanted], distances[wanted], beta=0.5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())  # waits for the device
        times.append(time.perf_counter() - begin)
        if (step + 1) % max(args.steps // 8, 1) == 0:
            print(f"{name:8} step {step + 1:4d}  loss {losses[-1]:.4f}", flush=True)
    after, found, true = error(boxes[1], 3)
    return {"name": name, "losses": losses, "ms": 1e3 * sorted(times)[len(times) // 2], "before": before,
            "after": after, "found": found[::7].tolist(), "true": true[::7].tolist()}  # fmt: skip


def picture(path: Path, runs: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for run, style in zip(runs, ("-", "--"), strict=True):
        left.plot(run["losses"], style, label=run["name"])
    left.set(xlabel="step", ylabel="loss", yscale="log", title="The same curve")
    left.legend()
    right.plot(runs[0]["true"], runs[0]["found"], ".", markersize=1)
    right.axline((2, 2), slope=1, color="black", linewidth=0.5)
    right.set(xlabel="distance / Angstrom", ylabel="found / Angstrom", title="Distances not given, another box")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="160; on a GPU 600")
    parser.add_argument("--atoms", type=int, help="of a cluster at most (32; on a GPU 128)")
    parser.add_argument("--width", type=int, help="channels of a pair (64; on a GPU 128)")
    parser.add_argument("--batch", type=int, help="clusters of a step (4)")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--draw", type=Path, metavar="JSON", help="only draw what another run wrote")
    args = parser.parse_args()
    if args.draw:
        return picture(args.out / "pair_stack.png", json.loads(args.draw.read_text()))
    for name, small, large in (("steps", 160, 600), ("atoms", 32, 128), ("width", 64, 128), ("batch", 4, 4)):
        setattr(args, name, getattr(args, name) or (large if args.device.startswith("cuda") else small))
    args.out.mkdir(parents=True, exist_ok=True)
    boxes = Box(ROOT / "examples/water_box/water.data"), Box(ROOT / "benchmarks/md/water192_settled.data")
    torch.manual_seed(1)
    start = Stack(args.width, TriangleMultiplicativeUpdate)
    runs = []
    for name, update in (("clebsch", TriangleMultiplicativeUpdate), ("torch", Composed)):
        model = Stack(args.width, update)
        model.load_state_dict(start.state_dict())
        runs.append(train(name, model.to(args.device), boxes, args))
    worst = max(abs(a / b - 1) for a, b in zip(runs[0]["losses"], runs[1]["losses"], strict=True))
    for run in runs:
        print(f"{run['name']:8} {run['ms']:8.2f} ms a step, mean error {run['before']:.2f} Angstrom before and "
              f"{run['after']:.3f} after {args.steps} steps")  # fmt: skip
    ratio = runs[1]["ms"] / runs[0]["ms"]
    print(f"losses differ by {100 * worst:.2g}% at most; a step takes {ratio:.2f} times as long by torch")
    (args.out / "pair_stack.json").write_text(json.dumps(runs))
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is not installed; --draw makes one of pair_stack.json where it is")
    else:
        picture(args.out / "pair_stack.png", runs)


if __name__ == "__main__":
    main()
