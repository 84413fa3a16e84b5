"""Finding and loading libclebsch; the schemas of its ops alone where it cannot be loaded.

libclebsch is built against one torch release. With another torch (say, in an upstream package's own environment) the
ops are declared from ops.schema without kernels: export and info work, running a model does not.

Importing this module imports no torch and loads nothing; :func:`load` does.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ClebschError

if TYPE_CHECKING:
    import torch

_NAME = "libclebsch.so"
_PACKAGE = Path(__file__).resolve().parent


@dataclass
class State:
    """What :func:`load` found. ``path`` is the loaded library or None; ``problem`` says why there is none."""

    path: Path | None = None
    built_for: str = ""
    problem: str = ""


_state: State | None = None
_declared: torch.library.Library | None = None


def candidates() -> list[Path]:
    """Where libclebsch may be, in the order that is tried; only the first that exists is used."""
    chosen = os.environ.get("CLEBSCH_LIBRARY")
    if chosen:
        path = Path(chosen)
        return [path / _NAME if path.is_dir() else path]
    places = [_PACKAGE, _PACKAGE / "lib", Path(sys.prefix) / "lib"]
    # A checkout: src/python/clebsch -> build/lib.
    root = _PACKAGE.parents[2]
    if (root / "src" / "torch" / "ops.schema").is_file():
        places.append(root / "build" / "lib")
    return [place / _NAME for place in places]


def torch_release(version: str) -> str:
    """'2.11.0+cu130' -> '2.11.0': builds of one release share their C++ interface."""
    return version.split("+", 1)[0]


def built_for(library: Path) -> str:
    """The torch release that `library` needs, without loading it; '' when it does not say."""
    # The library carries the mark as a string (src/model/version.cpp).
    match = re.search(rb"CLEBSCH_TORCH_VERSION=(\d+\.\d+\.\d+)", library.read_bytes())
    return match.group(1).decode() if match else ""


def load() -> State:
    """Loads libclebsch once, which registers torch.ops.clebsch and torch.classes.clebsch. Never raises but where there
    is no torch: falls back to declaring the ops, and remembers why."""
    global _state
    if _state is None:
        _state = _load()
        if _state.path is None:
            _declare()
    return _state


def ensure_ops() -> None:
    """Makes torch.ops.clebsch usable at least for scripting."""
    load()


def require() -> Path:
    """The loaded library. Raises ClebschError that says why there is none and what to do."""
    state = load()
    if state.path is None:
        raise ClebschError(state.problem)
    return state.path


def _load() -> State:
    tried = candidates()
    path = _mapped() or next((p for p in tried if p.is_file()), None)
    if path is None:
        return State(
            problem=f"{_NAME} was not found. Looked for: {', '.join(map(str, tried))}. Build it with "
            "scripts/quickstart, or set CLEBSCH_LIBRARY to its path. Export and info work without it."
        )
    import torch

    running = torch_release(torch.__version__)
    try:
        wanted = built_for(path)
        if wanted and wanted != running:
            return State(
                built_for=wanted,
                problem=f"{path} was built for torch {wanted}, this Python has torch {running}. Running a model needs "
                f"torch {wanted} (or a {_NAME} built for torch {running}, set by CLEBSCH_LIBRARY). "
                "Export and info work as they are.",
            )
        torch.ops.load_library(str(path))
    except (OSError, RuntimeError) as error:
        return State(problem=f"{path} could not be loaded with torch {running}: {error}")
    return State(path=path, built_for=wanted or running)


def schema_lines() -> list[str]:
    """The op schemas of the packaged ops.schema."""
    text = (_PACKAGE / "ops.schema").read_text()
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _declare() -> None:
    """Registers the schemas without kernels, unless another load in this process has done so."""
    import torch

    global _declared
    library = torch.library.Library("clebsch", "FRAGMENT")
    for line in schema_lines():
        name = line.split("(", 1)[0]
        try:
            getattr(torch.ops.clebsch, name)
        except AttributeError:
            library.define(line)
    _declared = library  # keeps the registration alive


def _mapped() -> Path | None:
    """A libclebsch that this process already runs (a LAMMPS plugin brings one): a second copy would clash with it."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    return next((Path(line.split(None, 5)[5]) for line in lines if line.endswith("/" + _NAME)), None)
