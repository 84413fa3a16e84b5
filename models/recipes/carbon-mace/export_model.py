"""Builds the model file from the shipped weights, without the training checkpoint.

    python export_model.py ../../carbon-mace.pt

`weights.pt` holds the averaged weights of stage two and the sizes of the model around them; `--from
carbon_stagetwo.model` renews it first. Needs mace-torch 0.3.16.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import mace  # noqa: F401, before e3nn: it sets what that needs under torch 2.6 and later
import numpy as np
import torch
from e3nn import o3
from mace import modules

from clebsch import export

HERE = Path(__file__).resolve().parent
NOTE = "carbon under LCBOP (a classical bond-order potential): a demonstration"


def build(config: dict) -> torch.nn.Module:
    """The upstream model, weights at random, in the current default dtype."""
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    return modules.ScaleShiftMACE(
        r_max=config["r_max"],
        num_bessel=config["num_bessel"],
        num_polynomial_cutoff=config["num_polynomial_cutoff"],
        max_ell=config["max_ell"],
        interaction_cls=block,
        interaction_cls_first=block,
        num_interactions=config["num_interactions"],
        num_elements=1,
        hidden_irreps=o3.Irreps(config["hidden_irreps"]),
        MLP_irreps=o3.Irreps("16x0e"),
        atomic_energies=np.zeros(1),
        avg_num_neighbors=config["avg_num_neighbors"],
        atomic_numbers=[6],
        correlation=config["correlation"],
        gate=torch.nn.functional.silu,
        radial_MLP=config["radial_MLP"],
        radial_type="bessel",
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
    )


def renew(path: Path) -> None:
    """weights.pt from a model that mace_run_train has written."""
    trained = torch.load(path, map_location="cpu", weights_only=False)
    config = {
        "r_max": float(trained.r_max),
        "num_bessel": len(trained.radial_embedding.bessel_fn.bessel_weights),
        "num_polynomial_cutoff": int(trained.radial_embedding.cutoff_fn.p),
        "max_ell": trained.spherical_harmonics.irreps_out.lmax,
        "num_interactions": len(trained.interactions),
        "hidden_irreps": str(trained.products[0].linear.irreps_out),
        "avg_num_neighbors": float(trained.interactions[0].avg_num_neighbors),
        "correlation": 3,
        "radial_MLP": [layer.h_out for layer in list(trained.interactions[0].conv_tp_weights.children())[:-1]],
    }
    torch.save({"config": config, "state": _weights(trained)}, HERE / "weights.pt")


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, scale and shift; what else a state holds, upstream's constructor computes."""
    kept = {name for name, _ in model.named_parameters()} | {"scale_shift.scale", "scale_shift.shift"}
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if name in kept}


def model() -> torch.nn.Module:
    """The upstream model with the shipped weights, float32."""
    shipped = torch.load(HERE / "weights.pt", weights_only=True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        built = build(shipped["config"])
    finally:
        torch.set_default_dtype(before)
    state = shipped["state"]
    if set(_weights(built)) != set(state):
        raise ValueError(f"expected the weights {sorted(_weights(built))}, got {sorted(state)}")
    for name in ("scale_shift.scale", "scale_shift.shift"):
        getattr(built.scale_shift, name.rsplit(".", 1)[1]).data = state[name]
    built.load_state_dict(state, strict=False)
    return built.eval()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--from", dest="trained", type=Path, help="a .model file to take weights from")
    parser.add_argument("--extrapolation", type=Path, help="training structures, for the grade of extrapolation")
    args = parser.parse_args()
    if args.trained:
        renew(args.trained)
    grade = export.Extrapolation(args.extrapolation) if args.extrapolation else None
    result = export.mace(model(), args.out, training_note=NOTE, extrapolation=grade)
    print(result.errors)


if __name__ == "__main__":
    main()
