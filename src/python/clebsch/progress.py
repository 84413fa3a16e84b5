"""How long work tells how far it is. The package never prints: a caller gives a function, as the command line does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

#: ``progress(what, done, total)``: `done` of `total` steps of the work that `what` names are done. It is called in the
#: thread that asked for the work. What it raises ends the work, and the caller gets it.
Progress = Callable[[str, int, int], None]

#: How often the library is asked how far it is, seconds.
_INTERVAL = 0.1

_Result = TypeVar("_Result")


def silent(what: str, done: int, total: int) -> None:
    """For callers who do not watch."""


def watched(work: Callable[[Any], _Result], progress: Progress) -> _Result:
    """work(handle), a call of the library that writes into `handle` (torch.classes.clebsch.Progress) how far it is.

    The call cannot come back to Python, so it has a thread of its own, and this one looks at the handle. An interrupt
    therefore ends long work, at its next step, and not only when all is done. Raises what `work` or `progress` raises.
    """
    if progress is silent:
        return work(None)
    import torch

    handle = torch.classes.clebsch.Progress()
    results: list[_Result] = []
    errors: list[BaseException] = []
    ended = threading.Event()  # Thread.join, when interrupted, takes a running thread for one that has ended

    def call() -> None:
        try:
            results.append(work(handle))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=call, name="clebsch").start()
    try:
        while not ended.wait(_INTERVAL):
            _tell(handle, progress)
        _tell(handle, progress)
    except BaseException:
        handle.cancel()
        ended.wait()
        raise
    if errors:
        raise errors[0]
    return results[0]


def _tell(handle: Any, progress: Progress) -> None:
    what, done, total = handle.state()
    if total > 0:
        progress(what, done, total)
