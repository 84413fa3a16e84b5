"""Turns a result of bench_conv.py --peer into records of tests/gpu/results/summary.json, replacing those of the names.

    python tests/gpu/summarize_conv.py tests/gpu/results/conv_peer_1000.json tests/gpu/results/summary.json

A ratio is the geometric mean over the problems of peer time / our time, atomic against atomic and deterministic against
deterministic.
"""

import json
import math
import os
import sys


def main(source, target):
    with open(source) as file:
        run = json.load(file)
    times = {(r["name"], r["dtype"], r["what"]): r for r in run["records"] if "forward_ns" in r}
    problems = sorted({name for name, _, _ in times})
    records = []
    for dtype, bits in (("float32", "fp32"), ("float64", "fp64")):
        for mode in ("atomic", "deterministic"):
            pairs = [
                (times.get((p, dtype, f"clebsch {mode}")), times.get((p, dtype, f"openequivariance {mode}")))
                for p in problems
            ]
            if not pairs or not all(a and b for a, b in pairs):
                continue
            for way, short in (("forward", "fwd"), ("backward", "bwd")):
                ratios = [peer[f"{way}_ns"] / ours[f"{way}_ns"] for ours, peer in pairs]
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                spread = max(ours[f"{way}_spread"] / ours[f"{way}_ns"] for ours, _ in pairs)
                infix = "_det" if mode == "deterministic" else ""
                records.append(
                    {
                        "name": f"conv_{short}{infix}_ratio_{bits}",
                        "value": mean,
                        "unit": "x best peer",
                        "spread": mean * spread,
                        "dtype": dtype,
                        "deterministic": mode == "deterministic",
                        "error": max(ours["error"] for ours, _ in pairs),
                        "peer": {"name": "OpenEquivariance", "version": run.get("peer_version", ""), "value": 1.0},
                        "machine": run["machine"],
                        "torch": run["torch"],
                        "driver": run.get("driver", ""),
                        "commit": run["commit"],
                        "dirty": run.get("dirty", False),
                        "date": run["date"],
                        "command": run["command"],
                    }
                )
                print(
                    records[-1]["name"],
                    f"{mean:.2f}",
                    " ".join(f"{p} {r:.2f}" for p, r in zip(problems, ratios, strict=True)),
                )
    kept = []
    if os.path.exists(target):
        with open(target) as file:
            kept = [r for r in json.load(file) if r["name"] not in {new["name"] for new in records}]
    with open(target, "w") as file:
        json.dump(kept + records, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
