"""Exit statuses, and one message for whatever a command raised."""

from __future__ import annotations

from ..errors import ClebschError

#: 0 is done and 2, a wrong command line, is argparse's own.
FAILED, INTERRUPTED = 1, 130


def message(error: Exception) -> str:
    """What the user reads instead of a traceback: expected, got, what to do.

    A ClebschError says so itself. Errors of the system have a file and a reason. A package that is missing has a name.
    Anything else is a fault of ours, or of a package that we call, whose place only the traceback has.
    """
    if isinstance(error, ClebschError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or str(error)).split(".")[0]
        return f"expected the Python package {package}, which is not installed here (clebsch doctor says what else is)"
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return f"{file}{error.strerror}"
    if isinstance(error, MemoryError):
        return "out of memory"
    text = " ".join(str(error).split("\nException raised from", 1)[0].split())
    return (
        f"unexpected {type(error).__name__}: {text or 'without a message'}. This should not happen: the same command "
        "with --debug shows where, which belongs into a report"
    )
