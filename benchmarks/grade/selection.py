"""How long it takes to choose 500 of many environments by their features.

    python benchmarks/grade/selection.py --rows 1000000 --json out.json [--method doptimal] [--columns 128]

Features are normal numbers with deviations that fall from 1 to 1e-3 over the columns, and one row in a thousand ten
times as large: what a pool has. Before a method is timed, its choice among 20,000 rows is compared with that of plain
greedy passes over all rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src/python")]
import common  # noqa: E402

from clebsch.grade import spectrum  # noqa: E402
from clebsch.sampling.selection import select  # noqa: E402


def features(rows: int, columns: int, dtype: str) -> np.ndarray:
    """In pieces: no second array of that size."""
    rng = np.random.default_rng(3)
    result = np.empty((rows, columns), dtype=dtype)
    for first in range(0, rows, 100_000):
        part = result[first : first + 100_000]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32) * np.geomspace(1, 1e-3, columns)
        part[rng.random(len(part)) < 1e-3] *= 10
    return result


def plain(rows: np.ndarray, count: int) -> list[int]:
    """Each time a pass over all rows."""
    covariance = rows.T @ rows / len(rows)
    u = rows @ spectrum(covariance).whitening(len(rows))
    p, chosen = np.eye(u.shape[1]), []
    for _ in range(count):
        scores = np.einsum("ij,jk,ik->i", u, p, u, optimize=True)
        scores[chosen] = -1
        chosen.append(int(scores.argmax()))
        step = p @ u[chosen[-1]]
        p -= np.outer(step, step) / (1 + u[chosen[-1]] @ step)
    return chosen


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--method", default="doptimal")
    parser.add_argument("--dtype", default="float64", help="of the features in memory")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, default=Path("select.json"))
    args = parser.parse_args()
    few = features(20_000, args.columns, "float64")
    if args.method == "doptimal" and select(few, 60).tolist() != plain(few, 60):
        raise SystemExit("expected the choice of plain greedy passes, got another")
    pool = features(args.rows, args.columns, args.dtype)
    if args.device != "cpu":
        import torch

        there = torch.from_numpy(few).to(args.device)
        if select(there, 60).tolist() != plain(few, 60):
            raise SystemExit(f"expected the choice of plain greedy passes on {args.device}, got another")
        pool = torch.from_numpy(pool).to(args.device)
        select(pool[:100_000], 5)  # the libraries are loaded
    begin = time.perf_counter()
    chosen = select(pool, args.count, args.method)
    seconds = time.perf_counter() - begin
    assert len(set(chosen.tolist())) == args.count
    print(
        f"{args.method}: {args.count} of {args.rows} rows of {args.columns} {args.dtype} features: {seconds:.2f} s",
        flush=True,
    )
    name = f"select_{args.count}_of_{args.rows:.0e}_s".replace("+0", "")
    if args.device != "cpu":
        name += "_gpu"
    if args.method != "doptimal":
        name = name.replace("select", f"select_{args.method}")
    common.save(args.json, [{
        "name": name, "value": seconds, "unit": "s", "spread": None, "dtype": args.dtype, "deterministic": True,
        "error": None, "peer": None, **common.about(args.device),
    }])  # fmt: skip


if __name__ == "__main__":
    main()
