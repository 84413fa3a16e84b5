"""Builds the model file from a checkpoint of the training, or from the weights kept of one.

    python export_model.py ../../water-allegro.pt --from run2/last.ckpt
    python export_model.py ../../water-allegro.pt

The first line also writes weights.pt, the averaged weights of that checkpoint; the second needs nothing else. The model
around them is the `fresh` block of train.yaml.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import yaml

HERE = Path(__file__).resolve().parent
NOTE = "flexible SPC/Fw water (a classical potential), 300 to 600 K: a demonstration"


def model(weights: Path = HERE / "weights.pt") -> torch.nn.Module:
    """The upstream model with the kept weights."""
    from allegro.model import AllegroModel

    config = yaml.safe_load((HERE / "train.yaml").read_text())
    build = dict(config["fresh"])
    del build["_target_"]
    for name in ("seed", "r_max", "type_names"):
        build[name] = config[name]
    built = AllegroModel(**build)
    built.load_state_dict(torch.load(weights, weights_only=True))
    return built.eval()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--from", dest="checkpoint", type=Path, help="a checkpoint to take weights from")
    parser.add_argument("--weights", type=Path, default=HERE / "weights.pt", help="where they are kept")
    parser.add_argument("--extrapolation", type=Path, help="training structures, for the grade of extrapolation")
    args = parser.parse_args()

    from nequip.utils.global_state import set_global_state

    set_global_state(allow_tf32=False)
    from clebsch import export

    if args.checkpoint:
        from nequip.model.saved_models.load_utils import load_saved_model

        os.environ.setdefault("WATER_START", str(args.checkpoint.resolve().with_name("start.ckpt")))
        loaded = load_saved_model(args.checkpoint, compile_mode="eager")
        torch.save(loaded.state_dict(), args.weights)
    # docs/uncertainty.md: with squares bonds that are broken are not first in all structures.
    grade = export.Extrapolation(args.extrapolation, "leverage") if args.extrapolation else None
    export.allegro(model(args.weights), str(args.out), training_note=NOTE, extrapolation=grade)


if __name__ == "__main__":
    main()
