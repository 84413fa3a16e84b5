"""How long one step of a peer takes, each way in which its users can run it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from common import event_times, quartiles

#: Milliseconds of steps that are timed together, in one loop.
LOOP = 40.0
#: Relative difference of a replay's forces from those of a call, beyond which replays are not timed.
LIMIT = 1e-4


def peer_times(step: Callable[[], dict], repeats: int, device: str) -> dict[str, object]:
    """Times of `step`, which returns "forces", in milliseconds.

    "alone": a call that is waited for, as an engine that reads its forces has it. On a GPU also "queued", calls that
    follow each other, which hides the time between a call and its kernels as replays hide it; and "graph", replays of a
    CUDA graph of one call, where it can be recorded and its forces are those of the call. Returned are `ms` and
    `spread_ms` (the middle half) of the fastest way, its name as `way`, and the medians of all as `ways`.
    """
    on_gpu = device.startswith("cuda")
    times = {"alone": []}
    for _ in range(3 if on_gpu else 1):
        step()
    for _ in range(repeats):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        times["alone"].append(1e3 * (time.perf_counter() - start))
    if on_gpu:
        inner = max(2, min(20, round(LOOP / statistics.median(times["alone"]))))
        times["queued"] = [1e-3 * time_ for time_ in event_times(step, repeats, inner)]
        try:
            times["graph"] = graph_times(step, repeats)
        except Exception as trouble:  # noqa: BLE001 - many steps cannot be recorded, and are timed as calls
            torch.cuda.synchronize()
            print(f"  no graph: {type(trouble).__name__}: {(str(trouble).splitlines() or [''])[0][:160]}", flush=True)
    medians = {way: statistics.median(found) for way, found in times.items()}
    way = min(medians, key=medians.get)
    ms, spread = quartiles(times[way])
    return {"ms": ms, "spread_ms": spread, "way": way, "ways": medians}


def graph_times(step: Callable[[], dict], repeats: int) -> list[float]:
    """Milliseconds of replays of a graph of `step`; RuntimeError where a replay's forces are not those of a call."""
    expected = step()["forces"].detach().clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()
    kept["forces"].detach().zero_()
    graph.replay()
    difference = float((kept["forces"].detach() - expected).norm() / expected.norm())
    if not difference <= LIMIT:
        raise RuntimeError(f"forces of a replay: expected those of a call, got a difference of {difference:.1e}")
    torch.cuda.synchronize()
    start = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    inner = max(2, min(200, round(LOOP / (1e3 * (time.perf_counter() - start)))))
    return [1e-3 * time_ for time_ in event_times(graph.replay, repeats, inner)]
