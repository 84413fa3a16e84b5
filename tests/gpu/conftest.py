"""Tests that run on a GPU: who runs, for how long, and what is written down.

Every test here carries the marker `gpu`. Without a GPU it is skipped, with the reason; CLEBSCH_REQUIRE_GPU=1 makes a
missing GPU, library or model file a failure. `--device cpu` runs those tests that can run on the CPU too.

A test that has not begun when `--deadline` is over fails with "not begun", one that runs longer than `--limit` fails
with "ran out of time", and a process that hangs in a kernel is ended: the test that hung is reported as failed.
scripts/gpu-tests runs everything in parallel processes and under compute-sanitizer.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch


def _spread_over_gpus() -> None:
    """Every other process of pytest-xdist counts two GPUs the other way round: what takes the first takes another."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker.removeprefix("gw").isdigit() and int(worker[2:]) % 2 and len([*Path("/dev").glob("nvidia[0-9]")]) == 2:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1,0")


_spread_over_gpus()  # before CUDA is asked for anything
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src/python")]
# For the programs that tests start.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src/python"), os.environ.get("PYTHONPATH", "")]))

from clebsch import library  # noqa: E402

REQUIRED = os.environ.get("CLEBSCH_REQUIRE_GPU", "") not in ("", "0")
#: What takes longest to compile comes first, so that no process is left alone with it at the end.
FIRST = (
    "test_interaction", "test_conv", "test_interaction_density", "test_options", "test_faults", "test_md",
    "test_mace", "test_model",
)  # fmt: skip
#: They look at the memory of the whole device.
ALONE = ("test_memory",)
#: Tests with equal values of these parameters share kernels and references: they stay in one process.
TOGETHER = ("problem", "model", "variant", "dtype")

#: Bytes that torch may keep between tests: dozens of processes share a GPU, and so do the programs that tests start.
KEPT = 128 << 20

_started = time.time()
_lost = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu")
    group.addoption("--device", default="cuda", help="cpu: rehearse there what can run there")
    group.addoption("--deadline", type=float, help="seconds after which a test that has not begun fails")
    group.addoption("--limit", type=float, default=240.0, help="seconds that one test may take")
    group.addoption("--shard", default="0/1", help="K/N: run every N-th test, from the K-th on")
    group.addoption("--misaligned", action="store_true", help="tensors that are moved begin at no multiple of 16 bytes")
    group.addoption("--tool", help="a tool of compute-sanitizer: the tests marked sanitize that are meant for it")
    group.addoption("--kernels", action="store_true", help="write down which kernels every test launches")
    group.addoption("--results", help="a file that gets one line of JSON for every finished test")


def _option(config: pytest.Config, name: str):
    """An option of this file; its default where pytest found this file too late to ask it."""
    return config.getoption(name, {"--device": "cuda", "--limit": 240.0, "--shard": "0/1"}.get(name))


def _missing(config: pytest.Config) -> str:
    """Why no test can run here; '' when the tests can."""
    state = library.load()
    if state.path is None:
        return state.problem
    if _option(config, "--device") == "cuda" and not torch.cuda.is_available():
        return f"no CUDA GPU here (torch {torch.__version__})"
    return ""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): tests that pytest-xdist gives to one process")
    given = getattr(config, "workerinput", {}).get("clebsch_started")
    if given is not None:  # the deadline counts from the start of the run, not from that of this process
        global _started
        _started = given
    if REQUIRED and (problem := _missing(config)):
        pytest.exit(f"CLEBSCH_REQUIRE_GPU is set, but: {problem}", returncode=1)
    if _option(config, "--misaligned"):
        from misaligned import misalign_moved_tensors

        misalign_moved_tensors()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Of pytest-xdist: what a new process is told."""
    node.workerinput["clebsch_started"] = _started


def _group(item: pytest.Item) -> str:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    parts = [str(parameters[name]) for name in TOGETHER if name in parameters]
    return " ".join([item.path.stem, *parts]) if parts else ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    problem, on_cpu = _missing(config), _option(config, "--device") != "cuda"
    for item in mine:
        item.add_marker("gpu")
        if item.path.stem in ALONE:
            item.add_marker("alone")
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
        if problem:
            item.add_marker(pytest.mark.skip(reason=problem))
        elif on_cpu and "device" not in item.fixturenames:
            item.add_marker(pytest.mark.skip(reason="runs on a GPU alone"))

    ours = {id(item) for item in mine}

    def rank(item: pytest.Item) -> int:
        return FIRST.index(item.path.stem) if id(item) in ours and item.path.stem in FIRST else len(FIRST)

    def wanted(item: pytest.Item) -> bool:
        mark, tool = item.get_closest_marker("sanitize"), _option(config, "--tool")
        return tool is None or (mark is not None and tool in mark.kwargs.get("tools", (tool,)))

    items.sort(key=rank)
    shard, shards = (int(number) for number in _option(config, "--shard").split("/"))
    kept = [item for item in items if wanted(item)][shard::shards]
    if len(kept) < len(items):
        chosen = {id(item) for item in kept}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Fails a test instead of running it when the time is over, or when an earlier one broke the device's context."""
    deadline = _option(item.config, "--deadline")
    if item.get_closest_marker("skip") is not None:
        return None
    if deadline is not None and time.time() - _started > deadline:
        reason = f"not begun: the run's {deadline:g} s were over"
    elif _lost:
        reason = f"not begun: the device's context is lost since {_lost}"
    else:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    keywords = {name: 1 for name in item.keywords}
    report = pytest.TestReport(item.nodeid, item.location, keywords, "failed", reason, "call")
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@contextlib.contextmanager
def _launches(item: pytest.Item):
    """With --kernels: how often which kernels ran meanwhile, as the property `kernels` of the test."""
    if not item.config.getoption("--kernels", False) or not torch.cuda.is_available():
        yield
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as watched:
        yield
        torch.cuda.synchronize()
    on_gpu = [event.name for event in watched.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    item.user_properties.append(("kernels", dict(collections.Counter(on_gpu))))


def _out_of_time(signum, frame) -> None:
    raise TimeoutError("ran out of time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Ends a test that takes too long, and finds out which test a fault of the device belongs to."""
    global _lost
    limit = _option(item.config, "--limit")
    alarmed = threading.current_thread() is threading.main_thread()  # no other thread may handle signals
    if alarmed:
        before = signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, limit)
    # A call that never returns to Python sees no signal: the process ends, and pytest-xdist reports the test as failed.
    faulthandler.dump_traceback_later(limit + 60, exit=True, file=sys.__stderr__)
    try:
        with _launches(item):
            result = yield
    except TimeoutError as error:
        if str(error) == "ran out of time":
            pytest.fail(f"ran out of time: no end after {limit:g} s", pytrace=False)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
        if alarmed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        if torch.cuda.is_initialized():
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                _lost = item.nodeid
                raise
    return result


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if torch.cuda.is_initialized() and not _lost and torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()


def _write(config: pytest.Config, line: dict) -> None:
    path = _option(config, "--results")
    if path and not hasattr(config, "workerinput"):
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    _write(session.config, {"collected": [item.nodeid for item in session.items]})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids: list[str]) -> None:
    _write(node.config, {"collected": [name.split("@")[0] for name in ids]})


class Results:
    """Writes a line as soon as a test is finished, so that a run that is ended from outside leaves what it knows."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        text = ""
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else str(report.longrepr)
        elif report.outcome == "skipped":
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        line = {"test": report.nodeid.split("@")[0], "outcome": report.outcome, "text": text[:2000]}
        _write(self.config, line | {"seconds": round(report.duration, 3), **dict(report.user_properties)})


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Results(session.config))


@pytest.fixture(autouse=True)
def _threads() -> None:
    """Many processes share the cores."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


@pytest.fixture(autouse=True)
def _unwritten(request: pytest.FixtureRequest):
    """In tests marked sanitize, memory from torch is NaN, or the largest integer, until a kernel writes to it.

    A kernel that uses memory which nobody wrote then gives a wrong result, and no slow tool is needed to see it. Under
    a tool memory is left alone, since initcheck would take the filling for a write."""
    if request.node.get_closest_marker("sanitize") is None or _option(request.config, "--tool"):
        yield
        return
    # torch fills memory only in this mode. Operations that have no deterministic algorithm warn and run.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The device that is tested. A test that asks for it can be rehearsed on the CPU."""
    return _option(request.config, "--device")


@pytest.fixture
def within(record_property):
    """within(errors, limits): asserts that every named error is at most its limit, and writes the largest down."""

    def check(errors: dict[str, float], limits: float | dict[str, float]) -> None:
        for name, error in errors.items():
            record_property(f"error {name}", float(error))  # numpy's own numbers do not pass between processes
        limit_of = limits if isinstance(limits, dict) else dict.fromkeys(errors, limits)
        over = {name: f"{e:.1e} > {limit_of[name]:.0e}" for name, e in errors.items() if not e <= limit_of[name]}
        assert not over, f"{over}; all: " + ", ".join(f"{name} {e:.1e}" for name, e in errors.items())

    return check
