"""Callers of several threads take turns."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class Turns:
    """A lock for an object that one thread may use at a time; a thread may enter it again. A copy or a pickle of the
    object has a lock of its own, and so has a forked child, where the thread that held it is not there."""

    def __init__(self) -> None:
        self._renew()
        _all.add(self)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        return Turns, ()


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _renew_all() -> None:
    for turns in _all:
        turns._renew()


os.register_at_fork(after_in_child=_renew_all)
