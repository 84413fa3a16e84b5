"""What benchmarks/md has measured on one and on several GPUs, as records that the model takes or is compared with.

    python3 benchmarks/scaling records OUT.json MD.json [MD.json ...]

From points of clebsch/kk in float32: gpus1_{model}_{atoms}_ms, gpus{G}_{model}_{comm}_{atoms}_ms; and
gpus2_lammps_atom_us of constants.json: what two GPUs take outside the model beyond what one takes for half the atoms,
divided by passes and by own and ghost atoms, swaps' share taken off; the median of all such pairs of comm halo (of
ghost, where there is none).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import common
import model as scaling
import numpy as np

import cases

#: Part by which the atoms of a rank may differ from those of the one-GPU run that it is compared with.
NEAR = 0.03
FEWEST = 7000  # atoms of a rank: with fewer, starting kernels is what takes the time


def outside(point: dict) -> float | None:
    """ms of a step that are not the model's."""
    phases = point.get("phases_ms")
    return sum(phases.values()) - phases["model"] if phases else None


def lammps_atom_us(points: list[dict], table: dict, facts: dict) -> dict[str, list[float]]:
    """comm -> the constant from each pair of points."""
    found = defaultdict(list)
    one = [p for p in points if p["ranks"] == 1]
    for p in (p for p in points if p["ranks"] == 2 and p["comm"] in ("ghost", "halo") and p["atoms"] >= 2 * FEWEST):
        half = p["atoms"] / 2
        same = [q for q in one if q["case"] == p["case"] and abs(q["atoms"] / half - 1) < NEAR]
        if not same or outside(p) is None or outside(same[0]) is None:
            continue
        case = facts[p["case"]]
        base = cases.CASES[p["case"]].base
        work = scaling.works(
            base, tuple(p["copies"]), 2, case["r_max"], table["skin"]["value"], case["layers"],
            table["gpus_per_host"]["value"],
        )[0]  # fmt: skip
        deep = p["comm"] == "ghost"
        passes, ghosts, swaps = (2, work.deep_ghosts, work.deep_swaps) if deep else (1, work.ghosts, work.swaps)
        extra = 1e3 * (outside(p) - outside(same[0]) * half / same[0]["atoms"])
        found[p["comm"]].append((extra / passes - swaps * table["lammps_swap_us"]["value"]) / (work.owned + ghosts))
    return found


def record(name: str, value: float, unit: str, spread: float | None, error: float | None, where: dict) -> dict:
    """A row of summary.json; machine, versions, commit and command are the point's `where`."""
    about = {key: where[key] for key in ("machine", "torch", "driver", "commit", "date", "command")}
    row = {"name": name, "value": value, "unit": unit, "spread": spread, "error": error, "peer": None}
    return row | {"dtype": "float32", "deterministic": True} | about


def main(words: list[str]) -> int:
    """Writes OUT.json; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("points", type=Path, nargs="+")
    args = parser.parse_args(words)
    points = [p for path in args.points if path.exists() for p in json.loads(path.read_text())]
    points = [p for p in points if p["name"].startswith("md/") and p["style"] == "kk" and p["dtype"] == "float32"]
    points = [p for p in points if not p.get("failure") and p.get("step_ms")]
    if not points:
        raise SystemExit(f"expected points of clebsch/kk in float32 in {', '.join(map(str, args.points))}, got none")
    file, rows = json.loads((scaling.HERE / "constants.json").read_text()), []
    for p in points:
        key = p["case"].lower().replace("-", "_")
        ranks = f"gpus{p['ranks']}_{key}" + (f"_{p['comm']}" if p["ranks"] > 1 else "")
        spread = p["relative_spread"] * p["step_ms"] if "relative_spread" in p else None
        rows.append(record(f"{ranks}_{p['atoms']}_ms", p["step_ms"], "ms", spread, p["error"], p))
    found = lammps_atom_us(points, file["constants"], file["cases"])
    if values := found.get("halo") or found.get("ghost"):
        spread = float(np.subtract(*np.quantile(values, [0.75, 0.25])))
        rows.append(record("gpus2_lammps_atom_us", float(np.median(values)), "us", spread, None, points[0]))
    else:
        print("gpus2_lammps_atom_us: expected steps on two GPUs and on one with half the atoms, got none")
    for row in rows:
        print(f"{row['name']} {row['value']:.4g} {row['unit']}")
    common.save(args.out, rows)
    return 0
