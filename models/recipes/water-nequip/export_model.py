"""Builds the model file from the shipped weights, without the training checkpoint.

    python export_model.py ../../water-nequip.pt

`weights.pt` holds the averaged weights of the last stage; the model around them is the `fresh`
block of train.yaml. `--from CHECKPOINT` renews weights.pt first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import yaml

HERE = Path(__file__).resolve().parent
NOTE = "flexible SPC/Fw water (a classical potential), 300 to 600 K: a demonstration"


def model(fresh: int | None = None) -> torch.nn.Module:
    """The upstream model with the shipped weights. fresh: a seed, for weights at random instead."""
    from nequip.model import NequIPGNNModel

    config = yaml.safe_load((HERE / "train.yaml").read_text())
    build = dict(config["fresh"])
    del build["_target_"]
    for name in ("seed", "r_max", "type_names"):
        build[name] = config[name]
    if fresh is not None:
        return NequIPGNNModel(**{**build, "seed": fresh})
    built = NequIPGNNModel(**build)
    built.load_state_dict(torch.load(HERE / "weights.pt", weights_only=True))
    return built.eval()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--from", dest="checkpoint", help="a checkpoint to take weights from")
    parser.add_argument("--extrapolation", type=Path, help="training structures, for the grade of extrapolation")
    parser.add_argument("--grade", default="auto", help="auto: squares, by so many atoms; leverage, maxvol")
    args = parser.parse_args()

    from nequip.utils.global_state import set_global_state

    set_global_state(allow_tf32=False)
    if args.checkpoint:
        from nequip.model.saved_models.load_utils import load_saved_model

        loaded = load_saved_model(args.checkpoint, compile_mode="eager")
        torch.save(loaded.state_dict(), HERE / "weights.pt")

    from clebsch import export

    grade = export.Extrapolation(args.extrapolation, args.grade) if args.extrapolation else None
    export.nequip(model(), str(args.out), training_note=NOTE, extrapolation=grade)


if __name__ == "__main__":
    main()
