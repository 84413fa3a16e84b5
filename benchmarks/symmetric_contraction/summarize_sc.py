"""Turns a result of peer_sc.py into the record symmetric_contraction_ratio for benchmarks/record.py.

    python benchmarks/symmetric_contraction/summarize_sc.py SC_PEER.json RECORDS.json

The ratio is the geometric mean over MACE-S, M and L, at the largest number of atoms of the run, of the best peer's time
over ours, forward and backward by the features, fp32. mace-torch's own contraction counts as a peer as well.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

NAME = "symmetric_contraction_ratio"
CASES = ("mace-S", "mace-M", "mace-L")


def main(source: str, target: str) -> None:
    run = json.loads(Path(source).read_text())
    timed = [r for r in run["records"] if "forward_backward_ns_atom" in r and r["dtype"] == "float32"]
    atoms = max(r["atoms"] for r in timed)
    ours, peers = {}, {}
    for r in timed:
        if r["atoms"] != atoms or r["contestant"] == "clebsch drop-in":
            continue
        if r["contestant"] == "clebsch":
            ours[r["case"]] = r
        elif r["forward_backward_ns_atom"] < peers.get(r["case"], {}).get("forward_backward_ns_atom", math.inf):
            peers[r["case"]] = r
    missing = [case for case in CASES if case not in ours or case not in peers]
    if missing:
        raise SystemExit(f"{source}: no times of Clebsch and a peer for {', '.join(missing)}")
    ratios = [peers[c]["forward_backward_ns_atom"] / ours[c]["forward_backward_ns_atom"] for c in CASES]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    spread = max(ours[c]["forward_backward_spread"] / ours[c]["forward_backward_ns_atom"] for c in CASES)
    record = {
        "name": NAME,
        "value": mean,
        "unit": "x best peer",
        "spread": mean * spread,
        "dtype": "float32",
        "deterministic": True,
        "error": max(ours[c]["error"] for c in CASES),
        "peer": {"name": ", ".join(sorted({peers[c]["contestant"] for c in CASES})), "version": "", "value": 1.0},
        **{key: run[key] for key in ("machine", "torch", "driver", "commit", "date", "command")},
    }
    print(NAME, f"{mean:.2f} at {atoms} atoms:", ", ".join(f"{c} {r:.2f}" for c, r in zip(CASES, ratios, strict=True)))
    Path(target).write_text(json.dumps([record], indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
