"""clebsch check: is a model file sound by itself, and does it agree with its upstream model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import library
from ..errors import ClebschError
from ..model_file import read_metadata
from .failure import FAILED
from .other_python import add_upstream_options, require_trust
from .progress import Bar

if TYPE_CHECKING:
    from ..compare import Values
    from ..probe import Probe

PARSER = {"help": "test a model file by itself, and against its upstream model"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.pt")
    parser.add_argument("--against", metavar="IN", help="the checkpoint or package it was exported from")
    add_upstream_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    metadata = read_metadata(options.model)
    if options.against:
        require_trust(options, options.against)
    library.require()
    from ..check import check_against, check_file

    with Bar(options.quiet) as bar:
        # First, so that a file that upstream cannot read is said before the checks have taken their time.
        upstream, dtype = _upstream(metadata, options.against) if options.against else (None, "")
        findings = check_file(options.model, progress=bar)
        if upstream is not None:
            findings += check_against(options.model, upstream, dtype, progress=bar)
    for finding in findings:
        print(finding)
    return 0 if all(f.passed for f in findings) else FAILED


def _upstream(metadata: dict[str, Any], path: str) -> tuple[Callable[[Probe], Values], str]:
    """The answers of the upstream model in `path`, and the dtype it computes in."""
    from ..compare import upstream_mace, upstream_nequip
    from ..export import from_mace, from_nequip

    if metadata["family"] == "mace":
        model = from_mace.load(path)
        head = metadata["upstream"].get("head")
        has = {int(z) for z in model.atomic_numbers.tolist()}
        missing = [
            name for name, z in zip(metadata["type_names"], metadata["atomic_numbers"], strict=True) if z not in has
        ]
        if missing:
            raise ClebschError(
                f"--against: expected a model that has {', '.join(metadata['type_names'])}, got {path} "
                f"without {', '.join(missing)}"
            )
        if head and head not in getattr(model, "heads", []):
            raise ClebschError(
                f"--against: expected a model with the head {head}, got {path} with "
                f"{', '.join(getattr(model, 'heads', [])) or 'one'}"
            )
        answers = partial(upstream_mace, model, numbers=metadata["atomic_numbers"], head=head)
        return answers, str(next(model.parameters()).dtype).removeprefix("torch.")
    model = from_nequip.select_model(from_nequip.load(path))
    dtype = getattr(model, "model_dtype", metadata["dtype"])
    return partial(upstream_nequip, model), str(dtype).removeprefix("torch.")
