"""Progress bars on stderr, for whoever watches: none when stderr is no terminal, with --quiet, or without tqdm."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

#: Work that is done sooner shows no bar, seconds.
_PATIENCE = 0.5


class Bar(AbstractContextManager["Bar"]):
    """Called as ``bar(what, done, total)`` by the work (clebsch.progress); one bar for each `what` in turn."""

    def __init__(self, quiet: bool = False) -> None:
        self._make: Any = None
        self._bar: Any = None
        self._what = ""
        if quiet or not sys.stderr.isatty():
            return
        try:
            from tqdm import tqdm
        except ImportError:  # in the environment of --python
            return
        self._make = tqdm

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._make is None:
            return
        if self._bar is not None and (what != self._what or done < self._bar.n):
            self.close()
        if self._bar is None:
            self._what = what
            # fmt: off
            self._bar = self._make(
                desc=what, total=total, file=sys.stderr, leave=False, delay=_PATIENCE, dynamic_ncols=True,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]",
            )
            # fmt: on
        self._bar.total = total
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Takes the bar away, so that what is printed next begins on a clean line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __exit__(self, *_: object) -> None:
        self.close()
