"""Options and kinds of values that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable

DTYPES = ("float32", "float64")


def shared_options() -> argparse.ArgumentParser:
    """A parent of every parser, so that these options may stand before and after the command. What is not given is not
    set: else a command's default would undo what stood before it."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("-q", "--quiet", action="store_true", help="no progress bars")
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return shared


def whole_number(least: int) -> Callable[[str], int]:
    """Of an argument that counts something."""

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
        return int(text)

    return convert


def positive(text: str) -> float:
    """Of an argument that measures something."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return value


def names(text: str) -> list[str]:
    """Of a list with commas. Whether a model has them, and that there are some, is for the model to say."""
    return [part.strip() for part in text.split(",") if part.strip()]


def headline(metadata: dict) -> str:
    """A model in one line."""
    layers = f"{metadata['layers']} layer{'s' if metadata['layers'] != 1 else ''}"
    return (
        f"{metadata['family']}, {layers}, types {' '.join(metadata['type_names'])}, "
        f"cutoff {metadata['r_max']:g} A, {metadata['dtype']}"
    )
