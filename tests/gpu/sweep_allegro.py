"""Times an Allegro step on a GPU for several sizes of a chunk (CLEBSCH_CUDA_ALLEGRO).

python3 sweep_allegro.py [MODEL]
"""

from __future__ import annotations

import os
import sys

import torch
from model_cases import diamond, load

SIZES = (32768, 65536, 102400, 131072, 262144)


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else "allegro-l2"
    for label, structure in (("1000", diamond(5)), ("8000", diamond(10))):
        for edges in SIZES:
            os.environ["CLEBSCH_CUDA_ALLEGRO"] = f"edges={edges}"
            torch.cuda.empty_cache()
            model = load(name, "cuda", "float32")
            graph = structure.graph(model.r_max)
            for _ in range(3):
                model.compute(*graph)
            times = sorted(model.time_device(10) for _ in range(5))
            per_atom = 1e3 * times[2] / len(structure)
            print(f"{name} {label} atoms, chunks of {edges}: {times[2]:.3f} ms, {per_atom:.3f} us/atom", flush=True)
            del model
    return 0


if __name__ == "__main__":
    sys.exit(main())
