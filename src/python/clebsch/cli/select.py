"""clebsch select: chooses the structures that add most to a training set (docs/uncertainty.md)."""

from __future__ import annotations

import argparse
import os

from .options import whole_number
from .progress import Bar

PARSER = {"help": "choose from a pool of structures what adds most to a training set"}
_METHODS = ("leverage", "volume", "doptimal", "maxvol", "fps")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL.xyz", help="structures to choose from, in a format that ASE reads")
    parser.add_argument("--model", required=True, metavar="MODEL.pt", help="a model file that names its features")
    parser.add_argument(
        "--known", metavar="TRAIN.xyz", help="what is trained on already (default: the model file says)"
    )
    parser.add_argument("--count", type=whole_number(1), required=True, help="how many to choose")
    parser.add_argument("--method", choices=_METHODS, default="doptimal", help="default: doptimal")
    parser.add_argument("--per", choices=("structure", "atom"), default="structure", help="what is counted and chosen")
    parser.add_argument("--per-atom-gain", action="store_true", help="divide a structure's gain by its atoms")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of leverage and volume, which draw")
    parser.add_argument("--out", required=True, metavar="CHOSEN.xyz", help="the chosen structures (extended xyz)")
    parser.add_argument("--picture", metavar="PNG", help="grades before and after (default: --out with .png)")
    parser.add_argument("--device", default="cpu", help="where features are computed: cpu, cuda, cuda:N, auto")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..selecting import choose_structures, draw_grades

    with Bar(options.quiet) as bar:
        chosen = choose_structures(
            options.pool,
            options.model,
            options.count,
            known=options.known,
            method=options.method,
            per=options.per,
            per_atom_gain=options.per_atom_gain,
            seed=options.seed,
            out=options.out,
            device=options.device,
            progress=bar,
        )
    print(f"wrote {options.out}: {len(chosen.structures)} of {chosen.pool} structures"
          + (f" with the {options.count} atoms chosen" if options.per == "atom" else ""))  # fmt: skip
    print(
        f"grades of the pool's atoms, 1 is the training mean: 99% below {chosen.before_q99:.3g}, maximum "
        f"{chosen.before.max():.3g}; with what was chosen: {chosen.after_q99:.3g} and {chosen.after.max():.3g}"
    )
    picture = options.picture or os.path.splitext(options.out)[0] + ".png"
    if draw_grades(chosen, picture):
        print(f"wrote {picture}")
    elif options.picture:
        print("no picture: matplotlib is not installed")
    return 0
