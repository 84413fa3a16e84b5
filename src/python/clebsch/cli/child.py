"""Programs that `clebsch doctor` starts: they may hang or crash, which is what it has to find out."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass
class Ended:
    """How a program ended: its output, stdout and stderr together, and in words what went wrong, or ''."""

    output: str
    problem: str


def run_child(
    command: Sequence[str | os.PathLike[str]],
    seconds: float,
    *,
    folder: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Runs a program without input for at most `seconds`. It and all that it starts are then ended: PyPI's lmp and
    mpiexec are wrappers, whose own end would leave the real program running. Raises nothing but an interrupt."""
    try:
        # fmt: off
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", cwd=folder, env=environment, start_new_session=True,
        )
        # fmt: on
    except OSError as error:
        return Ended("", f"it cannot be started: {error.strerror or error}")
    problem = ""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return Ended(output, f"it did not end within {seconds:g} s")
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode < 0:
        try:
            name = signal.Signals(-process.returncode).name
        except ValueError:
            name = str(-process.returncode)
        problem = f"it was ended by signal {name}"
    elif process.returncode > 0:
        problem = f"it ended with exit status {process.returncode}"
    return Ended(output, problem)
