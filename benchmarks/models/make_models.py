"""Model files of random weights for the GPU tests and benchmarks, r_max 5 A, types C and O: NequIP's presets, and
Allegro with the sizes of its tutorial, l_max 1 or 2.

python benchmarks/models/make_models.py FOLDER S M L allegro-l1 allegro-l2      with CLEBSCH_LIBRARY, where nequip (and
nequip-allegro) are installed
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402, F401 - finds clebsch
from nequip.model import PresetNequIPGNNModel  # noqa: E402
from nequip.utils.global_state import set_global_state  # noqa: E402

COMMON = dict(
    seed=1, model_dtype="float32", type_names=["C", "O"], r_max=5.0, avg_num_neighbors=90.0,
    per_type_energy_scales=1.0, per_type_energy_shifts=0.0,
)  # fmt: skip


def upstream(name: str):
    """Upstream's model of a name as above, with random weights of one seed."""
    if not name.startswith("allegro-l"):
        return PresetNequIPGNNModel(preset=name, **COMMON)
    from allegro.model import AllegroModel

    return AllegroModel(
        l_max=int(name[len("allegro-l") :]), num_layers=2, num_scalar_features=64, num_tensor_features=32,
        radial_chemical_embed={"_target_": "allegro.nn.TwoBodyBesselScalarEmbed", "num_bessels": 8},
        scalar_embed_mlp_hidden_layers_depth=1, scalar_embed_mlp_hidden_layers_width=64,
        allegro_mlp_hidden_layers_depth=1, allegro_mlp_hidden_layers_width=64,
        readout_mlp_hidden_layers_depth=1, readout_mlp_hidden_layers_width=32, **COMMON,
    )  # fmt: skip


def main() -> None:
    """Command line."""
    from clebsch import export

    set_global_state(allow_tf32=False)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        allegro = name.startswith("allegro-l")
        path = folder / f"{name if allegro else 'nequip-' + name}.pt"
        (export.allegro if allegro else export.nequip)(upstream(name), path)
        print(path, path.stat().st_size, "bytes", flush=True)


if __name__ == "__main__":
    main()
