"""clebsch compile: fills the cache of compiled GPU kernels without a GPU."""

from __future__ import annotations

import argparse

from ..errors import ClebschError
from .options import DTYPES, whole_number
from .progress import Bar

PARSER = {
    "help": "compile a model's GPU kernels ahead of a run, without a GPU",
    "description": "Fills the on-disk cache of GPU kernels, so that the first step of a run finds all of them. Needs "
    "libnvrtc (torch's CUDA wheels bring it) and no GPU, unless --tune is given. A kernel is found again by a run with "
    "the same --dtype, "
    "--radial and --deterministic, the same Clebsch and the same NVRTC, on any device of the architecture.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.pt")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--arch",
        metavar="A,B",
        help="compute capabilities without their dot: 80 A100, 89 Ada, 90 H100 and H200, 100 B200, 120 RTX 50",
    )
    target.add_argument(
        "--tune",
        action="store_true",
        help="on a machine with a GPU: measure the plans of the model's kernels on it, check their forces, and keep "
        "the fastest beside the kernels, for later runs on such a GPU; CLEBSCH_CUDA_TUNED=0 makes a run ignore them",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="folder of the compiled kernels, yours alone; runs look in CLEBSCH_CACHE_DIR (default: that, else "
        "XDG_CACHE_HOME/clebsch, else ~/.cache/clebsch)",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="of the run (default: the model's own)")
    parser.add_argument("--radial", choices=("table", "exact"), default="table")
    parser.add_argument("--deterministic", choices=("yes", "no"), default="yes")
    parser.add_argument("--threads", type=whole_number(0), default=0, help="default: one a core")
    parser.add_argument("--dry-run", action="store_true", help="list the kernels, compile nothing")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..kernels import compile_file, parse_architectures

    if options.tune:
        return tune(options)
    with Bar(options.quiet) as bar:
        result = compile_file(
            options.model,
            parse_architectures(options.arch),
            cache=options.cache,
            dtype=options.dtype,
            radial=options.radial,
            deterministic=options.deterministic == "yes",
            threads=options.threads,
            dry_run=options.dry_run,
            report=lambda line: print(line, flush=True),
            progress=bar,
        )
    if not result.kernels:
        print(f"{options.model}: a run of this model uses no kernels that are compiled at run time")
    elif options.dry_run:
        print(f"{len(result.kernels)} kernels; nothing was compiled")
    else:
        print(result.summary())
    if result.errors:
        raise ClebschError("kernels could not be compiled:\n" + "\n".join(result.errors))
    return 0


def tune(options: argparse.Namespace) -> int:
    from ..tuning import summary, tune_file

    if options.dry_run:
        raise ClebschError("--tune measures on the GPU that is here: leave --dry-run out")
    with Bar(options.quiet) as bar:
        tuned = tune_file(
            options.model,
            cache=options.cache,
            dtype=options.dtype,
            radial=options.radial,
            deterministic=options.deterministic == "yes",
            report=lambda line: print(line, flush=True),
            progress=bar,
        )
    print(summary(tuned))
    return 0
