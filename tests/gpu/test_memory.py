"""Memory of models on a GPU: what a growing system takes and gives back, beside tensors and recordings of others.

python3 -m pytest -q tests/gpu/test_memory.py     with CLEBSCH_LIBRARY, on a machine with a GPU that is otherwise idle
"""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from model_cases import Structure, diamond, evaluate, load

MODEL = "carbon-mace"
MB = 1 << 20
#: Pools of recorded steps have ids from here on (src/model/device/cuda_graph.cpp).
FIRST_POOL = 0x436C656273636800

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def _nothing_of_others():
    gc.collect()
    torch.cuda.empty_cache()
    yield
    gc.collect()
    torch.cuda.empty_cache()


def steps(model, structure: Structure) -> torch.Tensor:
    """Forces of the third of three steps: run, recorded, replayed."""
    for _ in range(3):
        forces = evaluate(model, structure)["forces"]
    assert model.last_run["replayed"]
    return forces


def segments() -> list[dict]:
    return torch.cuda.memory_snapshot()


def pools() -> set[tuple[int, int]]:
    ids = {tuple(segment["segment_pool_id"]) for segment in segments()}
    return {pool for pool in ids if pool[0] >= FIRST_POOL}


def kernels_are_loaded(*structures: Structure) -> None:
    model = load(MODEL, "cuda", "float32")
    for structure in structures:
        steps(model, structure)


def test_growth_leaves_the_cache_of_others() -> None:
    """Blocks that torch keeps for other tensors stay; those of the recording that is gone do not."""
    model = load(MODEL, "cuda", "float32")
    steps(model, diamond(2))
    cached = torch.empty(512 * MB, dtype=torch.uint8, device="cuda")
    address = cached.data_ptr()
    del cached
    before = pools()
    steps(model, diamond(6))
    kept = [segment for segment in segments() if segment["address"] == address]
    assert kept and kept[0]["total_size"] >= 512 * MB and kept[0]["allocated_size"] == 0
    assert len(before) == 1 and len(pools()) == 1 and pools() != before
    del model
    gc.collect()
    assert not pools()
    assert any(segment["address"] == address for segment in segments())


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_growth_beside_a_recording(mode: str) -> None:
    """Another thread records a graph of its own while a model grows and another goes away."""
    small, large = diamond(2), diamond(6)
    kernels_are_loaded(small, large)
    model, other = load(MODEL, "cuda", "float32"), load(MODEL, "cuda", "float32")
    steps(model, small)
    expected = steps(other, large)
    begun, grown = threading.Event(), threading.Event()
    results: dict[str, object] = {}

    def record() -> None:
        try:
            x = torch.arange(1000, device="cuda", dtype=torch.float64)
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
                y = x * 2
                begun.set()
                assert grown.wait(120)
                y = y + 1
            graph.replay()
            torch.cuda.synchronize()
            results["right"] = bool(torch.equal(y, x * 2 + 1))
        except Exception as error:
            results["error"] = error
        finally:
            begun.set()

    thread = threading.Thread(target=record)
    thread.start()
    assert begun.wait(120)
    try:
        forces = evaluate(model, large)["forces"]
        del other
        gc.collect()
        forces = evaluate(model, large)["forces"]
    finally:
        grown.set()
        thread.join()
    assert results == {"right": True}
    assert torch.equal(forces, expected) or (forces - expected).abs().max() < 1e-5 * expected.abs().max()
    steps(model, large)


def memory_of(structure: Structure) -> int:
    """Bytes that a model takes for three steps."""
    before = torch.cuda.mem_get_info()[0]
    model = load(MODEL, "cuda", "float32")
    steps(model, structure)
    taken = before - torch.cuda.mem_get_info()[0]
    del model
    gc.collect()
    torch.cuda.empty_cache()
    return taken


def test_a_big_model_twice() -> None:
    """There is room for one: the second finds what the first gave back, with the first's cache in torch's hands."""
    structure = diamond(16)
    needed = memory_of(structure)
    free = torch.cuda.mem_get_info()[0]
    blocker = torch.empty(free - needed - needed // 4, dtype=torch.uint8, device="cuda")
    expected = None
    for _ in range(2):
        model = load(MODEL, "cuda", "float32")
        forces = steps(model, structure)
        assert expected is None or torch.equal(forces, expected)
        expected = forces
        del model
        gc.collect()
    # Grown from a small system as well: the small step's pool and buffers are gone first.
    model = load(MODEL, "cuda", "float32")
    steps(model, diamond(4))
    assert torch.equal(steps(model, structure), expected)
    del blocker


def test_memory_that_torch_caches_is_found() -> None:
    """A recording's pool takes nothing from torch's cache: when the GPU is full of it, torch gives it back."""
    structure = diamond(12)
    needed = memory_of(structure)
    model = load(MODEL, "cuda", "float32")  # first: of a block that a weight has a part of torch gives nothing back
    free = torch.cuda.mem_get_info()[0]
    hoard = torch.empty(free - needed // 4, dtype=torch.uint8, device="cuda")
    del hoard
    assert torch.cuda.mem_get_info()[0] < needed // 2
    assert torch.isfinite(steps(model, structure)).all()


def test_too_large_is_said() -> None:
    """No memory at all: one error that says what to do, and the model is of use again afterwards."""
    model = load(MODEL, "cuda", "float32")
    expected = steps(model, diamond(2))
    free = torch.cuda.mem_get_info()[0]
    blocker = torch.empty(free - 64 * MB, dtype=torch.uint8, device="cuda")
    with pytest.raises(Exception, match="out of memory on cuda.*Use fewer atoms a GPU"):
        steps(model, diamond(16))
    del blocker
    torch.cuda.empty_cache()
    assert torch.equal(steps(model, diamond(2)), expected)
