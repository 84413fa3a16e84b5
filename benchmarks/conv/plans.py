"""Which of the plans of a sweep is fastest: one table a pass and mode, from the JSON of `python benchmarks/conv`.

    python benchmarks/conv/plans.py RESULTS/conv_sweep_8000.json

Times are ns per edge; the last lines are each plan's geometric mean over the problems, planner's time over the plan's:
above 1 the plan is faster than what the planner chooses. A plan that does not fit a problem counts as 1 there.
"""

import json
import math
import sys
from pathlib import Path


def main():
    records = json.loads(Path(sys.argv[1]).read_text())["records"]
    problems = list(dict.fromkeys(r["problem"] for r in records))
    plans = list(dict.fromkeys(r["library"].removeprefix("clebsch").strip() for r in records))
    plans = [p for p in plans if p != "composed"]
    for direction in ("forward", "backward", "double"):
        for mode in ("deterministic", "atomic"):
            times = {}
            for r in records:
                plan = r["library"].removeprefix("clebsch").strip()
                if r["mode"] == mode and r.get(f"{direction}_ns") and plan in plans:
                    times[r["problem"], plan] = r[f"{direction}_ns"]
            if not times or (direction == "forward" and mode == "atomic"):  # the same kernel
                continue
            print(f"{direction}, {mode}")
            print(" " * 14 + "".join(f"{p or 'planner':>18s}" for p in plans) + "  best")
            logs = {p: [] for p in plans}
            for problem in problems:
                base = times.get((problem, ""))
                if not base:
                    continue
                row = {p: times.get((problem, p)) for p in plans}
                best = min((t, p) for p, t in row.items() if t)
                cells = "".join(f"{row[p]:18.3f}" if row[p] else f"{'-':>18s}" for p in plans)
                print(f"{problem:14s}{cells}  {best[1] or 'planner'} ({base / best[0]:.3f}x)")
                for p in plans:
                    logs[p].append(math.log(base / row[p]) if row[p] else 0.0)
            if any(logs.values()):
                print(f"{'mean ratio':14s}" + "".join(f"{math.exp(sum(v) / len(v)):18.3f}" for v in logs.values()))
            print()


if __name__ == "__main__":
    main()
