"""Where the files lie that come with the package: the shipped models, and what CMake needs."""

from __future__ import annotations

from pathlib import Path

from .errors import ClebschError

_PACKAGE = Path(__file__).resolve().parent


def _models() -> Path:
    """The folder of the shipped models: in the package, or at the root of a checkout."""
    installed = _PACKAGE / "models"
    return installed if installed.is_dir() else _PACKAGE.parents[2] / "models"


def model_path(name: str) -> Path:
    """The file of a shipped model, such as ``"water-nequip"`` (with or without ``.pt``).

    Its card, which says what the model is good for, is the ``.md`` file beside it. Raises ClebschError, with the names
    that there are, for another name.
    """
    stem = name.removesuffix(".pt")
    names = sorted(path.stem for path in _models().glob("*.pt"))
    if stem not in names:
        there = ", ".join(names) or "there is none"
        raise ClebschError(f"expected the name of a shipped model ({there}), got {name!r}")
    return _models() / f"{stem}.pt"


def cmake_prefix() -> Path:
    """What CMAKE_PREFIX_PATH must hold for a C++ program's ``find_package(clebsch)``.

    Raises ClebschError where the package is not an installed one, since a checkout has no ``clebschConfig.cmake``.
    """
    if not (_PACKAGE / "lib/cmake/clebsch/clebschConfig.cmake").is_file():
        raise ClebschError(
            f"expected {_PACKAGE}/lib/cmake/clebsch/clebschConfig.cmake, found none: this package was not installed "
            "from a wheel. Install it with `pip install .`, or use the prefix of `cmake --install`."
        )
    return _PACKAGE
