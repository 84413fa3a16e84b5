"""Energy, clock and time of long runs of the triangle multiplicative update, since the card's power bounds them.

`python benchmarks/triangle/power.py [--sizes 768] [--peers]`: for each size a step with gradients, its forward pass,
its three contractions alone and copies of as many bytes as a step moves at least, each as replays of a graph without a
pause. Energy is what the card counts (NVML's total energy), so it contains what an idle card takes; the clock is that
of the multiprocessors. bfloat16, widths of 128, gate after the projection, a mask, B = 1. About 15 s a size.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable

import steps
import torch

import clebsch.triangle

#: Sizes of x that the kernels of a step read and write, each array once a kernel (docs/developers/triangle.md).
UNITS = 33


class Card:
    """NVML's counters of the first GPU that the process may use; RuntimeError where the driver does not answer."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        self._ask("nvmlInit_v2")
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
        self._ask("nvmlDeviceGetHandleByUUID", uuid, ctypes.byref(self.handle))

    def _ask(self, name: str, *arguments) -> None:
        if status := getattr(self.nvml, name)(*arguments):
            raise RuntimeError(f"{name}: expected 0, got {status}; energies need a driver that counts them")

    def joules(self) -> float:
        millijoules = ctypes.c_ulonglong()
        self._ask("nvmlDeviceGetTotalEnergyConsumption", self.handle, ctypes.byref(millijoules))
        return 1e-3 * millijoules.value

    def megahertz(self) -> int:
        clock = ctypes.c_uint()
        self._ask("nvmlDeviceGetClockInfo", self.handle, 1, ctypes.byref(clock))  # 1: multiprocessors
        return clock.value


def graph_of(work: Callable[[], object]) -> tuple[torch.cuda.CUDAGraph, object]:
    """A graph of `work`, and what its replays write, which has to be kept."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    return graph, kept


def sustain(card: Card, title: str, work: Callable[[], object], seconds: float) -> None:
    graph, kept = graph_of(work)
    graph.replay()
    torch.cuda.synchronize()
    time.sleep(1.5)
    times, clocks = [], []
    begin, replays, at_one_second = time.perf_counter(), 0, None
    while (elapsed := time.perf_counter() - begin) < seconds:
        if at_one_second is None and elapsed > 1:
            at_one_second = (card.joules(), time.perf_counter(), replays)
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(10):
            graph.replay()
        last.record()
        last.synchronize()
        replays += 10
        times.append((elapsed, 100 * first.elapsed_time(last)))
        clocks.append((elapsed, card.megahertz()))
    joules, then, before = at_one_second
    joules, taken = card.joules() - joules, time.perf_counter() - then
    late = [time_ for at, time_ in times if at > 1]
    clock = statistics.median(clock for at, clock in clocks if at > 1)
    early = statistics.median(time_ for at, time_ in times if at < 0.1)
    print(f"  {title:28s} first ten {times[0][1]:8.1f} us, to 0.1 s {early:8.1f}, from 1 s on "
          f"{statistics.median(late):8.1f}; then {clock:.0f} MHz, {joules / taken:4.0f} W, "
          f"{1e3 * joules / (replays - before):8.2f} mJ each", flush=True)  # fmt: skip
    del kept


def measure(card: Card, n: int, seconds: float, with_peers: bool) -> None:
    x, mask, weights, grad = steps.problem(n)
    print(f"N = {n}", flush=True)
    update = clebsch.triangle.triangle_multiplicative_update
    sustain(card, "step with gradients", steps.step_of(update, x, mask, weights, grad), seconds)
    with torch.no_grad():
        sustain(card, "forward", lambda: update(x, mask=mask, **weights), seconds)
    left, right = (torch.randn(128, n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def contractions():
        return left @ right.mT, left @ right, left.mT @ right

    sustain(card, "three products by torch", contractions, seconds)
    # A copy reads one size and writes one. Each is of another place, so that none finds its rows in the L2 cache.
    source = torch.randn(UNITS // 2, n * n * 128, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)

    def copies():
        for into, of in zip(target, source, strict=True):
            torch.neg(of, out=into)

    sustain(card, f"copies, {UNITS // 2 * 2} sizes of x", copies, seconds)
    sustain(card, "the same by one memcpy", lambda: target.copy_(source), seconds)
    if with_peers:
        import peers

        of_peers = peers.contenders("after", torch.bfloat16, False, True)
        for name in (name for name in of_peers if "cuEquivariance" in name):
            leaves = [x.detach().clone().requires_grad_()]
            given = {key: weight.detach().clone().requires_grad_() for key, weight in weights.items()}
            leaves += given.values()

            def step(call=of_peers[name], leaves=leaves, given=given):
                return torch.autograd.grad(call(leaves[0], mask, given), leaves, grad)

            sustain(card, name, step, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="768")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each loop; what is told of is from 1 s on")
    parser.add_argument("--peers", action="store_true", help="cuEquivariance as well")
    options = parser.parse_args()
    if options.seconds <= 1:
        parser.error(f"--seconds: expected more than 1, got {options.seconds}")
    card = Card()
    begin = card.joules()
    time.sleep(2)
    print(f"{torch.cuda.get_device_name()}, at rest {(card.joules() - begin) / 2:.0f} W")
    steps.check(200)
    for n in map(int, options.sizes.split(",")):
        measure(card, n, options.seconds, options.peers)


if __name__ == "__main__":
    main()
