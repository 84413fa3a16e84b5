"""How good sketches are: kappa(SQ) and residuals of the exact law and of the product law, as section 3.4.2 of
Bharadwaj's dissertation has them; and the histogram of its figure 3.8.

  benchmarks/run sampling-quality [--device cpu]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/sampling"), str(ROOT / "src/python")]

import common  # noqa: E402
from problems import condition, residual, spiked_factors, whitening  # noqa: E402

from clebsch.sampling import KhatriRaoSampler, ProductLawSampler  # noqa: E402

COUNT = 5000
#: Means of the authors' records: kappa of the exact law, of the product law; residual of the product law.
SEED = {
    (64, 3): (1.30, 4.8, 1.013), (64, 4): (1.30, 7.8, 1.029), (64, 5): (1.30, 14.0, 1.059),
    (64, 6): (1.314, 25.0, 1.187), (64, 7): (1.30, 34.0, 1.245), (64, 8): (1.30, 41.0, 1.378),
    (64, 9): (1.30, 47.0, 1.718),
    (16, 6): (1.105, 7.8, None), (32, 6): (1.178, 13.0, None), (128, 6): (1.549, 27.0, None),
}  # fmt: skip


def trial(rows: int, columns: int, count: int, device: str, seed: int) -> list[float]:
    """kappa and residual, of the exact and of the product law."""
    factors = spiked_factors(rows, columns, count, device, seed)
    random = torch.Generator(device=device).manual_seed(seed + 1_000_000)
    sides = [torch.randn(rows, dtype=torch.float64, device=device, generator=random) for _ in factors]
    sides = [c / c.norm() for c in sides]
    basis, found = whitening(factors), []
    for sampler in (KhatriRaoSampler(factors), ProductLawSampler(factors)):
        drawn = sampler.draw(COUNT, seed=seed)
        found += [condition(drawn, basis), residual(drawn, factors, sides)]
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
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--rows", type=int, default=2**16)
    parser.add_argument("--out", type=Path, default=Path("."))
    options = parser.parse_args()
    rows, records = [], []
    print(f"{'columns':>7} {'factors':>7} | {'kappa':>6} {'seed':>6} | {'product':>7} {'seed':>6} | "
          f"{'residual':>8} | {'product':>7} {'seed':>6}")  # fmt: skip
    for columns, count in SEED:
        all_trials = [trial(options.rows, columns, count, options.device, s) for s in range(options.trials)]
        means = [statistics.fmean(column) for column in zip(*all_trials, strict=True)]
        kappa, product, of_product = SEED[columns, count]
        print(f"{columns:7d} {count:7d} | {means[0]:6.3f} {kappa:6.3f} | {means[2]:7.2f} {product:6.1f} | "
              f"{means[1]:8.4f} | {means[3]:7.3f} {of_product or float('nan'):6.3f}", flush=True)  # fmt: skip
        rows.append({"columns": columns, "factors": count, "means": means, "trials": all_trials})
        if count == 6:
            kappas = [one[0] for one in all_trials]
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
