"""Export of upstream models to Clebsch's model file.

>>> from clebsch import export
>>> export.nequip("training.ckpt", "model.pt")

Two steps: a front end per upstream package reads the model into a neutral description (description.py); one back end
(backend.py) writes the file. Everything that cannot be exported is refused before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..compare import Values, upstream_mace, upstream_nequip
from ..errors import ClebschError, ExportRefused, refusing_unknown
from ..probe import Probe
from ..progress import Progress, silent
from .description import Description
from .extrapolation import Extrapolation

__all__ = ["ExportRefused", "ExportResult", "Extrapolation", "allegro", "mace", "nequip"]


@dataclass
class ExportResult:
    """What was written. ``errors`` compares the file with upstream (see clebsch.check), None where it was not run."""

    path: str
    metadata: dict[str, Any]
    errors: dict[str, float] | None = None


def nequip(
    model: torch.nn.Module | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    radial_tolerance: float | None = None,
    training_note: str = "",
    verify: bool = True,
    extrapolation: Extrapolation | None = None,
    progress: Progress = silent,
) -> ExportResult:
    """Writes the model file `out` from a nequip 0.19 model.

    model: an in-memory model (GraphModel, a Lightning module, a ModuleDict with one model) or the path of a training
        checkpoint (.ckpt) or package (.nequip.zip). Files are pickles: loading one runs code from it.
    dtype: "float32" or "float64" for the stored weights; None keeps the model's own.
    radial_tolerance: largest relative error of the radial tables that is acceptable; needs libclebsch, which builds
        the tables. The file itself always holds the exact radial network.
    training_note: a line for `clebsch info`.
    verify: compare the result with upstream on random structures where libclebsch can run; raises ClebschError, and
        leaves no new file, when they disagree.
    extrapolation: the training set, from which the file gets a grade of extrapolation (docs/uncertainty.md); needs
        libclebsch and ASE. None: no grade.
    progress: told how far the work is.

    The order of type names is kept. Raises ExportRefused (nothing written) for options that Clebsch does not have.
    """
    from . import from_nequip

    describe = from_nequip.describe
    options = (dtype, radial_tolerance, training_note, verify, extrapolation, progress)
    return _from_nequip(describe, model, out, *options)


def allegro(
    model: torch.nn.Module | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    radial_tolerance: float | None = None,
    training_note: str = "",
    verify: bool = True,
    extrapolation: Extrapolation | None = None,
    progress: Progress = silent,
) -> ExportResult:
    """Writes the model file `out` from a nequip-allegro 0.8 model. Arguments and errors are those of `nequip`; the
    tables of `radial_tolerance` are those of the two-body part, one for every ordered pair of types."""
    from . import from_allegro

    describe = from_allegro.describe
    options = (dtype, radial_tolerance, training_note, verify, extrapolation, progress)
    return _from_nequip(describe, model, out, *options)


def _from_nequip(
    describe: Callable[[torch.nn.Module, str, str], Description],
    model: torch.nn.Module | str | os.PathLike[str],
    out: str | os.PathLike[str],
    dtype: str | None,
    radial_tolerance: float | None,
    training_note: str,
    verify: bool,
    extrapolation: Extrapolation | None,
    progress: Progress,
) -> ExportResult:
    """nequip and its extensions share files and calling convention."""
    from . import from_nequip

    source = _source(model, out, extrapolation)
    if not isinstance(model, torch.nn.Module):
        model = from_nequip.load(os.fspath(model))
    with refusing_unknown():
        description = describe(model, source, training_note)
    reference = partial(upstream_nequip, from_nequip.select_model(model))
    return _written(description, out, dtype, radial_tolerance, reference if verify else None, extrapolation, progress)


def _source(
    model: torch.nn.Module | str | os.PathLike[str], out: str | os.PathLike[str], extrapolation: Extrapolation | None
) -> str:
    """The name of a model's file, "" of one in memory. Refuses what is neither, and what cannot be written to."""
    from . import backend

    if not isinstance(model, (torch.nn.Module, str, os.PathLike)):
        raise ClebschError(f"model: expected a model or the name of its file, got {type(model).__name__}")
    training = None if extrapolation is None else extrapolation.training
    backend.check_destination(out, model, training)
    return "" if isinstance(model, torch.nn.Module) else os.path.basename(os.fspath(model))


def mace(
    model: torch.nn.Module | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    head: str | None = None,
    elements: Sequence[str] | None = None,
    dtype: str | None = None,
    radial_tolerance: float | None = None,
    training_note: str = "",
    verify: bool = True,
    extrapolation: Extrapolation | None = None,
    progress: Progress = silent,
) -> ExportResult:
    """Writes the model file `out` from a mace-torch 0.3.16 model, in-memory or a `.model` file (a pickle: loading it
    runs code from it).

    head: which of several heads, by name; a model with one needs none.
    elements: symbols to keep; what only the others need is dropped. None keeps all.
    The other arguments and the errors are those of `nequip`.
    """
    from . import from_mace

    elements = None if elements is None else from_mace.check_elements(elements)
    source = _source(model, out, extrapolation)
    if not isinstance(model, torch.nn.Module):
        model = from_mace.load(os.fspath(model))
    with refusing_unknown():
        description = from_mace.describe(model, source, training_note, head, elements)
    reference = partial(upstream_mace, model, numbers=description.atomic_numbers, head=head)
    return _written(description, out, dtype, radial_tolerance, reference if verify else None, extrapolation, progress)


def _written(
    description: Description,
    out: str | os.PathLike[str],
    dtype: str | None,
    radial_tolerance: float | None,
    reference: Callable[[Probe], Values] | None,
    extrapolation: Extrapolation | None,
    progress: Progress,
) -> ExportResult:
    from . import backend
    from .extrapolation import graded
    from .verify import verified_write

    if radial_tolerance is not None and not isinstance(radial_tolerance, (int, float)):
        raise ClebschError(f"radial_tolerance: expected a number, got {radial_tolerance!r}")
    dtype = dtype or description.dtype
    if dtype not in backend.DTYPES:
        raise ClebschError(f"dtype: expected float32 or float64, got {dtype!r}")
    if extrapolation is not None:
        description = graded(description, dtype, extrapolation, progress)
    metadata, errors = verified_write(description, out, dtype, reference, radial_tolerance, progress)
    return ExportResult(os.fspath(out), metadata, errors)
