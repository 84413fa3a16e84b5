"""A process that runs one step of a model on the GPU and prints how long it took (test_compile.py, first_step.py).

one_step.py MODEL.pt '{"dtype": "float64"}'      options of clebsch.runtime.Model; CLEBSCH_CACHE_DIR names the cache
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/python"))

from clebsch.runtime import Model  # noqa: E402


def cluster(model: Model, atoms: int = 40):
    """Edges (any order) and types of atoms at random in an open box."""
    random = torch.Generator().manual_seed(1)
    positions = torch.rand(atoms, 3, generator=random, dtype=torch.float64) * 9.0
    vectors = positions[None, :] - positions[:, None]
    distance = vectors.norm(dim=2)
    receivers, senders = torch.nonzero((distance < model.r_max) & (distance > 0), as_tuple=True)
    types = torch.randint(len(model.type_names), (atoms,), generator=random)
    return vectors[receivers, senders].contiguous(), types, receivers, senders


def main(path: str, options: str) -> None:
    """From a loaded torch with a CUDA context to the end of the first step."""
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    model = Model(path, device="cuda", **json.loads(options))
    loaded = time.perf_counter()
    forces = model.compute(*cluster(model), virial=True)["forces"]
    end = time.perf_counter()
    print(json.dumps({"load_s": loaded - start, "first_s": end - start, "finite": bool(forces.isfinite().all())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
