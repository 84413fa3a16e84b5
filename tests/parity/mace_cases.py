"""Small random MACE models, one for every option that the exporter reads. Imported where mace-torch is."""

from __future__ import annotations

from typing import Any

import mace  # noqa: F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
import numpy as np
import torch
from e3nn import o3
from mace import modules

RESIDUAL, AGNOSTIC = "RealAgnosticResidualInteractionBlock", "RealAgnosticInteractionBlock"
DENSITY, DENSITY_RESIDUAL = "RealAgnosticDensityInteractionBlock", "RealAgnosticDensityResidualInteractionBlock"
NONLINEAR = "RealAgnosticResidualNonLinearInteractionBlock"

#: What MACE-MPA, OMAT and MATPES models combine. Elements large enough for ZBL's cutoffs to reach their neighbours.
MPA = {
    "first": DENSITY,
    "later": DENSITY_RESIDUAL,
    "distance_transform": "Agnesi",
    "pair_repulsion": True,
    "elements": [8, 14, 29],
}

#: The elements of the models trained on the Materials Project.
ALL_89 = [z for z in range(1, 95) if z not in (84, 85, 86, 87, 88)]

#: name -> what differs from the common case. The first few are what ctest runs; the others on request.
CASES: dict[str, dict[str, Any]] = {
    "residual": {},
    "agnostic-first": {"first": AGNOSTIC, "hidden": "6x0e+6x1o+6x2e", "correlation": 2},
    "heads-float32": {"heads": ["a", "b"], "dtype": torch.float32},
    "three-layers": {"layers": 3, "correlation": [3, 2, 1], "max_ell": 3},
    "plain-mace": {"kind": "MACE", "first": AGNOSTIC},
    "one-layer": {"layers": 1},
    "agnostic-all": {"first": AGNOSTIC, "later": AGNOSTIC},
    "scalars-only": {"hidden": "8x0e"},
    "hidden-to-l2": {"hidden": "4x0e+4x1o+4x2e", "max_ell": 3},
    "max-ell-1": {"max_ell": 1},
    "max-ell-3": {"max_ell": 3},
    "correlation-1": {"correlation": 1},
    "correlation-4": {"correlation": 4, "hidden": "4x0e", "max_ell": 1},
    "one-element": {"elements": [6]},
    "five-elements": {"elements": [1, 6, 7, 8, 16]},
    "keep-last-layer": {"keep_last_layer_irreps": True},
    "last-readout-only": {"use_last_readout_only": True, "readout_scale": 400.0},
    "agnostic-product": {"use_agnostic_product": True},
    "so3": {"use_so3": True, "hidden": "5x0e+5x1e"},
    "edge-irreps": {"edge_irreps": "4x0e+4x1o", "hidden": "6x0e+6x1o"},
    "edge-irreps-first": {"edge_irreps": "4x0e+4x1o", "hidden": "6x0e+6x1o", "use_edge_irreps_first": True},
    "radial-wide": {"radial_MLP": [16, 12, 8, 8]},
    "radial-one-layer": {"radial_MLP": [24]},
    "bessel-10-p6": {"num_bessel": 10, "num_polynomial_cutoff": 6},
    "short-cutoff": {"r_max": 2.6},
    "long-cutoff": {"r_max": 5.5},
    "readout-wide": {"mlp": "32x0e"},
    "full-cg": {"use_reduced_cg": False},
    "heads-three": {"heads": ["pt", "mp", "x"], "head": "mp", "hidden": "6x0e+6x1o"},
    "heads-one-layer": {"heads": ["a", "b"], "layers": 1},
    "float32": {"dtype": torch.float32},
    "drop-elements": {"elements": [1, 6, 7, 8, 16], "keep": ["C", "O"]},
    "mpa": MPA,
    "density-residual": {"first": DENSITY_RESIDUAL, "later": DENSITY_RESIDUAL},
    "density-first": {"first": DENSITY},
    "agnesi": {"distance_transform": "Agnesi"},
    "soft": {"distance_transform": "Soft"},
    "gaussian": {"radial_type": "gaussian", "num_bessel": 12},
    "gaussian-soft": {"radial_type": "gaussian", "num_bessel": 12, "distance_transform": "Soft"},
    "late-cutoff": {"apply_cutoff": False},
    "late-cutoff-density-agnesi": {**MPA, "apply_cutoff": False},
    "zbl": {"pair_repulsion": True, "elements": [8, 14]},
    "zbl-plain-mace": {"pair_repulsion": True, "kind": "MACE", "elements": [8, 29]},
    "nonlinear": {"first": NONLINEAR, "later": NONLINEAR, "apply_cutoff": False},
    "nonlinear-later": {"later": NONLINEAR, "apply_cutoff": False, "elements": [1, 6, 8]},
    "nonlinear-first-agnesi": {"first": NONLINEAR, "apply_cutoff": False, "distance_transform": "Agnesi"},
    "nonlinear-early-cutoff": {"first": NONLINEAR, "later": NONLINEAR, "edge_irreps": "4x0e+4x1o"},
    "mpa-float32": {**MPA, "dtype": torch.float32},
    "mpa-heads": {**MPA, "heads": ["a", "b"]},
    "mpa-drop": {**MPA, "keep": ["Cu", "O"]},
    "nonlinear-drop": {
        "first": NONLINEAR,
        "later": NONLINEAR,
        "apply_cutoff": False,
        "elements": [1, 6, 8],
        "keep": ["O", "C"],
    },
    "drop-agnostic": {"elements": [1, 6, 8], "keep": ["O"], "first": AGNOSTIC},
    "max-ell-4": {"max_ell": 4, "hidden": "4x0e+4x1o", "correlation": 2},
    "hidden-both-parities": {"hidden": "4x0e+4x0o+4x1e+4x1o", "correlation": 2},
    "correlation-4-vectors": {"correlation": 4, "hidden": "4x0e+4x1o", "max_ell": 1},
    "four-layers": {"layers": 4, "hidden": "4x0e+4x1o", "correlation": 2},
    "bessel-trained": {"trained": ("bessel_weights",)},
    "gaussian-trained": {"radial_type": "gaussian", "num_bessel": 12, "trained": ("gaussian_weights",)},
    "agnesi-trained": {"distance_transform": "Agnesi", "trained": ("distance_transform.a", "distance_transform.q")},
    "soft-trained": {"distance_transform": "Soft", "trained": ("distance_transform.alpha",)},
    "zbl-trained": {"pair_repulsion": True, "elements": [14, 29], "trained": ("a_exp", "a_prefactor")},
    "converted": {"pair_repulsion": True, "elements": [8, 14], "hidden": "4x0e+4x1o", "max_ell": 1, "correlation": 2},
    "elements-89": {**MPA, "elements": ALL_89, "hidden": "4x0e+4x1o", "keep": ["O", "Si", "Cu"]},
}
#: What the exporter refuses, by the option that it names.
REFUSED: dict[str, dict[str, Any]] = {
    "RealAgnosticAttResidualInteractionBlock": {"later": "RealAgnosticAttResidualInteractionBlock"},
    "radial_type": {"radial_type": "chebyshev"},
    "gate": {"gate": torch.tanh},
    "embedding_specs": {
        "embedding_specs": {
            "total_charge": {"type": "continuous", "in_dim": 1, "emb_dim": 4, "per": "graph"},
        },
    },
}
#: Models of other classes: refused by the class's name, before anything of them is read.
OTHER_MODELS = ("AtomicDipolesMACE", "AtomicDielectricMACE", "EnergyDipolesMACE", "MACELES", "PolarMACE")
#: Those that `scripts/test` runs.
QUICK = (
    "mpa",
    "nonlinear-later",
    "gaussian-soft",
    "residual",
    "agnostic-first",
    "heads-float32",
    "three-layers",
    "drop-elements",
    "last-readout-only",
    "plain-mace",
    "so3",
    "edge-irreps",
    "agnostic-product",
    "keep-last-layer",
    "correlation-4-vectors",
    "density-residual",
    "late-cutoff",
    "zbl",
    "radial-wide",
)


def model_of(name: str, seed: int = 1) -> torch.nn.Module:
    """The random model of a case."""
    options = dict(CASES[name] if name in CASES else REFUSED[name])
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(options.get("dtype", torch.float64))
    try:
        model = _build(options).eval()
    finally:
        torch.set_default_dtype(before)
    # Random weights give forces of meV/A, which are no measure of a relative error.
    with torch.no_grad():
        for readout in model.readouts:
            last = getattr(readout, "linear_2", None) or readout.linear
            last.weight.mul_(options.get("readout_scale", 40.0))
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(options.get("trained", ())):
                value.mul_(1.0 + 0.07 * torch.rand_like(value))
    return model


def _build(options: dict[str, Any]) -> torch.nn.Module:
    elements = options.get("elements", [1, 8])
    heads = options.get("heads")
    rng = np.random.default_rng(7)
    energies = rng.normal(-3.0, 1.0, (len(heads) if heads else 1, len(elements)))
    count = options.get("layers", 2)
    shared: dict[str, Any] = {
        "r_max": options.get("r_max", 4.0),
        "num_bessel": options.get("num_bessel", 6),
        "num_polynomial_cutoff": options.get("num_polynomial_cutoff", 5),
        "max_ell": options.get("max_ell", 2),
        "interaction_cls": modules.interaction_classes[options.get("later", RESIDUAL)],
        "interaction_cls_first": modules.interaction_classes[options.get("first", RESIDUAL)],
        "num_interactions": count,
        "num_elements": len(elements),
        "hidden_irreps": o3.Irreps(options.get("hidden", "5x0e+5x1o")),
        "MLP_irreps": o3.Irreps(options.get("mlp", "4x0e")),
        "atomic_energies": energies if heads else energies[0],
        "avg_num_neighbors": 11.3,
        "atomic_numbers": elements,
        "correlation": options.get("correlation", 3),
        "gate": options.get("gate", torch.nn.functional.silu),
        "radial_MLP": options.get("radial_MLP", [12, 12]),
        "heads": heads,
    }
    for key in ("keep_last_layer_irreps", "use_last_readout_only", "use_agnostic_product", "use_so3"):
        shared[key] = options.get(key, False)
    for key in ("distance_transform", "radial_type", "apply_cutoff", "pair_repulsion", "embedding_specs"):
        if key in options:
            shared[key] = options[key]
    shared["use_reduced_cg"] = options.get("use_reduced_cg", True)
    if "edge_irreps" in options:
        shared["edge_irreps"] = o3.Irreps(options["edge_irreps"])
        shared["use_edge_irreps_first"] = options.get("use_edge_irreps_first", False)
    if options.get("kind") == "MACE":
        return modules.MACE(**shared)
    scale = rng.uniform(0.6, 1.4, len(heads)) if heads else 0.8
    shift = rng.normal(0.0, 0.2, len(heads)) if heads else 0.1
    return modules.ScaleShiftMACE(**shared, atomic_inter_scale=scale, atomic_inter_shift=shift)
