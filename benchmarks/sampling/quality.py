"""How good sketches are: kappa(SQ) and residuals of the exact law and of the product law, as section 3.4.2 of
Bharadwaj's dissertation has them; and the histogram of its figure 3.8.

  benchmarks/run sampling-quality [--device cpu]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/sampling"), str(ROOT / "src/python")]

import common  # noqa: E402
from problems import condition, gram_of, residual, spiked_factors, whitening  # noqa: E402

from clebsch.sampling import KhatriRaoSampler, ProductLawSampler  # noqa: E402

COUNT = 5000
#: Means of 50 trials in the authors' records: kappa of the exact and of the product law, residual of both.
SEED = {
    (16, 6): (1.105, 7.8, 1.0014, 1.012), (32, 6): (1.178, 13.1, 1.0022, 1.075),
    (64, 6): (1.314, 18.8, 1.0092, 1.139), (128, 6): (1.549, 26.7, 1.0154, 1.265),
    (64, 3): (1.294, 4.83, 1.0068, 1.013), (64, 4): (1.294, 7.83, 1.0071, 1.029),
    (64, 5): (1.304, 14.1, 1.0051, 1.059), (64, 7): (1.319, 34.4, 1.0030, 1.245),
    (64, 8): (1.313, 40.9, 1.0022, 1.378), (64, 9): (1.300, 47.2, 1.0127, 1.718),
}  # fmt: skip


def sketches(rows: int, columns: int, count: int, device: str, problem: int, draws: int) -> list[list[float]]:
    """kappa and residual, of the exact and of the product law, for some draws from one problem."""
    factors = spiked_factors(rows, columns, count, device, problem)
    random = torch.Generator(device=device).manual_seed(problem + 1_000_000)
    sides = [torch.randn(rows, dtype=torch.float64, device=device, generator=random) for _ in factors]
    sides = [c / c.norm() for c in sides]
    gram = gram_of(factors)
    right = math.prod(u.T @ c for u, c in zip(factors, sides, strict=True))
    basis = whitening(gram)
    found: list[list[float]] = [[] for _ in range(draws)]
    for sampler in (KhatriRaoSampler(factors), ProductLawSampler(factors)):
        for number, one in enumerate(found):
            drawn = sampler.draw(COUNT, seed=problem * draws + number)
            one += [condition(drawn, basis), residual(drawn, gram, right, sides)]
    return found


def histogram(path: Path) -> None:
    """Leverages of a product of 512 rows, and how often 50,000 draws met them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    factors = spiked_factors(8, 8, 3, "cpu", 4)
    sampler = KhatriRaoSampler(factors)
    drawn = sampler.draw(50_000, seed=1).indices
    found = torch.bincount(64 * drawn[:, 0] + 8 * drawn[:, 1] + drawn[:, 2], minlength=512) / 50_000
    figure, axes = pyplot.subplots(figsize=(9, 3))
    axes.plot(sampler.law().numpy(), lw=1.2, label="leverage / rank")
    axes.plot(found.numpy(), lw=0, marker=".", ms=4, label="50,000 draws")
    axes.set(xlabel="row of the product", ylabel="probability")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--problems", type=int, default=50, help="factors that are made")
    parser.add_argument("--draws", type=int, default=1, help="of each; on a CPU 10 problems and 5 draws are 50 trials")
    parser.add_argument("--rows", type=int, default=2**16)
    parser.add_argument("--out", type=Path, default=Path("."))
    options = parser.parse_args()
    rows, records = [], []
    print(f"{'':15} | {'kappa(SQ): exact law':21} | {'product law':13} | {'residual: exact law':19} | product law\n"
          f"{'columns':>7} {'factors':>7} | {'mean':>6} {'+-':>6} {'seed':>7} | {'mean':>6} {'seed':>6} | "
          f"{'mean':>8} {'seed':>10} | {'mean':>6} {'seed':>6}")  # fmt: skip
    for columns, count in SEED:
        all_trials = []
        for problem in range(options.problems):
            all_trials += sketches(options.rows, columns, count, options.device, problem, options.draws)
        means = [statistics.fmean(column) for column in zip(*all_trials, strict=True)]
        kappa, product, of_exact, of_product = SEED[columns, count]
        kappas = [one[0] for one in all_trials]
        deviation = statistics.stdev(kappas) if len(kappas) > 1 else 0.0
        print(f"{columns:7d} {count:7d} | {means[0]:6.3f} {deviation:6.3f} {kappa:7.3f} | {means[2]:6.2f} "
              f"{product:6.1f} | {means[1]:8.4f} {of_exact:10.4f} | {means[3]:6.3f} {of_product:6.3f}",
              flush=True)  # fmt: skip
        rows.append({"columns": columns, "factors": count, "means": means, "trials": all_trials})
        if count == 6:
            spread = common.quartiles(kappas)[1] if len(kappas) > 1 else 0.0
            records.append({
                "name": f"krp_kappa_r{columns}", "value": means[0], "unit": "condition", "dtype": "float64",
                "deterministic": True, "spread": spread, "error": means[0] / kappa - 1,
                "peer": {"name": "the dissertation", "version": "", "value": kappa}, **common.about(options.device),
            })  # fmt: skip
        common.save(options.out / "quality.json", rows)
        common.save(options.out / "records.json", records)
    histogram(options.out / "histogram.png")


if __name__ == "__main__":
    main()
