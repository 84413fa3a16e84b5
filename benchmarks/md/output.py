"""Lines, records and the picture of what was measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

#: Names of benchmarks/targets.json: case, atoms, field, unit. Taken from clebsch/kk on a GPU alone.
TARGETS = {
    "md_mace_m_8000_katom_steps_s": ("mace-M", 8000, "katom_steps_s", "katom-steps/s"),
    "md_carbon_katom_steps_s": ("carbon", 8000, "katom_steps_s", "katom-steps/s"),
    "md_mace_m_500_ms": ("mace-M", 512, "step_ms", "ms"),
    "md_overhead_8000_percent": ("mace-M", 8000, "overhead_percent", "%"),
}
#: Atoms from which on a run says how many fit on a GPU.
LARGE = 500000


def line(point: dict) -> str:
    """One measured point for a reader."""
    head = f"{point['case']:14s} {point['style']:9s} {point['dtype']:7s} {point['atoms']:8d} atoms"
    if point.get("ranks", 1) > 1:
        head += f" {point['ranks']} ranks" + (f" on {point['gpus']} GPUs" if point["gpus"] else "")
    if point.get("failure"):
        return f"{head}  FAIL {point['failure']}"
    text = (
        f"{head}  {point['step_ms']:9.3f} ms/step {point['katom_steps_s']:9.3f} katom-steps/s "
        f"{point['steps_s']:9.2f} steps/s {point['ns_day']:8.4f} ns/day ({point['timestep_fs']:.3g} fs)  "
        f"{point['steps']} steps, {point.get('builds', '?')} lists"
        + (f", +- {100 * point['relative_spread']:.1f}%" if "relative_spread" in point else "")
    )
    if point.get("phases_ms"):
        text += "\n    style, ms: " + ", ".join(f"{k} {v:.3g}" for k, v in point["phases_ms"].items())
        text += f"; outside the model {point['overhead_percent']:.1f}%"
    if point.get("sections_percent"):
        text += "\n    LAMMPS: " + ", ".join(f"{k} {v:.1f}%" for k, v in point["sections_percent"].items())
    memory = [f"host {point['host_mb']:.0f} MB"] if point.get("host_mb") else []
    memory += [f"device {point['device_mb']:.0f} MB"] if point.get("device_mb") is not None else []
    text += f"\n    peak memory: {', '.join(memory)}; error of forces {point['error']:.1e}"
    if point.get("drift") is not None:
        text += f", of energy {point['energy_error']:.1e}, drift {point['drift']:.1e} of the kinetic energy"
    return text


def named(points: list[dict], gpu: bool) -> list[dict]:
    """The points that targets.json names, as its names; clebsch/kk on one GPU in float32 alone counts."""
    good = [p for p in points if not p.get("failure") and p["style"] == "kk" and p["dtype"] == "float32" and gpu]
    good = [p for p in good if p.get("ranks", 1) == 1]
    out = []
    for name, (case, atoms, key, unit) in TARGETS.items():
        for p in good:
            if p["case"] == case and p["atoms"] == atoms and p.get(key) is not None:
                peers = [
                    q for q in points if q["case"] == case and q["atoms"] == atoms and q["style"].startswith("peer")
                ]
                peers = [q for q in peers if not q.get("failure") and q.get(key) is not None]
                best = min(peers, key=lambda q: q["step_ms"], default=None)
                peer = best and {"name": best["style"], "version": best["version"], "value": best[key]}
                out.append(p | {"name": name, "value": p[key], "unit": unit, "peer": peer})
    largest = max(good, key=lambda p: p["atoms"], default=None)
    if largest and largest["atoms"] >= LARGE:
        out.append(largest | {"name": "md_max_atoms", "value": largest["atoms"], "unit": "atoms", "peer": None})
    return out


def write(path: Path, points: list[dict], gpu: bool) -> None:
    """Every point as a record of the common form; those with a target also under its name."""
    where = common.about("cuda" if gpu else "cpu") | {"cpu": common.cpu_name()}
    records = []
    for p in points:
        name = f"md/{p['case']}/{p['style']}/{p['dtype']}/{p['atoms']}"
        records.append(p | {"name": name, "value": p.get("katom_steps_s"), "unit": "katom-steps/s", "peer": None})
    for r in (everything := named(points, gpu) + records):
        part = r.get("relative_spread")
        r["spread"] = None if part is None or r["unit"] in ("atoms", "%") or not r["value"] else part * r["value"]
    path.write_text(json.dumps([r | where for r in everything], indent=1) + "\n")


def plot(path: Path, points: list[dict]) -> None:
    """Time per step against atoms, a panel a case."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = [p for p in points if not p.get("failure")]
    names = list(dict.fromkeys(p["case"] for p in points))
    if not names:
        return
    figure, panels = plt.subplots(1, len(names), figsize=(1 + 3.6 * len(names), 3.8), sharey=True, squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        mine = [p for p in points if p["case"] == name]
        for key in dict.fromkeys((p["style"], p["dtype"]) for p in mine):
            rows = sorted((p["atoms"], p["step_ms"]) for p in mine if (p["style"], p["dtype"]) == key)
            panel.plot(*zip(*rows, strict=True), marker="o", markersize=4, label=" ".join(key))
        panel.set(xscale="log", yscale="log", xlabel="atoms", title=name)
        panel.grid(alpha=0.3, which="both")
        panel.legend(fontsize=7)
    panels[0][0].set_ylabel("ms a step")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
