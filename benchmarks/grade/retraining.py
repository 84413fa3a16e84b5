"""Is a model that is trained on chosen structures better than one that is trained on as many at random?

    python benchmarks/grade/retraining.py MODEL.pt --json retraining.json [--seeds 3] [--epochs 8] [--count 20]

A small one of its kind: boxes of eight molecules, for two cores. MODEL.pt: the shipped NequIP water model
with a grade of its training set. The pool has 400 frames of the reference, 90% at 300 to 600 K, the rest at 900 to
2,000 K and at 1.6 g/cm^3. `count` of them, chosen or at random, are what the shipped weights are trained on for
`epochs` epochs by the recipe of examples/active_learning; one seed is one order of training and one random choice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from ase import Atoms

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples/active_learning"), str(ROOT / "src/python")]
import common  # noqa: E402
from active_learning import export_model, force_error, reference, retrain  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.selecting import choose_structures  # noqa: E402

EASY = ((300, 1.0), (450, 1.0), (600, 1.0))
HARD = ((900, 1.0), (1500, 1.0), (2000, 1.0), (600, 1.6))


def frames_of(states: tuple[tuple[int, float], ...], each: int, seed: int) -> list[Atoms]:
    return [f for k, (kelvin, density) in enumerate(states) for f in reference(kelvin, density, each, seed + k)]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("retraining.json"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    from nequip.utils.global_state import set_global_state

    set_global_state(allow_tf32=False)
    pool = frames_of(EASY, 120, 1000) + frames_of(HARD, 10, 2000)
    hard, easy = frames_of(HARD, 10, 3000), frames_of(EASY[:1], 15, 4000)
    bare = [frame.copy() for frame in pool]
    chosen = choose_structures(bare, args.model, args.count).structures
    print(f"chosen: {sum(k >= 360 for k in chosen)} of {args.count} are of the hard tenth", flush=True)
    rows = []

    def judge(name: str, seed: int, picked: list[int] | None) -> None:
        model = export_model.model()
        if picked is not None:
            retrain(model, [pool[k] for k in picked], args.epochs, seed)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pt"
            export.nequip(model, str(path), verify=False)
            row = {"name": name, "seed": seed, "hard": force_error(path, hard), "300 K": force_error(path, easy)}
        rows.append(row)
        print(row, flush=True)
        common.save(args.json, {"rows": rows, **common.about("cpu")})

    judge("before", 0, None)
    for seed in range(args.seeds):
        judge("chosen", seed, chosen)
        judge("random", seed, np.random.default_rng(seed).choice(len(pool), args.count, replace=False).tolist())
    for name in ("before", "chosen", "random"):
        mine = [row for row in rows if row["name"] == name]
        print(f"{name}: hard {np.mean([r['hard'] for r in mine]):.1f}, 300 K {np.mean([r['300 K'] for r in mine]):.1f} "
              "meV/A", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
