"""Writing a model file and, where libclebsch can run it, comparing it with upstream before it takes its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import library
from ..compare import Values, compare_file
from ..errors import ClebschError
from ..probe import Probe
from ..progress import Progress, silent
from ..runtime import Model
from . import backend
from .description import Description

#: Beyond these relative errors (exact radial functions) the file is wrong, not inexact.
LIMITS = {"float64": 1e-8, "float32": 2e-4}


def verified_write(
    description: Description,
    out: str | os.PathLike[str],
    dtype: str,
    upstream: Callable[[Probe], Values] | None,
    radial_tolerance: float | None,
    progress: Progress = silent,
) -> tuple[dict[str, Any], dict[str, float] | None]:
    """Metadata and errors (None without libclebsch or `upstream`). On failure nothing new is left on disk."""
    errors: dict[str, float] | None = None

    def check(path: Path) -> None:
        nonlocal errors
        if radial_tolerance is not None:
            _check_tables(path, radial_tolerance, progress)
        if upstream is None or library.load().path is None:
            return
        # The precision of the weaker of the two: upstream computes in its own dtype.
        both = "float64" if dtype == description.dtype == "float64" else "float32"
        errors = compare_file(path, upstream, dtype=both, progress=progress)
        bad = {
            key: value
            for key, value in errors.items()
            if not value <= LIMITS[both] * (10 if key == "forces_max" else 1)
        }
        if bad:
            raise ClebschError(
                f"the export disagrees with upstream: relative errors {bad}, expected at most {LIMITS[both]:g}. "
                "Nothing was written. This is a mistake in the exporter: please report the model's configuration."
            )

    return backend.write(description, out, dtype, check), errors


def _check_tables(path: Path, tolerance: float, progress: Progress) -> None:
    library.require()
    tables = Model(path, progress=progress).report_tables(progress)
    beyond = [t["value_error"] for t in tables if not t["value_error"] <= tolerance]  # nan is
    if beyond:
        raise ClebschError(
            f"radial_tolerance: expected tables within {tolerance:g} of the radial network, got {max(beyond):.1e}. "
            "Nothing was written. Run this model with `radial exact`, or accept a larger tolerance."
        )
