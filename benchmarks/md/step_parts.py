"""The parts of a step on two GPUs beside one: which kernels take longer than half of what they take on one GPU, how
long the exchange transfers and how long it waits for the other rank, what runs side by side, and when nothing runs.

    python3 benchmarks/md/step_parts.py OUT --lammps liblammps.so --plugin clebschkkplugin.so --mpirun MPIRUN
                                        [--case mace-M] [--atoms 64000] [--ranks 2]
    python3 benchmarks/md/step_parts.py OUT --again              the table of a run that is there

Runs profile_md.py on one GPU and under mpirun. OUT receives one.json, many.0.json, many.1.json, parts.json
and parts.md. Both ranks launch the same exchanges in the same order, so the shorter one of a pair is the
transfer, and what the other takes longer is its wait. All microseconds are those of a step without a new list.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import common  # noqa: E402

#: What kernels are for, by their names; the first that fits.
KINDS = (
    ("exchange of features, transfer and wait", r"nccl"),
    ("rows packed and added", r"copy_rows|add_rows"),
    ("convolution", r"interaction|projection_|sum_slab|sum_by_sender|conv_|sum_parts|density"),
    ("symmetric contraction", r"symmetric"),
    ("grades of extrapolation", r"grades_"),
    ("linear maps", r"node_linear|group_rows|dense|gemm|cutlass|gemv"),
    ("graph and edges", r"clebsch:|fill_edges|count_|place_edges|order_edges|scan|GraphKokkos|clebsch_lammps"),
    ("forces and virial", r"edge_forces|sum_virial"),
    ("LAMMPS: integration, positions, lists", r"LAMMPS_NS|Kokkos"),
    ("copies and fills", r"Mem(cpy|set)"),
)


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), "other, torch's for the most part")


def short(name: str) -> str:
    """A copy's direction, or a kernel's name without arguments; kernels of LAMMPS and Kokkos have one name."""
    copy = re.match(r"Memcpy (\w)\w*to(\w)", name)
    if copy:
        return f"copy to {'the host' if copy[2] == 'H' else 'the GPU'}"
    if re.search(r"LAMMPS_NS|Kokkos", name):
        return "kernel of LAMMPS"
    return re.split(r"[<(]", name.removeprefix("void "))[0].strip()


def idle_table(idle: dict[str, dict[str, float]]) -> list[str]:
    """Rows of Markdown: microseconds of a step in which nothing runs, by what has ended and what begins next."""
    who = list(idle)
    places: dict[str, dict[str, float]] = {}
    for name, found in idle.items():
        for place, us in found.items():
            row = places.setdefault(" | ".join(map(short, place.split(" > ", 1))), dict.fromkeys(who, 0.0))
            row[name] += us
    out = ["| has ended | begins next |" + "".join(f" {name} |" for name in who), "|" + "---|" * (len(who) + 2)]
    for place, row in sorted(places.items(), key=lambda item: -max(item[1].values())):
        if max(row.values()) > 15:
            out.append(f"| {place} |" + "".join(f" {us:.0f} |" for us in row.values()))
    return out


def by_kind(found: dict) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, us in found["all"].items():
        sums[kind_of(name)] = sums.get(kind_of(name), 0.0) + us
    return sums


def waits(ranks: list[dict]) -> tuple[float, list[float]]:
    """Microseconds a step: transfer, and each rank's waits."""
    pairs = list(zip(*(found["exchanges_us"] for found in ranks), strict=False))
    transfer = [min(pair) for pair in pairs]
    steps = ranks[0]["steps"]
    late = [sum(pair[k] - short for pair, short in zip(pairs, transfer, strict=True)) for k in range(len(ranks))]
    return sum(transfer) / steps, [us / steps for us in late]


def parts(one: dict, ranks: list[dict]) -> dict:
    """A row a kind: microseconds of a step on one GPU, on each of several, and what they take beyond their share."""
    alone, many = by_kind(one), [by_kind(found) for found in ranks]
    transfer, late = waits(ranks)
    names = sorted(set(alone).union(*many), key=lambda name: -alone.get(name, 0.0))
    rows = {name: {"one": alone.get(name, 0.0), "ranks": [found.get(name, 0.0) for found in many]} for name in names}
    for row in rows.values():
        row["beyond_share"] = max(row["ranks"]) - row["one"] / len(ranks)
    whole = {key: {"one": one[key], "ranks": [found[key] for found in ranks]}
             for key in ("clock_us", "whole_us", "busy_us", "gaps_us", "side_by_side_us")}  # fmt: skip
    kernels = {}
    for name in set(one["all"]).union(*(found["all"] for found in ranks)):
        beyond = max(found["all"].get(name, 0.0) for found in ranks) - one["all"].get(name, 0.0) / len(ranks)
        kernels[name] = beyond
    largest = dict(sorted(kernels.items(), key=lambda item: -item[1])[:20])
    gaps = {"one": one["idle"]} | {f"rank {k}": found["idle"] for k, found in enumerate(ranks)}
    gaps = {who: dict(sorted(idle.items(), key=lambda item: -item[1])[:12]) for who, idle in gaps.items()}
    return {"kinds": rows, "whole": whole, "transfer_us": transfer, "wait_us": late, "kernels_beyond_share": largest,
            "idle": gaps}  # fmt: skip


def page(found: dict, args: argparse.Namespace) -> str:
    """The table, in Markdown."""
    heads = "".join(f" rank {k} |" for k in range(len(found["wait_us"])))
    out = [f"{args.case}, {args.atoms} atoms, microseconds a step", "", f"| part | one GPU |{heads} beyond its share |"]
    out.append("|---|" + "---|" * (len(found["wait_us"]) + 2))
    for name, row in found["kinds"].items():
        out.append(f"| {name} | {row['one']:.0f} |" + "".join(f" {us:.0f} |" for us in row["ranks"])
                   + f" {row['beyond_share']:+.0f} |")  # fmt: skip
    titles = {"clock_us": "the step, not looked at", "whole_us": "the step, profiled",
              "busy_us": "something runs", "gaps_us": "nothing runs",
              "side_by_side_us": "a second thing runs beside the first"}  # fmt: skip
    for key, title in titles.items():
        row = found["whole"][key]
        out.append(f"| *{title}* | {row['one']:.0f} |" + "".join(f" {us:.0f} |" for us in row["ranks"])
                   + f" {max(row['ranks']) - row['one'] / len(row['ranks']):+.0f} |")  # fmt: skip
    waited = ", ".join(f"{us:.0f}" for us in found["wait_us"])
    transfer = f"{found['transfer_us']:.0f} us of transfer a step"
    out += ["", f"Exchanges: {transfer}; the ranks wait {waited} us for each other."]
    out += ["", "Kernels that take most beyond their share:", ""]
    out += [f"- {us:+.0f} us {short(name)}" for name, us in found["kernels_beyond_share"].items() if us > 5]
    out += ["", "When nothing runs:", "", *idle_table(found["idle"])]
    return "\n".join(out) + "\n"


def measure(args: argparse.Namespace) -> None:
    common_words = ["--lammps", args.lammps, "--plugin", args.plugin, "--case", args.case, "--atoms", str(args.atoms)]
    common_words += ["--steady", str(args.steady), "--steps", "0", "--comm", args.comm]
    program = [sys.executable, "-W", "ignore", str(HERE / "profile_md.py")]
    mpirun = [args.mpirun, "-n", str(args.ranks)]
    for head, name in (([], "one.json"), (mpirun, "many.json")):
        subprocess.run([*head, *program, str(args.out / name), *common_words], check=True, timeout=args.limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lammps", default="")
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""))
    parser.add_argument("--mpirun", default=os.environ.get("CLEBSCH_MPIRUN", "mpirun"))
    parser.add_argument("--case", default="mace-M")
    parser.add_argument("--atoms", type=int, default=64000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--comm", default="halo", help="of the ranks")
    parser.add_argument("--steady", type=int, default=10)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each of the two runs")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.again:
        measure(args)

    def steady(path: Path) -> dict:
        return next(v for k, v in json.loads(path.read_text()).items() if k.endswith("steady"))

    ranks = [steady(args.out / f"many.{k}.json") for k in range(args.ranks)]
    found = parts(steady(args.out / "one.json"), ranks)
    common.save(args.out / "parts.json", found | {"case": args.case, "atoms": args.atoms} | common.about("cuda"))
    (args.out / "parts.md").write_text(page(found, args))
    print(page(found, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
