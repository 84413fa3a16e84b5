"""Errors of the Python package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ClebschError(RuntimeError):
    """Something the caller can put right: the message says what was expected, what came, and what to do."""


class ExportRefused(ClebschError):
    """The upstream model uses an option that Clebsch does not have. Nothing was written.

    ``option`` names it as upstream does, for example ``"convnet_resnet"``.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"cannot export this model: {option}: {message}")
        self.option = option


@contextmanager
def refusing_unknown() -> Iterator[None]:
    """Refuses a model whose modules are not put together as the exporter has them, rather than fail in its midst."""
    try:
        yield
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ExportRefused(
            "unknown structure",
            f"{type(error).__name__}: {error}; it was made by another release of the upstream package than the one "
            "that this exporter reads, or with an unusual option",
        ) from error
