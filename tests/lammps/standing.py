"""Processes of lmp that take one input after the other.

A rank of lmp spends 0.6 s of processor time on starting torch and reading a model, and next to none on 60 atoms. So by
day inputs that need no process of their own share one, with `clear` between them. By night, and by hand, each has its
own.
"""

import atexit
import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path

#: What `clear` leaves as it is, or what ends the process or reads its input elsewhere. Such an input has a process of
#: its own.
_OWN = re.compile(
    r"^\s*(clear|jump|label|next|log|package|suffix|shell|python|variable|quit|if|plugin (unload|clear|list))\b",
    re.MULTILINE,
)
#: Ranks that may wait at a time, each with some 100 MB of its own.
_RANKS = 12


def can_share(text: str, plugin: str) -> bool:
    """Whether an input leaves a process as it found it. Each loads the one plugin, which is loaded once a process."""
    loads = re.findall(r"^\s*plugin load (.*)$", text, re.MULTILINE)
    return bool(os.environ.get("CLEBSCH_TEST_USUAL")) and loads == [f'"{plugin}"'] and not _OWN.search(text)


def _end_with_parent() -> None:
    """Of the launcher: it goes when the tests are killed, and takes the ranks with it, even stopped ones."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _without_children(root: int) -> list[int]:
    """The processes below `root` that have none below themselves: the ranks."""
    parents = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:  # ended in between
            continue
    found, todo = [], [root]
    while todo:
        process = todo.pop()
        below = [child for child, parent in parents.items() if parent == process]
        todo += below
        if not below and process != root:
            found.append(process)
    return found


class StandingLammps:
    """One process, or one group of ranks."""

    _all: dict[tuple, "StandingLammps"] = {}

    @classmethod
    def of(cls, command: list, environment: dict, ranks: int, folder: Path) -> "StandingLammps":
        """The one that was started like this, or a new one; those that were not used for longest make room."""
        key = (tuple(command), tuple(sorted(environment.items())))
        found = cls._all.pop(key, None)
        if found is None or found.job.poll() is not None:
            while cls._all and ranks + sum(other.ranks for other in cls._all.values()) > _RANKS:
                cls._all.pop(next(iter(cls._all))).end()
            found = cls(command, environment, ranks, folder)
        cls._all[key] = found
        return found

    @classmethod
    def end_all(cls) -> None:
        while cls._all:
            cls._all.popitem()[1].end()

    def __init__(self, command: list, environment: dict, ranks: int, folder: Path):
        self.ranks, self.screen, self.stopped = ranks, folder / "screen", []
        with open(self.screen, "wb") as screen:
            self.job = subprocess.Popen(
                [*command, "-log", "none", "-nonbuf"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=screen,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=_end_with_parent,
            )

    def run(self, folder: Path, timeout: float) -> tuple[int, str]:
        """Runs in.test of a folder there. Returns 0, or what the process ended with, and what it printed."""
        start, end = self.screen.stat().st_size, f"the end of {folder}"
        self._go_on()
        try:
            self.job.stdin.write(f'shell cd {folder}\nlog log.test\ninclude in.test\nclear\nlog none\nprint "{end}"\n')
            self.job.stdin.flush()
        except BrokenPipeError:
            pass
        until = time.time() + timeout
        # The launcher passes on what ranks print when it comes to it: the last line shows that nothing is missing.
        while f"\n{end}\n" not in (output := self._output(start)):
            if self.job.poll() is not None:
                return self.job.poll(), self._output(start)
            if time.time() > until:
                self.end(kill=True)
                raise subprocess.TimeoutExpired(self.job.args, timeout, output)
            time.sleep(0.005)
        self._wait()
        return 0, output.replace(f"{end}\n", "")

    def _output(self, start: int) -> str:
        with open(self.screen, "rb") as screen:
            screen.seek(start)
            return screen.read().decode(errors="replace")

    def _wait(self) -> None:
        """Ranks that wait for rank 0's next line ask for it all the time; stopped ones leave the cores to others."""
        if self.ranks > 1:
            self.stopped = _without_children(self.job.pid)
            self._signal(signal.SIGSTOP)

    def _go_on(self) -> None:
        self._signal(signal.SIGCONT)
        self.stopped = []

    def _signal(self, number: int) -> None:
        for process in self.stopped:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def end(self, kill=False) -> None:
        self._go_on()
        if kill:
            self.job.kill()
        try:
            self.job.communicate(timeout=20)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.job.kill()
            self.job.wait()


atexit.register(StandingLammps.end_all)
