"""Errors of the Python package."""

from __future__ import annotations


class ClebschError(RuntimeError):
    """Something the caller can put right: the message says what was expected, what came, and what to do."""


class ExportRefused(ClebschError):
    """The upstream model uses an option that Clebsch does not have. Nothing was written.

    ``option`` names it as upstream does, for example ``"convnet_resnet"``.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"cannot export this model: {option}: {message}")
        self.option = option
