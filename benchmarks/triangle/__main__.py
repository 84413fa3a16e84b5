"""triangle_multiplicative_update beside torch's composition, torch.compile and cuEquivariance; a wrong answer is not
timed.

  benchmarks/run triangle [--device cuda] [-- --quick] [-- --suites leaderboard,af3,phases]

The suites: the seven shapes of GPU MODE's TriMul leaderboard (fp32 in and out, gate before the projection), AlphaFold's
shapes (bf16, gate after, N = 256 to 2048, forward and forward + backward), shapes that nobody tuned for, peak memory,
and the phases of one call against their floors: bytes over the card's measured copy rate, operations over its measured
bf16 rate. Forward times are the lesser of calls' and graph replays', for every contender; errors are root mean squares
against the formula in float64 (float32 and the first lines where that is too large), in those of the output.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src/python"), str(Path(__file__).resolve().parent)]

import common  # noqa: E402
import peers  # noqa: E402
from common import event_times  # noqa: E402
from problems import error_of, expected, ours, problem  # noqa: E402

#: N, batch, D, mask, distribution of x; H = 128.
LEADERBOARD = [
    (256, 2, 128, False, "normal"),
    (768, 1, 128, False, "cauchy"),
    (256, 2, 384, True, "normal"),
    (512, 1, 128, False, "normal"),
    (1024, 1, 128, False, "cauchy"),
    (768, 1, 384, True, "normal"),
    (1024, 1, 384, False, "normal"),
]
AF3 = [256, 512, 768, 1024, 2048]
#: batch, N, dtype of x and of products.
OTHERS = [
    (2, 256, torch.bfloat16), (1, 300, torch.bfloat16), (1, 1100, torch.bfloat16), (1, 512, torch.float16),
    (1, 512, torch.float32),
]  # fmt: skip
BOUND = {"fp16": 1.5e-3, "bf16": 1.2e-2}
NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


#: Seconds before each loop of calls: what ran before it, compiled for long or multiplied in float64, leaves the card at
#: clocks that differ by a fifth, and no contender shall have another's.
REST = 0.25


def rest() -> None:
    torch.cuda.synchronize()
    time.sleep(REST)


def replay_times(work: Callable, repeats: int, inner: int) -> list[float] | None:
    """Of replays of a graph of `work`; None, and a line that says why, where it cannot be recorded."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        graph.replay()
        rest()
        return event_times(graph.replay, repeats, inner)
    except Exception as trouble:  # noqa: BLE001 - it is timed as it is called
        print(f"  not recorded: {type(trouble).__name__}: {(str(trouble).splitlines() or [''])[0][:200]}", flush=True)
        torch.cuda.synchronize()
        return None


def forward_times(call: Callable, repeats: int) -> dict[str, list[float]]:
    """Of calls, and of replays of a graph of one where it can be recorded."""
    with torch.no_grad():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        inner = max(1, min(10, int(0.004 / (time.perf_counter() - begin))))
        rest()
        found = {"eager": event_times(call, repeats, inner)}
        if (replays := replay_times(call, repeats, inner)) is not None:
            found["graph"] = replays
        return found


def both_times(call: Callable, x, mask, weights, repeats: int) -> dict[str, list[float]]:
    """Of steps with gradients: as calls, and as replays of a graph of one where it can be recorded."""
    x = x.detach().clone().requires_grad_()
    w = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
    # Of this call nothing is kept: its graph would tie gradients to the stream it was called on, and a step could not
    # be recorded on another one.
    grad = torch.randn_like(call(x, mask, w).detach())
    leaves = [x, *w.values()]

    def step():
        torch.autograd.grad(call(x, mask, w), leaves, grad)

    for _ in range(2):
        step()
    torch.cuda.synchronize()
    # Steps of a training follow each other. The clock begins before the host has made the first one, which takes it
    # 150 us and more, so that two at a time would count half of that as the GPU's.
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    inner = max(2, min(10, int(0.02 / (time.perf_counter() - begin))))
    rest()
    found = {"eager": event_times(step, repeats, inner)}
    if (replays := replay_times(step, repeats, inner)) is not None:
        found["graph"] = replays
    return found


def contenders_of(options, own: Callable, *of_peers) -> dict[str, Callable]:
    """Ours and those of peers that are not left out."""
    calls = {"clebsch": own}
    if options.peers:
        left_out = options.leave_out.split(",")
        calls |= {name: call for name, call in peers.contenders(*of_peers).items() if name not in left_out}
    return calls


def measure(title, calls, x, mask, weights, gate, precision, repeats, backward=False) -> dict:
    """Every contender: checked, then timed. "forward" is the best of calls and graph; with gradients each has its own
    times, "both_eager" and "both_graph", since at small N calls are the host's time."""
    reference = expected(x, mask, weights, gate)
    rows = {}
    for label, call in calls.items():
        try:
            with torch.no_grad():
                error, near = error_of(call(x, mask, weights), reference)
            if label == "clebsch" and not (error <= BOUND[precision] and (near or precision == "bf16")):
                raise SystemExit(f"{title}: clebsch: expected an error of at most {BOUND[precision]}, got {error}, "
                                 f"within 2e-2: {near}")  # fmt: skip
            if not error < 0.05:
                print(f"  {title} {label}: error {error:.1e}, not timed", flush=True)
                continue
            found = forward_times(lambda call=call: call(x, mask, weights), repeats)
            best = min(found, key=lambda way: statistics.median(found[way]))
            medians = {way: statistics.median(found[way]) for way in found}
            row = {"error": error, "way": best, "forward": found[best], **medians}
            if backward:
                of_both = both_times(call, x, mask, weights, max(5, repeats // 2))
                row |= {f"both_{way}": of_both[way] for way in of_both}
            rows[label] = row
        except (RuntimeError, AssertionError, TypeError, ValueError, torch.OutOfMemoryError) as trouble:
            print(
                f"  {title} {label}: {type(trouble).__name__}: {(str(trouble).splitlines() or [''])[0][:120]}",
                flush=True,
            )
            torch.cuda.synchronize()
            continue
        shown = ""
        if backward:
            shown = f", with backward {statistics.median(row['both_eager']):9.1f} us"
            if "both_graph" in row:
                shown += f" (graph {statistics.median(row['both_graph']):9.1f})"
        print(f"  {title:34s} {label:20s} {statistics.median(row['forward']):9.1f} us ({best:5s}; eager "
              f"{row['eager']:9.1f}){shown}, error {error:.1e}", flush=True)  # fmt: skip
        torch.cuda.empty_cache()
    return rows


def best_peer(rows: dict, part: str = "forward") -> tuple[str, float] | None:
    found = {label: statistics.median(row[part]) for label, row in rows.items() if label != "clebsch" and part in row}
    name = min(found, key=found.get, default=None)
    return None if name is None else (name, found[name])


def geomean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def record(name, values, unit, error, dtype, peer) -> dict:
    value, spread = common.quartiles(values) if len(values) > 4 else (statistics.median(values), None)
    of_cuequivariance = common.version_of("cuequivariance_ops_torch_cu13")
    version = of_cuequivariance if peer and "cuEquivariance" in peer[0] else torch.__version__
    other = peer and {"name": peer[0], "version": version, "value": peer[1]}
    return {
        "name": name, "value": value, "unit": unit, "spread": spread, "dtype": dtype, "deterministic": True,
        "error": error, "peer": other, **common.about("cuda"),
    }  # fmt: skip


def ratio_record(name: str, pairs: list[tuple[float, tuple[str, float]]], dtype: str) -> list[dict]:
    """Geometric mean of the best peer's time in ours."""
    if not pairs:
        return []
    return [record(name, [geomean([peer[1] / mine for mine, peer in pairs])], "x best peer", None, dtype, None)]


def ratios_of_size(n: int, found: dict) -> list[dict]:
    """The best peer's time in ours at one size, of calls and graph whichever is less for each: forward, and forward
    and backward where that was timed."""
    records = []
    for name, ways in (("", ("forward",)), ("bwd_", ("both_eager", "both_graph"))):
        times = {label: min((statistics.median(row[way]) for way in ways if way in row), default=None)
                 for label, row in found.items()}  # fmt: skip
        mine, theirs = times.pop("clebsch"), [time for time in times.values() if time is not None]
        if mine is not None and theirs:
            ratio = min(theirs) / mine
            records.append(record(f"triangle_af3_{n}_{name}ratio", [ratio], "x best peer", None, "bfloat16", None))
    return records


def leaderboard(options) -> tuple[list, list]:
    rows, medians, pairs, worst = [], [], [], 0.0
    for at, (n, batch, d, masked, distribution) in enumerate(LEADERBOARD):
        x, mask, weights = problem(batch, n, d, d, "before", torch.float32, masked, distribution, torch.float32)
        compiled = options.compile and (not options.quick or at in (0, 2))
        calls = contenders_of(options, ours("before", "fp16"), "before", torch.float16, compiled, False)
        found = measure(
            f"leaderboard ({batch}, {n}, {d}) fp32", calls, x, mask, weights, "before", "fp16", options.repeats
        )
        rows.append({"suite": "leaderboard", "shape": [batch, n, d], "contenders": found})
        medians.append(found["clebsch"]["forward"])
        worst = max(worst, found["clebsch"]["error"])
        if peer := best_peer(found):
            pairs.append((statistics.median(found["clebsch"]["forward"]), peer))
        del x, mask, weights
        torch.cuda.empty_cache()
    means = [geomean(list(values)) for values in zip(*medians, strict=True)]
    names = " or ".join(sorted({peer[0] for _, peer in pairs}))
    peer = (names, geomean([p[1] for _, p in pairs])) if len(pairs) == len(LEADERBOARD) else None
    records = [record("triangle_leaderboard_us", means, "us", worst, "float32", peer)]
    return rows, records + ratio_record("triangle_leaderboard_ratio", pairs, "float32")


def af3(options) -> tuple[list, list]:
    rows, records, pairs = [], [], []
    with_backward = {"eager": [], "graph": []}
    for n in map(int, options.sizes.split(",")):
        if options.quick and n == 768:
            continue
        x, mask, weights = problem(1, n, 128, 128, "after", torch.bfloat16, True, "normal", torch.bfloat16)
        compiled = options.compile and (not options.quick or n in (256, 1024))
        calls = contenders_of(options, ours("after", "bf16"), "after", torch.bfloat16, compiled, True)
        repeats = max(7, options.repeats // (3 if n > 1024 else 1))
        backward = options.backward and n <= 1024
        found = measure(f"AlphaFold (1, {n}, 128) bf16", calls, x, mask, weights, "after", "bf16", repeats, backward)
        rows.append({"suite": "af3", "shape": [1, n, 128], "contenders": found})
        mine = found["clebsch"]
        peer = best_peer(found)
        if peer:
            pairs.append((statistics.median(mine["forward"]), peer))
        for way, pairs_of_way in with_backward.items():
            both = best_peer(found, f"both_{way}")
            if both and f"both_{way}" in mine:
                pairs_of_way.append((statistics.median(mine[f"both_{way}"]), both))
        records += ratios_of_size(n, found)
        if n == 1024:
            records.append(record("triangle_1024_bf16_us", mine["forward"], "us", mine["error"], "bfloat16", peer))
        if n == 2048:
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated() - x.nbytes
            torch.cuda.reset_peak_memory_stats()
            with torch.no_grad():
                out = calls["clebsch"](x, mask, weights)
            peak = (torch.cuda.max_memory_allocated() - before) / x.nbytes
            print(f"  peak memory at N = 2048: {peak:.2f} sizes of x, x and the result included", flush=True)
            records.append(record("triangle_peak_memory", [peak], "sizes of x", None, "bfloat16", None))
            del out
        del x, mask, weights
        torch.cuda.empty_cache()
    records += ratio_record("triangle_af3_ratio", pairs, "bfloat16")
    records += ratio_record("triangle_af3_bwd_ratio", with_backward["eager"], "bfloat16")
    records += ratio_record("triangle_af3_bwd_graph_ratio", with_backward["graph"], "bfloat16")
    return rows, records


def others(options) -> tuple[list, list]:
    rows = []
    for batch, n, dtype in OTHERS:
        x, mask, weights = problem(batch, n, 128, 128, "after", dtype, True, "normal", dtype)
        precision = "bf16" if dtype == torch.bfloat16 else "fp16"
        compiled = options.compile and not options.quick
        calls = contenders_of(options, ours("after", precision), "after", DTYPES[precision], compiled, True)
        found = measure(
            f"other ({batch}, {n}, 128) {NAMES[dtype]}", calls, x, mask, weights, "after", precision, options.repeats
        )
        rows.append({"suite": "others", "shape": [batch, n, 128], "dtype": NAMES[dtype], "contenders": found})
    return rows, []


def ceilings() -> tuple[float, float]:
    """Bytes a second of a copy, read and written; operations a second of a large bf16 product of random numbers."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    target.copy_(source)
    copied = 2 * source.nbytes / statistics.median(event_times(lambda: target.copy_(source), 7, 3)) * 1e6
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    a @ a
    return copied, 2 * 8192**3 / statistics.median(event_times(lambda: a @ a, 7, 3)) * 1e6


def phases(options) -> tuple[list, list]:
    """Kernels of one call, by torch's profiler, against their floors."""
    copied, product = ceilings()
    print(f"  ceilings: copy {copied / 1e12:.2f} TB/s, bf16 product {product / 1e12:.0f} TFLOP/s", flush=True)
    rows = []
    shapes = [
        (1, 1024, 128, torch.bfloat16, "after", "bf16"), (1, 256, 128, torch.bfloat16, "after", "bf16"),
        (1, 1024, 128, torch.float32, "before", "fp16"), (1, 1024, 384, torch.float32, "before", "fp16"),
    ]  # fmt: skip
    for batch, n, d, dtype, gate, precision in shapes:
        x, mask, weights = problem(batch, n, d, d, gate, dtype, True, "normal", dtype)
        m, hidden, size = batch * n * n, 128, x.element_size()
        stored = 0 if d <= 128 else 2 * hidden
        floors = {
            "project": (m * (d * size + 4 * hidden + stored), 2 * m * d * (4 * hidden + stored // 2)),
            "contract": (m * 6 * hidden, 2 * batch * hidden * n**3),
            "output": (m * (2 * hidden + (stored or d * size) + d * size), 2 * m * hidden * (d + (0 if stored else d))),
        }
        call = ours(gate, precision)
        with torch.no_grad():
            for _ in range(3):
                call(x, mask, weights)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                for _ in range(5):
                    call(x, mask, weights)
                torch.cuda.synchronize()
        found = {"prepare": 0.0, "project": 0.0, "contract": 0.0, "output": 0.0}
        for event in profile.key_averages():
            total = event.self_device_time_total / 5
            name = event.key.removesuffix("_wide").removesuffix("_warpgroups").removesuffix("_overlapped")
            found[name if name in found else "contract"] += total
        for phase, (moved, operations) in floors.items():
            floor = max(moved / copied, operations / product) * 1e6
            print(f"  ({batch}, {n}, {d}) {NAMES[dtype]} {phase:9s} {found[phase]:8.1f} us, floor {floor:8.1f} us "
                  f"({100 * floor / max(found[phase], 1e-9):.0f}%)", flush=True)  # fmt: skip
        rows.append({"suite": "phases", "shape": [batch, n, d], "dtype": NAMES[dtype], "us": found, "floors": floors,
                     "copy": copied, "product": product})  # fmt: skip
        del x, mask, weights
        torch.cuda.empty_cache()
    return rows, []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="triangle.json")
    parser.add_argument("--records", default="triangle_records.json")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--suites", default="leaderboard,af3,others,phases")
    parser.add_argument("--sizes", default=",".join(map(str, AF3)), help="N of the suite af3")
    parser.add_argument("--quick", action="store_true", help="few shapes with torch.compile, 100 s in all")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--leave-out", default="", help="names of peers, as the lines have them, with commas")
    parser.add_argument("--no-backward", dest="backward", action="store_false")
    options = parser.parse_args()
    rows, records = [], []
    for suite in options.suites.split(","):
        begin = time.perf_counter()
        more_rows, more_records = {"leaderboard": leaderboard, "af3": af3, "others": others, "phases": phases}[suite](
            options
        )
        rows += more_rows
        records += more_records
        common.save(options.json, rows)
        common.save(options.records, records)
        print(f"{suite}: {time.perf_counter() - begin:.0f} s", flush=True)
    for row in records:
        print(f"{row['name']:30s} {row['value']:.4g} {row['unit']}", flush=True)


if __name__ == "__main__":
    main()
