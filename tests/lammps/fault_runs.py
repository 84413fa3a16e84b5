"""Runs of lmp in which one rank fails: how long the others live on, and what is said. See faults.cpp."""

import os
import re
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from lammps_runs import MPI_ENVIRONMENT, ROOT, Lammps, System, several

#: Seconds within which all ranks end once one has failed.
LIMIT = 30
#: Seconds for what comes before the fault: starting torch takes 2 s of processor time a rank.
START = 180
BINARIES = Path(os.environ.get("CLEBSCH_TEST_BINARIES", ROOT / "build/tests/lammps/bin"))
#: Written by the input when the run that is to fail begins.
BEGUN = "begun"
FAULTS = BINARIES / "libfaults.so"


@dataclass
class Ended:
    """How a run ended; `seconds` since the fault, or since the signal."""

    returncode: int
    output: str
    seconds: float
    left: list
    files: set
    folder: Path

    @property
    def errors(self) -> list:
        """What LAMMPS and the libraries below it call an error, each joined to one line."""
        text = re.sub(r"\n(?!ERROR)", " ", self.output)
        return [line for line in text.splitlines() if line.startswith("ERROR")]

    def assert_stopped(self, *said: str, rank: int | str | None = None) -> None:
        """All ranks are gone, in time, with one message: LAMMPS's, from `rank`, with all of `said` in it."""
        self.assert_gone()
        assert len(self.errors) == 1, self.output
        joined = " ".join(self.errors[0].split())
        assert all(text in joined for text in said), joined
        if rank is not None:
            assert re.match(rf"ERROR on proc {rank}: ", joined), joined
        assert "terminate called" not in self.output and "Exception" not in self.output, self.output

    def assert_gone(self) -> None:
        assert self.returncode != 0, self.output
        assert self.seconds < LIMIT, f"{self.seconds} s\n{self.output}"
        assert not self.left, self.left
        # Of our own making there is nothing: what is here was written by the test and by LAMMPS.
        assert self.files <= {"in.test", "system.data", "log.test", "fault.time", BEGUN}, self.files


def processes_of(mark: str) -> list:
    """Ids of living processes with this text in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # ended in between, or another user's
            continue
    return found


class FaultyLammps:
    """Inputs that make one of their ranks fail."""

    def __init__(self, lammps: Lammps):
        self.lammps = lammps

    def __call__(
        self,
        system: System,
        pair: str,
        ranks: int,
        fault: str = "",
        env=None,
        before="run 0\n",
        run="run 200",
        after="",
        interrupt=False,
        unnoticed=False,
        newton="on",
        arguments=(),
    ) -> Ended:
        """`before` goes without the fault, `run` with it (faults.cpp; empty: none). `interrupt`: the launcher gets
        SIGINT after a second of `run`. `unnoticed`: the launcher does not see that a rank has ended, but its shell."""
        lammps = self.lammps
        folder = Path(tempfile.mkdtemp(prefix="run", dir=lammps.folder))
        system.write(folder / "system.data")
        text = lammps.header(system, newton) + pair + "neighbor 0.5 bin\nneigh_modify every 1 delay 0 check yes\n"
        text += f"{after}timestep 0.00001\nfix 1 all nve\nthermo 1000000\n{before}"
        text += f'print "yes" file {BEGUN} screen no\n'
        if fault:
            text += f"shell putenv CLEBSCH_FAULT={fault}\n"
        (folder / "in.test").write_text(text + run + '\nprint "all steps done, pe = $(pe:%.16g)"\n')
        mark = f"CLEBSCH_TEST_RUN={uuid.uuid4()}"
        environment = {**os.environ, **MPI_ENVIRONMENT, "OMP_NUM_THREADS": "1", **(env or {})}
        environment.update([mark.split("=")])
        mpiexec, *count = several(ranks)
        program = [lammps.lmp, "-in", "in.test", "-log", "log.test", *arguments]
        keeper = ["sh", "-c", '"$@"; exec sleep 60', "sh"] if unnoticed else []
        command = [mpiexec, *count, *keeper, "env", f"LD_PRELOAD={FAULTS}", *program]
        with open(folder / "output", "w") as output:
            job = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                moment = self._moment(job, folder, interrupt)
                job.wait(max(0.0, moment + LIMIT - time.time()))
            except subprocess.TimeoutExpired:
                pass
            seconds = time.time() - moment
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
                seconds = float("inf")
        left = self._left(mark)
        output = (folder / "output").read_text()
        (folder / "output").unlink()
        return Ended(job.returncode, output, seconds, left, {path.name for path in folder.iterdir()}, folder)

    @staticmethod
    def _moment(job, folder: Path, interrupt: bool) -> float:
        """When the fault was, or the run ended without one."""
        begin = time.time()
        moment = folder / "fault.time"
        begun = 0.0
        while job.poll() is None and time.time() < begin + START:
            if moment.exists() and (text := moment.read_text()).endswith("\n"):
                return float(text)
            if interrupt and (folder / BEGUN).exists():
                begun = begun or time.time()
                if time.time() > begun + 1:
                    job.send_signal(signal.SIGINT)
                    return time.time()
            time.sleep(0.05)
        return float(moment.read_text()) if moment.exists() else time.time()

    @staticmethod
    def _left(mark: str) -> list:
        """Processes that are still there a second later; ended here, since nobody else would."""
        for _ in range(20):
            if not (left := processes_of(mark)):
                return []
            time.sleep(0.05)
        for process in left:
            os.kill(process, signal.SIGKILL)
        return left
