"""One line of `clebsch doctor`."""

from __future__ import annotations

from dataclasses import dataclass

#: ok: as it should be. note: not needed, or it works with a drawback. fail: what is there, or has to be, does not work.
OK, NOTE, FAIL = "ok", "note", "fail"


@dataclass
class Finding:
    """What was looked at, how it stands (OK, NOTE, FAIL), what was found, and what to do about it."""

    check: str
    status: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        status = self.status.upper() if self.status == FAIL else self.status
        line = f"{status:5} {self.check:12} {self.found}"
        return " ".join((f"{line}. Remedy: {self.remedy}" if self.remedy else line).split("\n"))
