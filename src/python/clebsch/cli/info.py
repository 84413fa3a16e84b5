"""clebsch info: what a model file holds."""

from __future__ import annotations

import argparse
from typing import Any

from .. import library
from ..errors import ClebschError
from ..model_file import read_metadata
from .options import headline, names
from .progress import Bar

PARSER = {"help": "what a model file holds"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.pt")
    parser.add_argument(
        "--types", metavar="A,B", type=names, default=[], help="build radial tables for these types only"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    metadata = read_metadata(options.model)
    if library.load().path is not None:
        from ..runtime import inspect

        inspect(options.model)  # refuses what is not as the lines below expect it
    try:
        _print_metadata(options.model, metadata)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ClebschError(f"{options.model}: clebsch.json is not that of a Clebsch model: {error!r}") from error
    _print_tables(options)
    return 0


def _print_metadata(path: str, metadata: dict[str, Any]) -> None:
    upstream = metadata.get("upstream", {})
    print(f"{path}: {headline(metadata)}")
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
    if "extrapolation" in metadata:
        _print_grade(metadata)
    if metadata.get("training_note"):
        print(f"training: {metadata['training_note']}")


def _print_grade(metadata: dict[str, Any]) -> None:
    grade = metadata["extrapolation"]
    counts = ", ".join(
        f"{name} {count}" if count else f"{name} none (infinite)"
        for name, count in zip(metadata["type_names"], grade["counts"], strict=True)
    )
    pooling = "all elements pooled" if grade["pooling"] == "all" else "each element by itself"
    print(f"extrapolation: {grade['grade']}, {pooling}, {metadata['features']['count']} features, "
          f"ridge {grade['ridge']:.2e}; training atoms: {counts}")  # fmt: skip
    nearly = f"99.99% below {grade['q9999']:.3g}, " if "q9999" in grade else ""
    print(f"  grades in the training set: median {grade['median']:.3g}, 99% below {grade['q99']:.3g}, {nearly}"
          f"maximum {grade['maximum']:.3g}")  # fmt: skip


def _print_tables(options: argparse.Namespace) -> None:
    state = library.load()
    if state.path is None:
        print(f"not validated, no tables shown: {state.problem}")
        return
    from ..runtime import Model

    with Bar(options.quiet) as bar:
        tables = Model(options.model, types_in_use=options.types, progress=bar).report_tables(progress=bar)
    for entry in tables:
        print(
            f"layer {entry['layer']}: {entry['tables']} radial tables of {entry['pieces']} pieces, "
            f"{entry['bytes'] / 1e6:.2f} MB, relative error {entry['value_error']:.1e} "
            f"(slope {entry['slope_error']:.1e})"
        )
