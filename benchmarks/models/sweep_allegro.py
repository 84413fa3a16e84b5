"""Times an Allegro step on a GPU for the paths of its matrix products and several sizes of a chunk
(CLEBSCH_CUDA_ALLEGRO).

python benchmarks/models/sweep_allegro.py [MODEL]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402, F401 - finds model_cases
from model_cases import diamond, load  # noqa: E402

SIZES = {"64": (131072,), "1000": (65536, 131072), "8000": (65536, 102400, 122880, 131072, 262144)}
STRUCTURES = {"64": diamond(2), "1000": diamond(5), "8000": diamond(10)}


def measure(name: str, label: str, option: str) -> str:
    os.environ["CLEBSCH_CUDA_ALLEGRO"] = option
    torch.cuda.empty_cache()
    structure = STRUCTURES[label]
    model = load(name, "cuda", "float32")
    graph = structure.graph(model.r_max)
    for _ in range(3):
        model.compute(*graph)
    times = sorted(model.time_device(10) for _ in range(5))
    return f"{times[2]:.3f} ms, {1e3 * times[2] / len(structure):.3f} us/atom"


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else "allegro-l2"
    failed = 0
    for label, sizes in SIZES.items():
        for edges in sizes:
            for dense in ("tiles", "tf32x3", "tf32x3,split=0", "tf32x3,depth=16"):
                try:
                    text = measure(name, label, f"edges={edges},dense={dense}")
                except Exception as error:
                    failed, text = 1, f"FAILED {error}"
                print(f"{name} {label} atoms, chunks of {edges}, dense={dense}: {text}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
