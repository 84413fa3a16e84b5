"""Time of build and draw against rows, columns and factors: slopes on logarithmic axes, and a picture.

  benchmarks/sampling/slopes.py SAMPLING.json PICTURE.png [--processor]

SAMPLING.json is what `benchmarks/run sampling` leaves. --processor: processors' seconds, the least of the repeats, for
a machine that other programs use as well.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path

#: What varies, and what is expected of (build, draw) where the trees' arithmetic is all of the time.
AXES = {
    "log2_rows": ("rows of a factor", "1, 0: rows x columns\u00b2, log(rows)"),
    "columns": ("columns", "2, 2: columns\u00b2"),
    "factors": ("factors", "1, 1"),
}


def series(cases: list[dict], axis: str) -> list[dict]:
    """The cases that differ along one axis alone: the most of them that share the others."""
    others = [name for name in AXES if name != axis]
    groups: dict[tuple, list[dict]] = {}
    for case in cases:
        groups.setdefault(tuple(case[name] for name in others), []).append(case)
    return sorted(max(groups.values(), key=len), key=lambda case: case[axis])


def slope(x: list[float], y: list[float]) -> float:
    """Of log y against log x, by least squares."""
    a, b = [math.log(v) for v in x], [math.log(v) for v in y]
    return statistics.linear_regression(a, b).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--processor", action="store_true")
    options = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = json.loads(options.results.read_text())
    figure, all_axes = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    for axis, axes in zip(AXES, all_axes, strict=True):
        chosen = series(cases, axis)
        x = [float(2 ** case[axis] if axis == "log2_rows" else case[axis]) for case in chosen]
        first = chosen[0]
        fixed = {"log2_rows": f"2^{first['log2_rows']} rows", "columns": f"{first['columns']} columns",
                 "factors": f"{first['factors']} factors"}  # fmt: skip
        rest = ", ".join(words for name, words in fixed.items() if name != axis)
        print(f"{AXES[axis][0]} ({rest}); expected {AXES[axis][1]}")
        for what, marker in (("build", "o"), ("draw", "s")):
            if options.processor:
                y = [1e3 * min(case[f"work_{what}"]) for case in chosen]
            else:
                y = [1e3 * statistics.median(case[what]) for case in chosen]
            half = len(x) // 2
            print(f"  {what:5} ms:", *(f"{v:.1f}" for v in y),
                  f"| slope {slope(x, y):.2f}, upper half {slope(x[half - 1 :], y[half - 1 :]):.2f}")  # fmt: skip
            axes.loglog(x, y, marker=marker, ms=4, lw=1, label=f"{what}, slope {slope(x, y):.2f}")
        axes.set(xlabel=AXES[axis][0], title=rest)
        if axis != "log2_rows":
            axes.set_xticks(x, [f"{v:.0f}" for v in x])
            axes.minorticks_off()
        axes.legend(frameon=False, fontsize=8)
    all_axes[0].set_ylabel("processors' ms" if options.processor else "ms")
    figure.savefig(options.picture, dpi=120)


if __name__ == "__main__":
    main()
