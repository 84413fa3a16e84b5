"""Every option of nequip-allegro that the exporter has, as builder arguments, and building them. nequip-allegro is in
the tests' own environment (scripts/requirements-test.txt) or in the folder CLEBSCH_ALLEGRO_PATH."""

from __future__ import annotations

import os
import sys
import warnings

import pytest
import torch
from nequip.utils.global_state import global_state_initialized, set_global_state

import cases
import upstream

if "CLEBSCH_ALLEGRO_PATH" in os.environ:
    sys.path.append(os.environ["CLEBSCH_ALLEGRO_PATH"])

BESSEL = {"_target_": "allegro.nn.TwoBodyBesselScalarEmbed", "num_bessels": 8}
SPLINE = {"_target_": "allegro.nn.TwoBodySplineScalarEmbed", "num_splines": 8, "spline_span": 6}
CUTOFFS = {"H": 3.0, "O": {"H": 2.6, "C": 3.7}}
SCALES = {"O": 12.0, "H": 8.0, "C": 10.0}
SMALL = dict(
    l_max=1,
    radial_chemical_embed=BESSEL,
    num_layers=2,
    num_scalar_features=12,
    num_tensor_features=6,
    scalar_embed_mlp_hidden_layers_width=16,
    allegro_mlp_hidden_layers_width=16,
    readout_mlp_hidden_layers_width=8,
    per_type_energy_scales=SCALES,
)


def small(**options) -> dict:
    return {**SMALL, **options}


CASES: dict[str, dict] = {
    "tutorial": small(
        l_max=2,
        num_scalar_features=64,
        num_tensor_features=32,
        scalar_embed_mlp_hidden_layers_width=64,
        allegro_mlp_hidden_layers_width=64,
        readout_mlp_hidden_layers_width=32,
    ),
    "lmax-0": small(l_max=0),
    "lmax-1": small(),
    "lmax-1-even": small(parity=False),
    "lmax-2-parity-3-layers": small(l_max=2, num_layers=3),
    "lmax-2-even-3-layers": small(l_max=2, parity=False, num_layers=3),
    "lmax-3": small(l_max=3),
    "lmax-3-parity-3-layers": small(l_max=3, num_layers=3, num_tensor_features=4),
    "lmax-4": small(l_max=4, num_tensor_features=4),
    "one-layer": small(num_layers=1),
    "one-layer-lmax-3": small(num_layers=1, l_max=3),
    "spline": small(radial_chemical_embed=SPLINE),
    "spline-lmax-2": small(radial_chemical_embed={**SPLINE, "num_splines": 16, "spline_span": 12}, l_max=2),
    "no-path-channel-coupling": small(l_max=2, tp_path_channel_coupling=False),
    "neighbours-per-type": small(avg_num_neighbors={"O": 10.0, "H": 20.0, "C": 5.0}),
    "cutoffs-per-edge-type": small(per_edge_type_cutoff=CUTOFFS),
    "zbl": small(pair_potential=cases.ZBL),
    "zbl-spline-cutoffs": small(
        pair_potential={**cases.ZBL, "polynomial_cutoff_p": 4.0},
        per_edge_type_cutoff=CUTOFFS,
        radial_chemical_embed=SPLINE,
    ),
    "shifts": small(per_type_energy_shifts={"O": -432.1, "H": -13.6, "C": 1.5}),
    "scalar-scale-and-shift": small(per_type_energy_scales=9.0, per_type_energy_shifts=-3.5),
    "bessel": small(
        radial_chemical_embed={**BESSEL, "num_bessels": 6, "bessel_trainable": True, "polynomial_cutoff_p": 4}
    ),
    "embedding-size": small(radial_chemical_embed_dim=10),
    "deep": small(
        scalar_embed_mlp_hidden_layers_depth=2, allegro_mlp_hidden_layers_depth=2, readout_mlp_hidden_layers_depth=2
    ),
    "shallow": small(
        scalar_embed_mlp_hidden_layers_depth=0, allegro_mlp_hidden_layers_depth=0, readout_mlp_hidden_layers_depth=0
    ),
    "linear": small(
        scalar_embed_mlp_nonlinearity=None, allegro_mlp_nonlinearity=None, readout_mlp_nonlinearity=None, l_max=2
    ),
    "odd-sizes": small(
        l_max=2,
        radial_chemical_embed_dim=14,
        num_scalar_features=13,
        num_tensor_features=5,
        allegro_mlp_hidden_layers_width=19,
    ),
    "weights-for-all-degrees": small(kind="Full", weight_individual_irreps=False),
    # Options together, where one might forget another.
    "water-recipe": small(parity=False, num_layers=1, l_max=2, num_scalar_features=32, num_tensor_features=16),
    "lmax-3-even-3-layers": small(l_max=3, parity=False, num_layers=3, num_tensor_features=4),
    "spline-no-coupling-lmax-3": small(radial_chemical_embed=SPLINE, tp_path_channel_coupling=False, l_max=3),
    "all-at-once-3-layers": small(
        l_max=2,
        num_layers=3,
        avg_num_neighbors={"O": 10.0, "H": 20.0, "C": 5.0},
        per_edge_type_cutoff=CUTOFFS,
        per_type_energy_shifts={"O": -432.1, "H": -13.6, "C": 1.5},
        pair_potential=cases.ZBL,
        tp_path_channel_coupling=False,
    ),
}

#: One case of every kind of code path, where testing all would only take longer.
CHOSEN = ["lmax-2-parity-3-layers", "zbl-spline-cutoffs", "neighbours-per-type"]


def require_allegro() -> None:
    """Skips where nequip-allegro is missing; fails where the build runs the tests, which must have it."""
    try:
        import allegro.model  # noqa: F401
    except ImportError as error:
        message = f"nequip-allegro cannot be imported ({error}): scripts/test installs it"
        if "CLEBSCH_LIBRARY" in os.environ:
            pytest.fail(message)
        pytest.skip(message)


def build(name: str, dtype: str = "float64", **options) -> torch.nn.Module:
    """The upstream model of a case with random weights."""
    require_allegro()
    from allegro.model.allegro_models import AllegroModel, FullAllegroModel

    if not global_state_initialized():
        set_global_state(allow_tf32=False)
    settings = dict(seed=7, model_dtype=dtype, type_names=cases.TYPES, r_max=upstream.R_MAX, avg_num_neighbors=12.0)
    settings.update(CASES[name], **options)
    builder = AllegroModel
    if settings.pop("kind", "") == "Full":
        builder = FullAllegroModel
        harmonics = "+".join(f"{n}{'eo'[n % 2]}" for n in range(settings.pop("l_max") + 1))
        settings.update(irreps_edge_sh=harmonics, tensor_track_allowed_irreps=harmonics)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return builder(**settings).eval()
