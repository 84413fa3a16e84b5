"""The version of this package: that of the source tree it lies in, else that of the installed distribution."""

from pathlib import Path


def _version() -> str:
    tree = Path(__file__).resolve().parents[3]  # of src/python/clebsch
    if (tree / "pyproject.toml").is_file():
        return (tree / "VERSION").read_text().strip()
    from importlib.metadata import version  # 20 ms, which a checkout need not wait for

    return version("clebsch")


__version__ = _version()
