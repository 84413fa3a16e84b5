"""Tables, summary records and the roofline plot of a result of `python benchmarks/conv`.

    python benchmarks/conv/report.py RESULT.json [--plot PLOT.png] [--records RECORDS.json]

A ratio is the time of the fastest peer over ours, for one problem, pass and dtype, atomic against atomic and
deterministic against deterministic; a mean of ratios is geometric.
"""

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

PASSES = ("forward", "backward", "double")
SHORT = {"openequivariance": "OEQ", "openequivariance ir_mul": "OEQ ir_mul", "cuequivariance": "cuEq"}


def line(record):
    """One record as text."""
    text = f"{record['problem']:14s} {record['dtype']} {record['library']:19s} {record['mode']:13s}"
    if "failed" in record:
        return f"{text} failed: {record['failed']}"
    if "wrong" in record:
        return f"{text} WRONG: {' '.join(f'{e:.1e}' for e in record['wrong'])}"
    for name in PASSES:
        if f"{name}_ns" in record:
            ns, work = record[f"{name}_ns"], record["work"][name]
            text += f" | {name[:3]} {ns:8.3f} ns {work['bytes'] / ns:5.0f} GB/s"
            if work["flop"]:
                text += f" {work['flop'] / ns:5.0f} GFLOP/s"
    return f"{text} | error {record['error']:.0e}"


def times(result, dtype, mode, name):
    """{problem: {library: record}} of what was timed."""
    found = {}
    for record in result["records"]:
        if record["dtype"] == dtype and record["mode"] == mode and f"{name}_ns" in record:
            found.setdefault(record["problem"], {})[record["library"]] = record
    return found


def ratios(result, dtype, mode, name):
    """[(problem, our record, best peer's record or None)]."""
    rows = []
    for problem, libraries in times(result, dtype, mode, name).items():
        peers = [r for library, r in libraries.items() if not library.startswith("clebsch")]
        if "clebsch" in libraries:
            best = min(peers, key=lambda r: r[f"{name}_ns"]) if peers else None
            rows.append((problem, libraries["clebsch"], best))
    return rows


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def table(result):
    """Ours, the best peer and the ratio, for every dtype, mode and pass."""
    lines = []
    for dtype in dict.fromkeys(r["dtype"] for r in result["records"]):
        peak = result["peaks"][f"{dtype}_GFLOP_s"]
        for mode in ("atomic", "deterministic"):
            for name in PASSES:
                rows = ratios(result, dtype, mode, name)
                if not rows:
                    continue
                lines.append(
                    f"\n{name}, {dtype}, {mode}: ns per edge (of peak GB/s, of peak GFLOP/s), best peer, ratio"
                )
                for problem, ours, best in rows:
                    ns, work = ours[f"{name}_ns"], ours["work"][name]
                    share = f"{100 * work['bytes'] / ns / result['peaks']['copy_GB_s']:4.0f}%"
                    share += f" {100 * work['flop'] / ns / peak:4.0f}%" if work["flop"] else ""
                    text = f"  {problem:14s} {ns:8.3f} ({share})"
                    if best:
                        other = best[f"{name}_ns"]
                        text += f"  {best['library']:20s} {other:8.3f}  {other / ns:6.2f}x"
                    lines.append(text)
                found = [best[f"{name}_ns"] / ours[f"{name}_ns"] for _, ours, best in rows if best]
                if found:
                    lines.append(f"  {'geometric mean':14s} {mean(found):.2f}x of {len(found)} problems")
        for mode in ("deterministic", "atomic"):
            pairs = composed(result, dtype, mode)
            if pairs:
                lines.append(f"\ndouble backward against composition, {dtype}, {mode}: {mean(pairs):.2f}x")
    return "\n".join(lines)


def markdown(result, dtype):
    """The table of docs/developers/kernels.md: ours (best peer: ratio), ns per edge."""
    columns = [(mode, name) for mode in ("atomic", "deterministic") for name in PASSES]
    columns = [(mode, name) for mode, name in columns if ratios(result, dtype, mode, name)]
    lines = ["| problem | " + " | ".join(f"{mode} {name}" for mode, name in columns) + " |"]
    lines.append("|" + "---|" * (1 + len(columns)))
    cells, means = {}, []
    for column in columns:
        rows = ratios(result, dtype, *column)
        for problem, ours, best in rows:
            text = f"{ours[f'{column[1]}_ns']:.2f}"
            if best:
                other = best[f"{column[1]}_ns"]
                name, ratio = SHORT.get(best["library"], best["library"]), other / ours[f"{column[1]}_ns"]
                text += f" ({name} {other:.2f}: {ratio:.2f}x)"
            cells.setdefault(problem, []).append(text)
        means.append(mean([best[f"{column[1]}_ns"] / ours[f"{column[1]}_ns"] for _, ours, best in rows if best]))
    lines += [f"| {problem} | " + " | ".join(texts) + " |" for problem, texts in cells.items()]
    return "\n".join([*lines, "| geometric mean | " + " | ".join(f"{value:.2f}x" for value in means) + " |"])


def composed(result, dtype, mode):
    """Ratios of the composed double backward to the one that autograd runs."""
    found = times(result, dtype, mode, "double").values()
    return [
        r["clebsch composed"]["double_ns"] / r["clebsch"]["double_ns"]
        for r in found
        if "clebsch" in r and "clebsch composed" in r
    ]


def summary_records(result):
    """Records of the names of benchmarks/targets.json."""
    records = []

    def add(name, values, dtype, mode, rows, pass_name, peer):
        if not values:
            return
        value = mean(values)
        records.append(
            {
                "name": name,
                "value": value,
                "unit": "x composition" if peer["name"] == "composition" else "x best peer",
                "spread": value * max(o[f"{pass_name}_spread"] / o[f"{pass_name}_ns"] for _, o, _ in rows),
                "dtype": dtype,
                "deterministic": mode == "deterministic",
                "error": max(o.get("double_error" if pass_name == "double" else "error", 0.0) for _, o, _ in rows),
                "peer": peer,
                **{key: result[key] for key in ("machine", "torch", "driver", "commit", "date", "command")},
            }
        )

    for dtype, bits in (("float32", "fp32"), ("float64", "fp64")):
        for mode in ("atomic", "deterministic"):
            infix = "_det" if mode == "deterministic" else ""
            for name, short in (("forward", "fwd"), ("backward", "bwd")):
                rows = [row for row in ratios(result, dtype, mode, name) if row[2]]
                best = {problem: f"{b['library']} {b['version']}" for problem, _, b in rows}
                peer = {"name": ", ".join(sorted(set(best.values()))), "version": "", "value": 1.0, "best": best}
                values = [b[f"{name}_ns"] / o[f"{name}_ns"] for _, o, b in rows]
                add(f"conv_{short}{infix}_ratio_{bits}", values, dtype, mode, rows, name, peer)
    rows = ratios(result, "float32", "deterministic", "double")
    add(
        "conv_double_bwd_ratio",
        composed(result, "float32", "deterministic"),
        "float32",
        "deterministic",
        rows,
        "double",
        {"name": "composition", "version": "", "value": 1.0},
    )
    return records


def plot(result, path, dtype="float32"):
    """Achieved FLOP/s over FLOP per byte, forward and backward, ours and the best peer's, under the machine's peaks."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker

    peak, copy = result["peaks"][f"{dtype}_GFLOP_s"], result["peaks"]["copy_GB_s"]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True)
    colours = {"clebsch": "tab:blue", "openequivariance": "tab:orange", "openequivariance ir_mul": "tab:olive",
               "flashtp": "tab:green", "cuequivariance": "tab:red", "e3nn": "tab:gray"}  # fmt: skip
    for axis, name in zip(axes, ("forward", "backward"), strict=True):
        points = []
        for mode, marker in (("atomic", "o"), ("deterministic", "s")):
            for libraries in times(result, dtype, mode, name).values():
                for library, record in libraries.items():
                    if library not in colours:
                        continue
                    work = record["work"][name]
                    x, y = work["flop"] / work["bytes"], work["flop"] / record[f"{name}_ns"]
                    points.append(x)
                    filled = colours[library] if mode == "atomic" else "none"
                    axis.plot(x, y, marker, color=colours[library], markerfacecolor=filled, markersize=6)
                    if library == "clebsch" and mode == "deterministic":
                        axis.annotate(record["problem"], (x, y), fontsize=6, xytext=(4, -8), textcoords="offset points")
        if not points:
            continue
        low, high = min(points) / 1.5, max(max(points) * 1.5, peak / copy * 2)
        ridge = [low, peak / copy, high]
        axis.plot(ridge, [low * copy, peak, peak], "k-", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="FLOP per byte (least bytes)", title=f"{name}, {dtype}")
        axis.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axis.grid(True, which="both", alpha=0.2)
    axes[0].set_ylabel("GFLOP/s")
    for library, colour in colours.items():
        if any(r["library"] == library and "forward_ns" in r for r in result["records"]):
            axes[0].plot([], [], "o", color=colour, label=library)
    axes[0].plot([], [], "o", color="k", label="atomic")
    axes[0].plot([], [], "s", color="k", markerfacecolor="none", label="deterministic")
    axes[0].legend(fontsize=7, loc="lower right")
    nodes = result["records"][0].get("nodes", 0) if result["records"] else 0
    figure.suptitle(
        f"tensor_product_conv, {result['machine']}, {nodes} atoms, peaks measured in the same run", fontsize=9
    )
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result")
    parser.add_argument("--plot")
    parser.add_argument("--records", help="write the records for benchmarks/record.py here")
    parser.add_argument("--markdown", metavar="DTYPE", help="print the table of docs/developers/kernels.md alone")
    arguments = parser.parse_args()
    result = json.loads(Path(arguments.result).read_text())
    if arguments.markdown:
        print(markdown(result, arguments.markdown))
        return 0
    for record in result["records"]:
        print(line(record))
    print(table(result))
    if arguments.plot:
        plot(result, arguments.plot)
    if arguments.records:
        named = {target["name"] for target in common.targets()}
        common.save(arguments.records, [r for r in summary_records(result) if r["name"] in named])
    return 0


if __name__ == "__main__":
    sys.exit(main())
