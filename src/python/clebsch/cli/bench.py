"""clebsch bench: how long a model's step takes on the CPU."""

from __future__ import annotations

import argparse

from .options import DTYPES, positive, whole_number
from .progress import Bar

PARSER = {"help": "time energy, forces and virial of random atoms on the CPU"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    count = whole_number(1)
    parser.add_argument("model", metavar="MODEL.pt")
    parser.add_argument("--side", type=count, default=8, help="atoms along a side of the box (default 8: 512 atoms)")
    parser.add_argument("--density", type=positive, default=0.1, help="atoms per cubic Angstrom (default 0.1)")
    parser.add_argument("--steps", type=count, default=10)
    parser.add_argument("--threads", type=whole_number(0), default=0, help="default: torch's setting")
    parser.add_argument("--dtype", choices=DTYPES, help="of the run (default: the model's own)")
    parser.add_argument("--radial", choices=("table", "exact"), default="table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..bench import bench_file

    with Bar(options.quiet) as bar:
        timing = bench_file(
            options.model,
            side=options.side,
            density=options.density,
            steps=options.steps,
            threads=options.threads,
            dtype=options.dtype,
            radial=options.radial,
            progress=bar,
        )
    print(timing)
    return 0
