"""Times `interaction` on several type pairs and liquids beside diamond, under plans of CLEBSCH_CUDA_INTERACTION.

    python benchmarks/interaction/bench_pairs.py --library build/lib/libclebsch.so [--out FOLDER]

For every plan (96 pieces unless it says "PIECES:PLAN"): first the force error of its tables and kernels against the
exact radial network, then diamond, water (two elements) and a disordered cell of five elements, fp32, each checked
against the CPU in fp64 before it is timed (bench_interaction.measure). The default plan comes first; ratios are to
diamond under the same plan and to diamond under the default plan. "By type" are the same atoms in order of type: what
sharing of table rows in L1 could give.
Kernels of all plans are compiled side by side first. Writes interaction_pairs.json.
"""

import argparse
import dataclasses
import itertools
import json
import os
import sys
import time
from pathlib import Path

import bench_interaction
import sweep_interaction
import torch
from bench_interaction import case_of, common, cutoff_of, force_errors, measure  # puts the other folders on the path
from graphs import diamond  # found by bench_interaction
from interaction_cases import make_radial, radial_problems
from interaction_graphs import disordered, water

VARIABLE = "CLEBSCH_CUDA_INTERACTION"
PLANS = "spline=0;spline=1;spline=1,receivers=4;80:spline=1;spline=1,receivers=2"
KEYS = ("forward_ns", "backward_ns", "backward_atomic_ns", "backward_edges_ns")


def by_type(edges, types):
    """The same structure with its atoms in order of type, so that receivers of a block read the same tables."""
    nodes, receivers, senders, vectors = edges
    order = types.argsort(stable=True).to(receivers.device)
    place = torch.empty_like(order)
    place[order] = torch.arange(nodes, device=order.device)
    receivers, senders = place[receivers.long()], place[senders.long()]
    rows = receivers.argsort(stable=True)
    return (nodes, receivers[rows], senders[rows], vectors[rows]), types[order.to(types.device)]


def cells(name, text, small, device):
    """(what, elements, case) of the structures to time a problem on."""
    cutoff = cutoff_of(name)
    made = [("diamond", 1, diamond(3 if small else 10, device, cutoff), None)]
    if cutoff == 5.0:
        made.append(("water", 2, *water([2, 1, 1] if small else [2, 2, 3], device)))
    if name != "nequip-water":
        found, types = disordered(5 if small else 13, device)
        inside = found[3].norm(dim=1) < cutoff
        found = (found[0], *(t[inside] for t in found[1:]))
        made.append(("five elements", 5, found, types))
        made.append(("five elements by type", 5, *by_type(found, types)))
    none = make_radial(text, [[cutoff]])
    return [(what, elements, case_of(text, edges, none, types)) for what, elements, edges, types in made]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", default="", help="folder of the results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--problems", default="nequip-M,mace-M,nequip-water")
    parser.add_argument("--plans", default=PLANS, help="separated by semicolons, the default plan first")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=50, help="nothing is begun after this time")
    parser.add_argument("--small", action="store_true", help="a hundredth of the atoms, to rehearse")
    options = parser.parse_args()
    begin = time.monotonic()
    bench_interaction.DEVICE = options.device
    torch.ops.load_library(options.library)
    plans = [plan.rpartition(":") for plan in options.plans.split(";")]
    plans = [(int(pieces or 96), plan) for pieces, _, plan in plans]
    options.problems = options.problems.split(",")
    if options.device == "cuda":
        options.compile_seconds = 25
        sweep_interaction.compile_all(options, sorted({plan for _, plan in plans}))
    print(f"# compiled after {time.monotonic() - begin:.0f} s", flush=True)
    texts, records, failed = radial_problems(), [], 0
    structures = {n: cells(n, texts[n], options.small, options.device) for n in options.problems}
    first = {}  # records of diamond under the default plan
    for (pieces, plan), name in itertools.product(plans, options.problems):
        os.environ[VARIABLE] = plan
        label, base = f"{pieces}:{plan or 'default'}", None
        if time.monotonic() - begin > options.seconds:
            print(f"{name}, {label}: not begun", flush=True)
            continue
        try:
            error = force_errors(name, texts[name], pieces, seeds=1)
            print(f"# {name}, {label}: force error {error['table']:.1e}, kernels {error['fp32']:.1e}", flush=True)
        except RuntimeError as problem:
            print(f"# {name}, {label}: FAILED: {str(problem)[:300]}", flush=True)
            failed += 1
            continue
        for what, elements, case in structures[name]:
            cutoffs = torch.full((elements, elements), cutoff_of(name), dtype=torch.float64)
            networks = None if elements > 1 else 1
            radial = make_radial(texts[name], cutoffs, pieces, networks=networks, symmetric=True)
            more = {"problem": name, "plan": plan, "elements": elements, "force_error": error}
            record = measure(
                f"{name}, {what}, {label}",
                dataclasses.replace(case, radial=radial),
                repeats=options.repeats,
                **more,
            )
            records.append(record)
            if "forward_ns" not in record:
                failed += 1
                continue
            base = base or record
            for against, other in (("its diamond", base), ("default diamond", first.setdefault(name, record))):
                record[f"times {against}"] = {k: record[k] / other[k] for k in KEYS}
                text = ", ".join(f"{k[:-3]} {record[k] / other[k]:.2f}" for k in KEYS)
                print(f"{'':20s} times {against}: {text}", flush=True)
        if options.out:
            Path(options.out).mkdir(parents=True, exist_ok=True)
            text = json.dumps({**common.about(options.device), "records": records}, indent=1) + "\n"
            (Path(options.out) / "interaction_pairs.json").write_text(text)
    print(f"{len(records)} records, {failed} failed, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
