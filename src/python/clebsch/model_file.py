"""Reading the metadata of a model file without running any of it, and without libclebsch."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from typing import Any

from .errors import ClebschError

_LIMIT = 16 << 20
_REQUIRED = ("format", "version", "family", "layers", "dtype", "type_names", "r_max", "pair_cutoffs", "radial")


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of clebsch.json. Raises ClebschError for a file that is not a Clebsch model."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise ClebschError(f"expected a Clebsch model file, got {name!r}: no such file")
    try:
        with zipfile.ZipFile(name) as archive:
            entries = [e for e in archive.infolist() if e.filename.endswith("/extra/clebsch.json")]
            if len(entries) != 1:
                raise ClebschError(
                    f"{name} is not a Clebsch model: no clebsch.json inside. "
                    "Make one with: clebsch export nequip IN OUT.pt"
                )
            if entries[0].file_size > _LIMIT:
                raise ClebschError(
                    f"{name}: clebsch.json claims {entries[0].file_size} bytes, expected at most {_LIMIT}"
                )
            metadata = json.loads(archive.read(entries[0]))
    except ClebschError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        # ValueError: no JSON, no UTF-8; RuntimeError: encrypted, or packed by a method that is not here.
        raise ClebschError(f"{name} is not a Clebsch model, or it is damaged: {error}") from error
    missing = [key for key in _REQUIRED if not isinstance(metadata, dict) or key not in metadata]
    if missing:
        raise ClebschError(f"{name}: clebsch.json lacks {', '.join(missing)}")
    if metadata["format"] != "clebsch-model" or metadata["version"] != 1:
        raise ClebschError(
            f"{name}: expected format clebsch-model version 1, "
            f"got {metadata['format']!r} version {metadata['version']!r}"
        )
    return metadata


def not_read(path: str | os.PathLike[str], package: str, expected: str, error: Exception) -> str:
    """What to tell of a file that an upstream package could not read: `expected` says what it reads."""
    try:
        read_metadata(path)
    except ClebschError:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"{package} could not read {path}, expected {expected}: {why}"
    return f"{package} could not read {path}: it is a Clebsch model file already; use it as it is"
