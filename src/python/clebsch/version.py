"""The version of this package: that of the source tree it lies in, else that of the installed distribution."""

from importlib.metadata import version
from pathlib import Path

_tree = Path(__file__).resolve().parents[3]  # of src/python/clebsch

__version__ = (
    (_tree / "VERSION").read_text().strip() if (_tree / "pyproject.toml").is_file() else version("clebsch")
)
