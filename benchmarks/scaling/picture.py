"""The picture of docs/developers/scaling.md."""

from __future__ import annotations

import common
from model import COMMS, Model, Step
from predict import STRONG, WEAK, Measured, efficiency

PICTURE = common.ROOT / "docs/images/scaling.png"
TICKS = (1, 4, 16, 64, 256, 1024)
COLOURS = {"weak": {64000: "tab:blue", 8000: "tab:orange"},
           "strong": {64000: "tab:blue", 1000000: "tab:orange", 16000000: "tab:green"}}  # fmt: skip
LINES = {"halo": "-", "ghost": "--", "gather": ":"}
MARKERS = {"halo": "o", "ghost": "s", "gather": "^"}


def plot(model: Model, found: dict[tuple, Step], points: list[Measured]) -> None:
    """docs/images/scaling.png."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figure, panels = plt.subplots(
        2, len(model.cases), figsize=(2.4 + 3.2 * len(model.cases), 6.4), sharex=True, squeeze=False
    )
    for column, case in enumerate(model.cases):
        for panel, (kind, sizes) in zip(panels[:, column], (("weak", WEAK), ("strong", STRONG)), strict=True):
            for atoms in sizes:
                for comm in COMMS:
                    keys = sorted((k for k in found if k[:4] == (case, kind, atoms, comm)), key=lambda k: k[4])
                    if len(keys) < 2:
                        continue
                    value = [efficiency(found, k) if kind == "weak" else found[k].ms for k in keys]
                    panel.plot([k[4] for k in keys], value, LINES[comm], color=COLOURS[kind][atoms], linewidth=1.3)
                    if kind == "strong" and comm == "halo":
                        ideal = [value[0] * keys[0][4] / k[4] for k in keys]
                        panel.plot([k[4] for k in keys], ideal, color="0.75", linewidth=0.8, zorder=0)
            one = model.one[case]
            for atoms in sizes:
                at_one = (one.points | one.larger).get(atoms)
                mine = [p for p in points if p.case == case]
                each = {p: p.atoms / (p.gpus * atoms) for p in mine}  # boxes of whole cells are a little larger
                mine = [p for p in mine if (p.atoms == atoms if kind == "strong" else 0.99 < each[p] < 1.03)]
                style = {"color": COLOURS[kind][atoms], "markersize": 6, "markeredgecolor": "black", "linestyle": ""}
                if at_one and kind == "strong":
                    panel.plot([1], [at_one], marker="o", **style)
                for p in mine:
                    if kind == "strong":
                        panel.plot([p.gpus], [p.ms], marker=MARKERS[p.comm], **style)
                    elif at_one:
                        panel.plot([p.gpus], [each[p] * at_one / p.ms], marker=MARKERS[p.comm], **style)
            panel.set(title=f"{case}, {kind}")
            panel.set_xscale("log", base=2)
            panel.set_xticks(TICKS, [f"{gpus:,}" for gpus in TICKS])
            panel.grid(alpha=0.3)
            if kind == "strong":
                panel.set(yscale="log", xlabel="GPUs")
            else:
                panel.set_ylim(0, 1.05)
    panels[0][0].set_ylabel("efficiency")
    panels[1][0].set_ylabel("ms a step")
    for panel, kind in zip(panels[:, -1], ("weak", "strong"), strict=True):
        labels = {64000: "64,000", 8000: "8,000", 1000000: "1,000,000", 16000000: "16,000,000"}
        handles = [Line2D([], [], color=c, label=labels[n] + (" atoms a GPU" if kind == "weak" else " atoms"))
                   for n, c in COLOURS[kind].items()]  # fmt: skip
        handles += [Line2D([], [], color="0.3", linestyle=s, label=f"comm {c}") for c, s in LINES.items()]
        handles += [Line2D([], [], color="w", markeredgecolor="black", marker=m, label=f"measured, {c}")
                    for c, m in MARKERS.items() if c in {p.comm for p in points}]  # fmt: skip
        panel.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1))
    if model.constants.missing:
        figure.suptitle("provisional: some constants are guesses", fontsize=9)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=100, metadata={"Software": None})
