"""The command line: clebsch export | info | check | bench | compile."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import __version__, library
from .compare import Values, upstream_mace, upstream_nequip
from .errors import ClebschError
from .model_file import read_metadata
from .probe import Probe

_DTYPES = ("float32", "float64")
_HOP = "CLEBSCH_IN_OTHER_PYTHON"  # set for the child of --python, which gets the same arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 an error or a failed check (said on stderr), 2 a wrong command line."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    try:
        if getattr(options, "python", None) and _HOP not in os.environ:
            return _run_elsewhere(options.python, arguments)
        return options.run(options)
    except ClebschError as error:
        print(f"clebsch: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="clebsch", description=__doc__)
    parser.add_argument("--version", action="version", version=f"clebsch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    export = commands.add_parser("export", help="turn an upstream model into a Clebsch model file")
    families = export.add_subparsers(required=True, metavar="FAMILY")
    for name, what in (
        ("nequip", "nequip 0.19: a checkpoint (.ckpt) or a package (.nequip.zip)"),
        ("mace", "mace-torch 0.3.16: a .model file"),
        ("allegro", "nequip-allegro 0.8: a checkpoint (.ckpt) or a package (.nequip.zip)"),
    ):
        family = families.add_parser(name, help=what)
        family.add_argument("input", metavar="IN")
        family.add_argument("output", metavar="OUT.pt")
        family.add_argument("--dtype", choices=_DTYPES, help="of the stored weights (default: the model's own)")
        family.add_argument(
            "--radial-tolerance",
            type=float,
            metavar="X",
            help="refuse when radial tables are worse than this relative error",
        )
        family.add_argument("--note", default="", help="a line about the training, shown by clebsch info")
        family.add_argument("--no-verify", action="store_true", help="do not compare the result with upstream")
        if name == "mace":
            family.add_argument("--head", help="which head of a model with several")
            family.add_argument("--elements", metavar="A,B", help="keep these elements only")
        _add_upstream_options(family)
        family.set_defaults(run=_export, family=name)

    info = commands.add_parser("info", help="what a model file holds")
    info.add_argument("model", metavar="MODEL.pt")
    info.add_argument("--types", metavar="A,B", default="", help="build radial tables for these types only")
    info.set_defaults(run=_info)

    check = commands.add_parser("check", help="test a model file by itself, and against its upstream model")
    check.add_argument("model", metavar="MODEL.pt")
    check.add_argument("--against", metavar="IN", help="the checkpoint or package it was exported from")
    _add_upstream_options(check)
    check.set_defaults(run=_check)

    bench = commands.add_parser("bench", help="time energy, forces and virial of random atoms on the CPU")
    bench.add_argument("model", metavar="MODEL.pt")
    bench.add_argument("--side", type=int, default=8, help="atoms along a side of the box (default 8: 512 atoms)")
    bench.add_argument("--density", type=float, default=0.1, help="atoms per cubic Angstrom (default 0.1)")
    bench.add_argument("--steps", type=int, default=10)
    bench.add_argument("--threads", type=int, default=0, help="default: torch's setting")
    bench.add_argument("--dtype", choices=_DTYPES, help="of the run (default: the model's own)")
    bench.add_argument("--radial", choices=("table", "exact"), default="table")
    bench.set_defaults(run=_bench)
    _add_compile(commands.add_parser("compile", **_COMPILE))
    return parser


_COMPILE = {
    "help": "compile a model's GPU kernels ahead of a run, without a GPU",
    "description": "Fills the on-disk cache of GPU kernels, so that the first step of a run finds all of them. Needs "
    "libnvrtc (torch's CUDA wheels bring it) and no GPU. A kernel is found again by a run with the same --dtype, "
    "--radial and --deterministic, the same Clebsch and the same NVRTC, on any device of the architecture.",
}


def _add_compile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.pt")
    parser.add_argument(
        "--arch",
        required=True,
        metavar="A,B",
        help="compute capabilities without their dot: 80 A100, 89 Ada, 90 H100 and H200, 100 B200, 120 RTX 50",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="folder of the compiled kernels, yours alone; runs look in CLEBSCH_CACHE_DIR (default: that, else "
        "XDG_CACHE_HOME/clebsch, else ~/.cache/clebsch)",
    )
    parser.add_argument("--dtype", choices=_DTYPES, help="of the run (default: the model's own)")
    parser.add_argument("--radial", choices=("table", "exact"), default="table")
    parser.add_argument("--deterministic", choices=("yes", "no"), default="yes")
    parser.add_argument("--threads", type=int, default=0, help="default: one a core")
    parser.add_argument("--dry-run", action="store_true", help="list the kernels, compile nothing")
    parser.set_defaults(run=_compile)


def _add_upstream_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust", action="store_true", help="the input is a pickle, which runs code when loaded: say that you trust it"
    )
    parser.add_argument("--python", metavar="PATH", help="run in this Python, where the upstream package is installed")


def _require_trust(options: argparse.Namespace, path: str) -> None:
    if not os.path.isfile(path):
        raise ClebschError(f"expected a file of the upstream package, got {path!r}: no such file")
    if not options.trust:
        raise ClebschError(
            f"{path} is a Python pickle: loading it runs whatever code it holds. If you trust where it comes from, "
            "add --trust"
        )


def _run_elsewhere(python: str, arguments: Sequence[str]) -> int:
    """The same command in another environment, which needs torch and the upstream package but not clebsch."""
    # A folder that holds this package alone: our own site-packages must not shadow the other environment's.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "clebsch").symlink_to(Path(__file__).resolve().parent, target_is_directory=True)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, environment.get("PYTHONPATH", "")]))
        environment[_HOP] = "1"
        found = library.load().path
        if found is not None:
            environment.setdefault("CLEBSCH_LIBRARY", str(found))
        try:
            return subprocess.run([python, "-m", "clebsch", *arguments], env=environment, check=False).returncode
        except OSError as error:
            raise ClebschError(f"--python: expected a Python program, got {python!r}: {error.strerror}") from error


def _export(options: argparse.Namespace) -> int:
    from . import export

    _require_trust(options, options.input)
    own = {}
    if options.family == "mace":
        own = {"head": options.head, "elements": None if options.elements is None else options.elements.split(",")}
    result = getattr(export, options.family)(
        options.input,
        options.output,
        dtype=options.dtype,
        radial_tolerance=options.radial_tolerance,
        training_note=options.note,
        verify=not options.no_verify,
        **own,
    )
    size = os.path.getsize(result.path) / 1e6
    print(f"wrote {result.path} ({size:.1f} MB): {_headline(result.metadata)}")
    if result.errors is not None:
        values = ", ".join(f"{key.replace('_', ' ')} {value:.1e}" for key, value in result.errors.items())
        print(f"compared with upstream on random structures, relative errors: {values}")
    elif not options.no_verify:
        print(f"not compared with upstream: {library.load().problem}")
    return 0


def _headline(metadata: dict[str, Any]) -> str:
    layers = f"{metadata['layers']} layer{'s' if metadata['layers'] != 1 else ''}"
    return (
        f"{metadata['family']}, {layers}, types {' '.join(metadata['type_names'])}, "
        f"cutoff {metadata['r_max']:g} A, {metadata['dtype']}"
    )


def _info(options: argparse.Namespace) -> int:
    metadata = read_metadata(options.model)
    if library.load().path is not None:
        from .runtime import inspect

        inspect(options.model)  # refuses what is not as the lines below expect it
    try:
        _print_metadata(options.model, metadata)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ClebschError(f"{options.model}: clebsch.json is not that of a Clebsch model: {error!r}") from error
    _print_tables(options)
    return 0


def _print_metadata(path: str, metadata: dict[str, Any]) -> None:
    upstream = metadata.get("upstream", {})
    print(f"{path}: {_headline(metadata)}")
    cutoffs = metadata["pair_cutoffs"]
    if any(c != metadata["r_max"] for row in cutoffs for c in row):
        print("cutoffs [centre][neighbour], Angstrom:")
        for name, row in zip(metadata["type_names"], cutoffs, strict=True):
            print(f"  {name:6}" + " ".join(f"{c:7.3f}" for c in row))
    kinds = metadata.get("output_kinds", {})  # older files do not say
    outputs = [f"{name} (of {'each atom' if kinds[name] == 'atom' else 'the system'})" if name in kinds else name
               for name in metadata.get("outputs", [])]  # fmt: skip
    print(f"pair term: {'ZBL repulsion' if metadata.get('pair_energy') else 'none'}; outputs: {', '.join(outputs)}")
    for index, layer in enumerate(metadata["radial"]):
        fields = dict(part.split("=", 1) for part in layer["problem"].split(" ")[1:])
        if metadata["family"] == "allegro":
            print(f"strictly local, {fields['latents'].count(';') + 1} layers: {fields['scalars']} scalars, "
                  f"{fields['channels']} channels of {' -> '.join(fields['tensors'].split(';'))}; "
                  f"two-body network {fields['basis']}, {fields['network']}")  # fmt: skip
            continue
        paths = fields["paths"].count(";") + 1
        print(f"layer {index}: {fields['in1']} x {fields['in2']}, {paths} paths, radial {fields['radial']}")
    print(f"from {upstream.get('package', '?')} {upstream.get('version', '?')} {upstream.get('source', '')}".rstrip()
          + f", exported by {metadata.get('exporter', '?')}")  # fmt: skip
    if metadata.get("training_note"):
        print(f"training: {metadata['training_note']}")


def _print_tables(options: argparse.Namespace) -> None:
    state = library.load()
    if state.path is None:
        print(f"not validated, no tables shown: {state.problem}")
        return
    from .runtime import Model

    for entry in Model(options.model, types_in_use=[t for t in options.types.split(",") if t]).tables:
        print(
            f"layer {entry['layer']}: {entry['tables']} radial tables of {entry['pieces']} pieces, "
            f"{entry['bytes'] / 1e6:.2f} MB, relative error {entry['value_error']:.1e} "
            f"(slope {entry['slope_error']:.1e})"
        )


def _check(options: argparse.Namespace) -> int:
    from .check import check_against, check_file

    library.require()
    upstream = None
    if options.against:
        _require_trust(options, options.against)
        upstream, dtype = _upstream(read_metadata(options.model), options.against)
    findings = check_file(options.model)
    if upstream is not None:
        findings += check_against(options.model, upstream, dtype)
    for finding in findings:
        print(finding)
    return 0 if all(f.passed for f in findings) else 1


def _upstream(metadata: dict[str, Any], path: str) -> tuple[Callable[[Probe], Values], str]:
    """The answers of the upstream model in `path`, and the dtype it computes in."""
    from .export import from_mace, from_nequip

    if metadata["family"] == "mace":
        model = from_mace.load(path)
        head = metadata["upstream"].get("head")
        answers = partial(upstream_mace, model, numbers=metadata["atomic_numbers"], head=head)
        return answers, str(next(model.parameters()).dtype).removeprefix("torch.")
    model = from_nequip.select_model(from_nequip.load(path))
    dtype = getattr(model, "model_dtype", metadata["dtype"])
    return partial(upstream_nequip, model), str(dtype).removeprefix("torch.")


def _bench(options: argparse.Namespace) -> int:
    from .bench import bench_file

    if options.side < 1 or options.steps < 1 or not options.density > 0:
        raise ClebschError("expected --side and --steps of at least 1 and a positive --density")
    timing = bench_file(
        options.model,
        side=options.side,
        density=options.density,
        steps=options.steps,
        threads=options.threads,
        dtype=options.dtype,
        radial=options.radial,
    )
    print(timing)
    return 0


def _compile(options: argparse.Namespace) -> int:
    from .kernels import compile_file, parse_architectures

    if options.threads < 0:
        raise ClebschError(f"--threads: expected 0 or more, got {options.threads}")
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
