"""Build and draw of KhatriRaoSampler, at the sizes of section 3.4.1 of Bharadwaj's dissertation; a wrong answer is not
timed.

  benchmarks/run sampling [--device cpu] [-- --largest 25]

Checks first: on problems of moderate size the GPU draws the rows that the CPU draws, with the same weights; and every
problem that is timed is a sketch as good as exact leverages make it, with the Gram matrices that torch finds.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/sampling"), str(ROOT / "src/python")]

import common  # noqa: E402
from problems import condition, gram_of, normal_factors, whitening  # noqa: E402

from clebsch.sampling import KhatriRaoSampler  # noqa: E402

COUNT = 50_000
#: Two EPYC 7763, 128 threads: seconds of build and draw by (log2 rows, columns, factors), figure 3.3.
SEED = {
    (16, 32, 3): (0.010, 0.070), (20, 32, 3): (0.064, 0.176), (22, 32, 3): (0.243, 0.189), (25, 32, 3): (2.03, 0.309),
    (22, 16, 3): (0.15, 0.084), (22, 64, 3): (0.50, 0.675), (22, 128, 3): (1.03, 2.68), (22, 32, 2): (0.18, 0.128),
    (22, 32, 9): (0.74, 0.572),
}  # fmt: skip


def check_rows(device: str) -> None:
    """Rows and weights of the device are the CPU's."""
    for columns in (3, 16, 32, 40, 48, 64, 96, 128, 160):
        factors = normal_factors(5000, columns, 3, "cpu")
        host = KhatriRaoSampler(factors).draw(4000, seed=11)
        there = KhatriRaoSampler([u.to(device) for u in factors]).draw(4000, seed=11)
        same = (host.indices == there.indices.cpu()).all(1)
        share = same.double().mean().item()
        error = ((host.weights - there.weights.cpu()) / host.weights)[same].abs().max().item()
        print(f"check: {columns:4d} columns: {share:.4%} the same rows, weights within {error:.1e}", flush=True)
        if share < 0.9999 or error > 1e-8 or host.rank != there.rank:
            raise SystemExit(f"{columns} columns: expected the CPU's rows and weights, got {share:.4%}, {error:.1e}")


def check_sketch(drawn, factors: list[torch.Tensor]) -> float:
    """kappa(SQ) is what independent rows of these leverages give: (1 + e) / (1 - e), e = sqrt(columns / count)."""
    found = condition(drawn, whitening(gram_of(factors)))
    part = (factors[0].shape[1] / len(drawn.rows)) ** 0.5
    if not 1.0 <= found < 1.0 + 1.5 * ((1 + part) / (1 - part) - 1):
        raise SystemExit(f"expected a sketch of condition near {(1 + part) / (1 - part):.3f}, got {found:.3f}")
    return found


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure(factors: list[torch.Tensor], device: str, repeats: int) -> dict:
    """Seconds of build and of the first draw after it, of fresh samplers; and of a draw with the plan at hand. And the
    processors' seconds, all threads together, of the first two: other programs on a shared machine count less there."""
    build, draw, again, work_build, work_draw = [], [], [], [], []
    for repeat in range(repeats + 1):
        sampler = None
        gc.collect()
        wait(device)
        begin, work = time.perf_counter(), [time.process_time()]
        sampler = KhatriRaoSampler(factors)
        wait(device)
        middle = time.perf_counter()
        work.append(time.process_time())
        drawn = sampler.draw(COUNT, seed=repeat)
        wait(device)
        end = time.perf_counter()
        work.append(time.process_time())
        sampler.draw(COUNT, seed=repeat + 100)
        wait(device)
        last = time.perf_counter()
        if repeat == 0:
            kappa, bytes_beside = check_sketch(drawn, factors), sampler.bytes()
            continue  # kernels were loaded, memory was taken
        build.append(middle - begin)
        draw.append(end - middle)
        again.append(last - end)
        work_build.append(work[1] - work[0])
        work_draw.append(work[2] - work[1])
    return {
        "build": build, "draw": draw, "again": again, "work_build": work_build, "work_draw": work_draw,
        "kappa": kappa, "bytes": bytes_beside,
    }  # fmt: skip


def record(name: str, seconds: list[float], kappa: float, device: str, seed: float | None) -> dict:
    median, spread = common.quartiles([1e3 * s for s in seconds])
    peer = {"name": "the dissertation, 2 x EPYC 7763", "version": "", "value": 1e3 * seed} if seed else None
    return {
        "name": name, "value": median, "unit": "ms", "spread": spread, "dtype": "float64", "deterministic": True,
        "error": kappa - 1, "peer": peer, **common.about(device),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--largest", type=int, default=25, help="log2 of the most rows of a factor")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", default="sampling.json")
    parser.add_argument("--records", default="sampling_records.json")
    parser.add_argument("--skip-sweeps", action="store_true")
    options = parser.parse_args()
    device = options.device
    if device.startswith("cuda"):
        check_rows(device)
    most = options.largest
    cases = [(most, 32, 3), (most - 3, 128, 3)]
    if not options.skip_sweeps:
        cases += [(i, 32, 3) for i in range(most - 9, most)]
        cases += [(most - 3, r, 3) for r in (16, 64)] + [(most - 3, 32, n) for n in (2, 4, 6, 9)]
    rows, records = [], []
    print(f"{'rows':>6} {'columns':>7} {'factors':>7} {'build ms':>9} {'draw ms':>9} {'again ms':>9} "
          f"{'kappa':>6} {'bytes/entry':>11} {'seed build':>10} {'seed draw':>10}")  # fmt: skip
    for log2, columns, count in cases:
        factors = normal_factors(2**log2, columns, count, device)
        found = measure(factors, device, options.repeats)
        seed = SEED.get((log2, columns, count), (None, None))
        build, draw, again = (1e3 * statistics.median(found[key]) for key in ("build", "draw", "again"))
        beside = found["bytes"] / (count * 2**log2 * columns)
        shown = [f"{1e3 * s:10.0f}" if s else f"{'':10}" for s in seed]
        print(f"  2^{log2:<3d} {columns:7d} {count:7d} {build:9.2f} {draw:9.2f} {again:9.2f} {found['kappa']:6.3f} "
              f"{beside:11.2f} {shown[0]} {shown[1]}", flush=True)  # fmt: skip
        rows.append({"log2_rows": log2, "columns": columns, "factors": count, **found})
        main_case = count == 3 and (log2, columns) in ((most, 32), (most - 3, 128))
        if main_case and device.startswith("cuda") and most == 25:
            end = "" if columns == 32 else "_r128"
            records.append(record(f"krp_build{end}_ms", found["build"], found["kappa"], device, seed[0]))
            records.append(record(f"krp_draw{end}_ms", found["draw"], found["kappa"], device, seed[1]))
        del factors
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    common.save(options.json, rows)
    common.save(options.records, records)


if __name__ == "__main__":
    main()
