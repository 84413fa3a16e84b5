"""How calls of attention are timed, and what is wrong in them."""

from __future__ import annotations

from collections.abc import Callable

import common
import torch


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


def event_times(work: Callable, repeats: int, inner: int) -> list[float]:
    """As common.event_times, after three that are not timed."""
    for _ in range(3):
        work()
    return common.event_times(work, repeats, inner)


def forward_times(call: Callable, tensors: list[torch.Tensor], repeats: int) -> tuple[list[float], str]:
    """Of replays of a graph of ten calls, which the L2 cache does not empty between; else of calls."""
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call(*tensors)
        torch.cuda.current_stream().wait_stream(stream)
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(10):
                    call(*tensors)
        except RuntimeError:
            torch.cuda.synchronize()
            return event_times(lambda: call(*tensors), repeats, 10), "calls"
        return [t / 10 for t in event_times(graph.replay, repeats, 3)], "graph"


def both_times(call: Callable, tensors: list[torch.Tensor], repeats: int, replayed: bool = False) -> list[float]:
    """Of forward and backward: calls, or where `replayed` replays of a graph of three, if that can be captured."""
    x = [t.detach().clone().requires_grad_() for t in tensors]
    weight = torch.randn_like(x[0])

    def step():
        torch.autograd.grad(call(*x), x, weight)

    if not replayed:
        return event_times(step, repeats, 5)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(3):
                step()
    except RuntimeError:
        torch.cuda.synchronize()
        return event_times(step, repeats, 5)
    return [t / 3 for t in event_times(graph.replay, repeats, 3)]


def peak_memory(call: Callable, tensors: list[torch.Tensor]) -> tuple[int, int]:
    """Bytes that a forward pass takes at most, beyond inputs and results, and a forward and backward pass, beyond
    gradients too. `call` returns out, or out and norm."""

    def size(results) -> int:
        results = results if isinstance(results, tuple) else (results,)
        return sum(t.untyped_storage().nbytes() for t in results)

    with torch.no_grad():
        size(call(*tensors))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        found = size(call(*tensors))
        forward = torch.cuda.max_memory_allocated() - before - found
    x = [t.detach().requires_grad_() for t in tensors]

    def step() -> int:
        results = call(*x)
        out = results[0] if isinstance(results, tuple) else results
        return size(results) + size(torch.autograd.grad(out, x, weight))

    weight = torch.randn_like(tensors[0])
    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = step()
    return forward, torch.cuda.max_memory_allocated() - before - found
