"""--python: the same command in the environment of an upstream package; --trust: its files are pickles."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .. import library
from ..errors import ClebschError

_HOP = "CLEBSCH_IN_OTHER_PYTHON"  # set for the child of --python, which gets the same arguments
_PACKAGE = Path(__file__).resolve().parents[1]


def add_upstream_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust", action="store_true", help="the input is a pickle, which runs code when loaded: say that you trust it"
    )
    parser.add_argument("--python", metavar="PATH", help="run in this Python, where the upstream package is installed")


def require_trust(options: argparse.Namespace, path: str) -> None:
    """Raises ClebschError unless `path` is a file that the user trusts."""
    if not os.path.isfile(path):
        raise ClebschError(f"expected a file of the upstream package, got {path!r}: no such file")
    if not options.trust:
        raise ClebschError(
            f"{path} is a Python pickle: loading it runs whatever code it holds. If you trust where it comes from, "
            "add --trust"
        )


def runs_elsewhere(options: argparse.Namespace) -> bool:
    return bool(getattr(options, "python", None)) and _HOP not in os.environ


def run_elsewhere(python: str, arguments: Sequence[str]) -> int:
    """The exit status of the same command in another environment, which needs torch and the upstream package but
    neither clebsch nor what the command line uses for progress and completion."""
    # A folder that holds this package alone: our own site-packages must not shadow the other environment's.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "clebsch").symlink_to(_PACKAGE, target_is_directory=True)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, environment.get("PYTHONPATH", "")]))
        environment[_HOP] = "1"
        found = next((path for path in library.candidates() if path.is_file()), None)
        if found is not None:
            environment.setdefault("CLEBSCH_LIBRARY", str(found))
        try:
            status = subprocess.run([python, "-m", "clebsch", *arguments], env=environment, check=False).returncode
        except OSError as error:
            raise ClebschError(f"--python: expected a Python program, got {python!r}: {error.strerror}") from error
    if status < 0:
        raise ClebschError(f"--python: {python} was ended by signal {-status}")
    return status
