"""Would features of earlier layers make a better grade? The NequIP water model, layer by layer.

    python benchmarks/grade/layers.py FOLDER        structures and models as of `python benchmarks/grade FOLDER`

The layers of the model file are called one by one, with exact radial functions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import read

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/grade"), str(ROOT / "src/python")]
import torch  # noqa: E402
from quality import Fitted, Variant, auc, spearman  # noqa: E402

from clebsch import library  # noqa: E402
from clebsch.neighbours import NeighbourFinder  # noqa: E402

LAYERS, SCALARS, WRONG = 3, 64, 0.15
SETS = {"last": (2,), "second": (1,), "first": (0,), "last two": (1, 2), "all": (0, 1, 2)}
VARIANTS = (Variant("pooled"), Variant("pooled, ridge 1e-6", ridge=1e-6), Variant("an element each", per_element=True))


def features(model: torch.jit.ScriptModule, frames: list[Atoms]) -> np.ndarray:
    """Scalars of every layer (atoms, LAYERS * SCALARS)."""
    find, rows = NeighbourFinder(5.0), []
    for frame in frames:
        edges, n = find.find(frame.positions, frame.cell, frame.pbc), len(frame)
        types = torch.tensor(["OH".index(s) for s in frame.symbols], dtype=torch.int32)
        *lists, count, order = torch.ops.clebsch.edge_graph(edges.senders, edges.receivers, n, n, False)
        graph = [*lists, count.repeat(LAYERS), count]
        vectors, x, found = edges.vectors[order].contiguous(), model.embed(types), []
        with torch.no_grad():
            for k in range(LAYERS):
                x = getattr(model, f"layer_{k}")(x, vectors, types, graph)
                found.append(x[:, :SCALARS].double())
        rows.append(torch.cat(found, dim=1).numpy())
    return np.concatenate(rows)


def main() -> None:
    library.load()
    folder = Path(sys.argv[1])
    model = torch.jit.load(str(folder / "water-nequip.pt")).eval()
    frames = {sort: read(folder / f"{sort}.xyz", ":") for sort in ("train", "hard", "broken")}
    known = {sort: features(model, some) for sort, some in frames.items()}
    types = {sort: np.concatenate([[s == "H" for s in f.symbols] for f in some]).astype(np.int64)
             for sort, some in frames.items()}  # fmt: skip
    forces = np.load(folder / "water-nequip-hard-forces.npz")["forces"]
    error = np.linalg.norm(forces - np.concatenate([f.get_forces() for f in frames["hard"]]), axis=1)
    mean = lambda values: values.reshape(len(frames["hard"]), -1).mean(1)  # noqa: E731
    for name, layers in SETS.items():
        columns = np.concatenate([np.arange(SCALARS) + SCALARS * k for k in layers])
        some = {sort: rows[:, columns] for sort, rows in known.items()}
        for variant in VARIANTS:
            grade = Fitted(variant, some["train"], types["train"])
            most, hard = grade(some["train"], types["train"]).max(), grade(some["hard"], types["hard"])
            broken = grade(some["broken"], types["broken"]).reshape(len(frames["broken"]), -1).max(1)
            found = auc(hard, error > WRONG), spearman(mean(hard), mean(error**2)), (broken > most).mean()
            print(
                f"{name:10s} {variant.name:20s} auc {found[0]:.3f}  spearman {found[1]:.3f}  above {found[2]:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
