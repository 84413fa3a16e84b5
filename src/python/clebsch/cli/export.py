"""clebsch export: turns an upstream model into a model file."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ..errors import ClebschError
from .options import DTYPES, headline, names, positive, shared_options
from .other_python import add_upstream_options, require_trust
from .progress import Bar

PARSER = {"help": "turn an upstream model into a Clebsch model file"}

_FAMILIES = {
    "nequip": "nequip 0.19: a checkpoint (.ckpt) or a package (.nequip.zip)",
    "mace": "mace-torch 0.3.16: a .model file",
    "allegro": "nequip-allegro 0.8: a checkpoint (.ckpt) or a package (.nequip.zip)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    families = parser.add_subparsers(required=True, metavar="FAMILY")
    for name, what in _FAMILIES.items():
        family = families.add_parser(name, help=what, parents=[shared_options()])
        family.add_argument("input", metavar="IN")
        family.add_argument("output", metavar="OUT.pt")
        family.add_argument("--dtype", choices=DTYPES, help="of the stored weights (default: the model's own)")
        family.add_argument(
            "--radial-tolerance",
            type=positive,
            metavar="X",
            help="refuse when radial tables are worse than this relative error",
        )
        family.add_argument("--note", default="", help="a line about the training, shown by clebsch info")
        family.add_argument("--no-verify", action="store_true", help="do not compare the result with upstream")
        family.add_argument(
            "--extrapolation", metavar="TRAIN.xyz", help="training structures: the model then grades atoms unlike them"
        )
        family.add_argument(
            "--grade",
            choices=("auto", "leverage", "maxvol", "squares"),
            help="which grade (default: auto, squares with enough training atoms, else leverage)",
        )
        family.add_argument("--ridge", type=_ridge, metavar="X", help="of the largest eigenvalue (default: auto, 1e-8)")
        family.add_argument("--pooling", choices=("all", "element"), help="one grade, or one an element")
        if name == "mace":
            family.add_argument("--head", help="which head of a model with several")
            family.add_argument("--elements", type=names, metavar="A,B", help="keep these elements only")
        add_upstream_options(family)
        family.set_defaults(run=run, family=name)


def _ridge(text: str) -> float | str:
    return text if text == "auto" else positive(text)


def run(options: argparse.Namespace) -> int:
    require_trust(options, options.input)
    from .. import export, library

    own: dict[str, Any] = {}
    if options.family == "mace":
        own = {"head": options.head, "elements": options.elements}
    how = {name: getattr(options, name) for name in ("grade", "ridge", "pooling")}
    how = {name: value for name, value in how.items() if value is not None}
    if options.extrapolation is not None:
        own["extrapolation"] = export.Extrapolation(options.extrapolation, **how)
    elif how:
        raise ClebschError(f"--{next(iter(how))}: expected --extrapolation TRAIN.xyz with it, got none")
    with Bar(options.quiet) as bar:
        result = getattr(export, options.family)(
            options.input,
            options.output,
            dtype=options.dtype,
            radial_tolerance=options.radial_tolerance,
            training_note=options.note,
            verify=not options.no_verify,
            progress=bar,
            **own,
        )
    size = os.path.getsize(result.path) / 1e6
    print(f"wrote {result.path} ({size:.1f} MB): {headline(result.metadata)}")
    if result.errors is not None:
        values = ", ".join(f"{key.replace('_', ' ')} {value:.1e}" for key, value in result.errors.items())
        print(f"compared with upstream on random structures, relative errors: {values}")
    elif not options.no_verify:
        print(f"not compared with upstream: {library.load().problem}")
    return 0
