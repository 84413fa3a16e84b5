"""Model files of random weights for the GPU tests and benchmarks: NequIP's presets, r_max 5 A, types C and O.

python make_models.py FOLDER S M L      where nequip is installed, with CLEBSCH_LIBRARY and PYTHONPATH=src/python
"""

from __future__ import annotations

import sys
from pathlib import Path

from nequip.model import PresetNequIPGNNModel
from nequip.utils.global_state import set_global_state

from clebsch import export

set_global_state(allow_tf32=False)
for preset in sys.argv[2:]:
    model = PresetNequIPGNNModel(
        preset=preset, seed=1, model_dtype="float32", type_names=["C", "O"], r_max=5.0, avg_num_neighbors=90.0,
        per_type_energy_scales=1.0, per_type_energy_shifts=0.0,
    )  # fmt: skip
    path = Path(sys.argv[1]) / f"nequip-{preset}.pt"
    export.nequip(model, path)
    print(path, path.stat().st_size, "bytes", flush=True)
