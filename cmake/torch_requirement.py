"""The wheel's requirements, for scikit-build-core (pyproject.toml): those listed there, and torch as it was built for.

C++ has no interface that two releases of torch share, so the wheel works with that release alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any


class Provider:
    """A provider of dynamic metadata: https://scikit-build-core.readthedocs.io, "Dynamic metadata"."""

    def __init__(self) -> None:
        self._of_source = False

    def build_state(self, build_state: str) -> None:
        self._of_source = build_state == "sdist"

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        """A source distribution does not know yet which torch it will be built for."""
        return {"dependencies": True}

    def dynamic_metadata(self, settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, list[str]]:
        """The setting `dependencies`, and the torch that builds; raises PackageNotFoundError without one."""
        torch = "torch"
        if not self._of_source:
            torch += "==" + metadata.version("torch").split("+", 1)[0]  # 2.11.0+cpu is the same release
        return {"dependencies": [*settings["dependencies"], torch]}
