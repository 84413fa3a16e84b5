"""Every option of nequip that the exporter has, as builder arguments. One name a case; tests are generated from it."""

from __future__ import annotations

TYPES = ["O", "H", "C"]
ZBL = {"_target_": "nequip.nn.pair_potential.ZBL", "units": "metal", "chemical_species": TYPES}
#: Random networks give small energies; this makes forces of about 1 eV/A.
SCALES = {"O": 6.0, "H": 4.0, "C": 5.0}
SMALL = dict(l_max=1, parity=False, num_features=8, num_layers=2, radial_mlp_width=16, per_type_energy_scales=SCALES)


def small(**options) -> dict:
    return {**SMALL, **options}


CASES: dict[str, dict] = {
    "preset-S": dict(kind="Preset", preset="S", per_type_energy_scales=SCALES),
    "preset-M": dict(kind="Preset", preset="M", per_type_energy_scales=SCALES),
    "preset-L": dict(kind="Preset", preset="L", per_type_energy_scales=SCALES),
    "preset-XL": dict(kind="Preset", preset="XL", per_type_energy_scales=SCALES),
    "lmax-0": small(l_max=0),
    "lmax-1-parity": small(parity=True),
    "lmax-2-parity": small(l_max=2, parity=True, num_features=[8, 6, 4], num_layers=3),
    "lmax-3": small(l_max=3, num_features=[8, 4, 4, 2]),
    "lmax-3-parity": small(l_max=3, parity=True, num_features=[8, 4, 4, 2], num_layers=3),
    "lmax-4": small(l_max=4, num_features=[8, 4, 4, 2, 3]),
    "one-layer": small(num_layers=1),
    "odd-features": small(l_max=2, num_features=[5, 3, 7], num_layers=3),
    "neighbours-per-type": small(avg_num_neighbors={"O": 10.0, "H": 20.0, "C": 5.0}),
    "cutoffs-per-edge-type": small(per_edge_type_cutoff={"H": 3.0, "O": {"H": 2.6, "C": 3.7}}),
    "no-scales": {k: v for k, v in small(l_max=2).items() if k != "per_type_energy_scales"},
    "scalar-scale-and-shift": small(per_type_energy_scales=5.0, per_type_energy_shifts=-3.5),
    "shifts-per-type": small(per_type_energy_shifts={"O": -432.1, "H": -13.6, "C": 1.5}),
    "trained-scales-and-shifts": small(
        per_type_energy_scales_trainable=True, per_type_energy_shifts=-1.0, per_type_energy_shifts_trainable=True
    ),
    "zbl": small(pair_potential=ZBL),
    "zbl-cutoffs": small(
        pair_potential={**ZBL, "polynomial_cutoff_p": 4.0}, per_edge_type_cutoff={"H": 3.0, "O": {"H": 2.6, "C": 3.7}}
    ),
    "radial-depth-0": small(radial_mlp_depth=0),
    "radial-depth-3": small(radial_mlp_depth=3, radial_mlp_width=20),
    "type-embedding-size": small(type_embed_num_features=5),
    "bessel": small(num_bessels=6, bessel_trainable=True, polynomial_cutoff_p=4),
    "readout-depth-1": small(readout_mlp_hidden_layers_depth=1),
    "readout-depth-2": small(readout_mlp_hidden_layers_depth=2, readout_mlp_hidden_layers_width=9),
    "readout-linear-depth-2": small(readout_mlp_hidden_layers_depth=2, readout_mlp_nonlinearity=None),
    "no-self-connection": dict(
        kind="Full",
        radial_mlp_depth=[1, 1],
        radial_mlp_width=[8, 12],
        feature_irreps_hidden=["6x0e+3x1o", "4x0e"],
        irreps_edge_sh="0e+1o",
        type_embed_num_features=4,
        convnet_sc=False,
        per_type_energy_scales=SCALES,
    ),
    "layers-that-differ": dict(
        kind="Full",
        radial_mlp_depth=[1, 2, 1],
        radial_mlp_width=[8, 12, 6],
        feature_irreps_hidden=["6x0e+2x0o+3x1o+3x1e", "4x0e+2x2e+5x1o", "7x0e"],
        irreps_edge_sh="0e+1o+2e",
        type_embed_num_features=4,
        per_type_energy_scales=SCALES,
    ),
}

#: One case of every kind of code path, where testing all would only take longer.
CHOSEN = ["preset-M", "lmax-2-parity", "neighbours-per-type", "zbl-cutoffs"]
