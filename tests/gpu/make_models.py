"""Model files of random weights for the GPU tests and benchmarks, r_max 5 A, types C and O: NequIP's presets, and
Allegro with the sizes of its tutorial, l_max 1 or 2.

python make_models.py FOLDER S M L allegro-l1 allegro-l2      where nequip (and nequip-allegro) are installed, with
CLEBSCH_LIBRARY and PYTHONPATH=src/python
"""

from __future__ import annotations

import sys
from pathlib import Path

from nequip.model import PresetNequIPGNNModel
from nequip.utils.global_state import set_global_state

from clebsch import export

set_global_state(allow_tf32=False)
COMMON = dict(
    seed=1, model_dtype="float32", type_names=["C", "O"], r_max=5.0, avg_num_neighbors=90.0,
    per_type_energy_scales=1.0, per_type_energy_shifts=0.0,
)  # fmt: skip


def allegro(l_max: int):
    from allegro.model import AllegroModel

    return AllegroModel(
        l_max=l_max, num_layers=2, num_scalar_features=64, num_tensor_features=32,
        radial_chemical_embed={"_target_": "allegro.nn.TwoBodyBesselScalarEmbed", "num_bessels": 8},
        scalar_embed_mlp_hidden_layers_depth=1, scalar_embed_mlp_hidden_layers_width=64,
        allegro_mlp_hidden_layers_depth=1, allegro_mlp_hidden_layers_width=64,
        readout_mlp_hidden_layers_depth=1, readout_mlp_hidden_layers_width=32, **COMMON,
    )  # fmt: skip


for name in sys.argv[2:]:
    path = Path(sys.argv[1]) / f"{name if name.startswith('allegro') else 'nequip-' + name}.pt"
    if name.startswith("allegro-l"):
        export.allegro(allegro(int(name[len("allegro-l") :])), path)
    else:
        export.nequip(PresetNequIPGNNModel(preset=name, **COMMON), path)
    print(path, path.stat().st_size, "bytes", flush=True)
