"""Times `interaction` on one device, and says how far its tables are from the exact radial network.

    python benchmarks/interaction/bench_interaction.py --library build/lib/libclebsch.so --out RESULTS_FOLDER

Sections (--sections): speed (problems on rattled diamond), pieces (table size against force error and time), elements
(55 tables against one), liquids (water and a disordered five-element cell against diamond). ns are per edge: the median
of --repeats calls in sequence with device events between, after warm-up, harmonics and radial functions included; force
backward gives dX and dE/d edge_vec. No call is timed whose answer differs from the CPU op's in fp64. Writes
interaction_bench.json and interaction_records.json (for benchmarks/record.py).
"""

import argparse
import json
import sys
from pathlib import Path

import torch

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "conv")]
import common  # noqa: E402
from graphs import diamond  # noqa: E402
from interaction_cases import PIECES, compare, make_case, make_radial, radial_problems, relative  # noqa: E402
from interaction_graphs import disordered, water  # noqa: E402
from measure import time_ns  # noqa: E402

DEVICE = "cuda"
SPEED = ("mace-M", "mace-L", "mace-l1", "nequip-S", "nequip-M", "nequip-L", "nequip-water")
NEAREST = 1.545  # A, of diamond: tables are judged from 0.8 times this on
# The prototype's ns an edge on the same graph (one H200): (forward, atomic backward), 24 pieces, radial part without
# continuity, force error 2.8e-5.
PROTOTYPE = {
    ("mace-l1", 1000): (0.76, 1.34),
    ("mace-l1", 8000): (0.57, 1.17),
    ("mace-M", 1000): (1.90, 3.20),
    ("mace-M", 8000): (1.68, 2.97),
    ("mace-L", 8000): (3.44, 6.37),
}


def cutoff_of(name):
    return 6.0 if name.startswith("mace") else 5.0


def case_of(text, edges, radial, types=None):
    nodes, receivers, senders, vectors = (t.cpu() if torch.is_tensor(t) else t for t in edges)
    degrees = torch.bincount(receivers, minlength=nodes)
    types = torch.zeros(nodes, dtype=torch.int32) if types is None else types
    case = make_case(text, degrees, nodes, vectors=vectors, senders=senders, radial=radial, node_types=types)
    return case.rounded(torch.float32)


def part(case, rows, columns):
    """Two smaller cases of the same operands for the CPU: the first `rows` receivers; all edges sent by nodes below
    `columns`, each keeping its receiver. And the numbers of their edges."""
    receivers, senders = case.graph[2].long(), case.graph[1].long()
    result = []
    for chosen in (receivers < rows, senders < columns):
        nodes = case.x.shape[0]
        degrees = torch.bincount(receivers[chosen], minlength=nodes)
        small = make_case(
            case.problem.text,
            degrees,
            nodes,
            vectors=case.edge_vec[chosen],
            senders=senders[chosen],
            radial=case.radial,
            node_types=case.types,
        )
        small.x, small.grad_out = case.x, case.grad_out
        result.append((small, chosen))
    return result


def check(case, operands, dtype):
    """Largest error of the operands' results against the CPU in fp64, over 120 receivers and 120 senders."""
    count = min(120, case.x.shape[0])
    (by_row, chosen), (by_column, _) = part(case, count, count)
    row, column = by_row.operands(torch.float64, "cpu"), by_column.operands(torch.float64, "cpu")
    out, grad_x, grad_vec = (t.cpu() for t in operands.results())
    expected = [row.forward()[:count], column.backward((True, False))[0][:count], row.backward((False, True))[1]]
    return compare(case, [out[:count], grad_x[:count], grad_vec[chosen]], expected)


def measure(label, case, dtype=torch.float32, repeats=20, **more):
    """A record with forward_ns, backward_ns (deterministic), backward_atomic_ns, backward_edges_ns, their spreads."""
    record = {
        "what": label,
        "dtype": str(dtype)[6:],
        "nodes": case.x.shape[0],
        "edges": case.edges,
        "pieces": case.radial.pieces,
        "table_MB": case.radial.table.numel() * (4 if dtype == torch.float32 else 8) / 2**20,
        **more,
    }
    try:
        operands = {t: case.operands(dtype, DEVICE, t) for t in (True, False)}
        record["error"] = max(check(case, o, dtype) for o in operands.values())
        if not record["error"] < (1e-5 if dtype == torch.float32 else 1e-11):
            print(f"{label:34s} WRONG: error {record['error']:.1e}, not timed", flush=True)
            return record
        calls = {
            "forward": lambda: operands[True].forward(),
            "backward": lambda: operands[True].backward(),
            "backward_atomic": lambda: operands[False].backward(),
            "backward_edges": lambda: operands[True].backward((False, True)),
        }
        for name, call in calls.items():
            median, spread = time_ns(call, DEVICE, repeats)
            record[f"{name}_ns"], record[f"{name}_spread"] = median / case.edges, spread / case.edges
    except RuntimeError as error:
        record["failed"] = str(error)[:500]
        print(f"{label:34s} FAILED: {record['failed'][:200]}", flush=True)
        return record
    print(
        f"{label:34s} {record['dtype']} {record['nodes']:6d} atoms {record['edges']:8d} edges"
        f" {record['pieces']:3d} pieces"
        f"  forward {record['forward_ns']:7.3f}  backward: det {record['backward_ns']:7.3f}"
        f" atomic {record['backward_atomic_ns']:7.3f} edges {record['backward_edges_ns']:7.3f} ns/edge"
        f"  error {record['error']:.0e}" + (f"  {more['note']}" if "note" in more else ""),
        flush=True,
    )
    return record


def force_errors(name, text, pieces, seeds=3):
    """Worst over random networks of the relative RMSE of dE/d edge_vec against the exact network in fp64.

    table: tables in fp64 on the CPU (table_max: largest error over the RMS); fp32: tables and kernels in fp32 on the
    device. 4000 edges, all distances alike from 0.8 of the nearest.
    """
    cutoff, worst = cutoff_of(name), {"table": 0.0, "fp32": 0.0, "table_max": 0.0}
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(900 + seed)
        uniform = torch.rand(4000, generator=generator, dtype=torch.float64)
        distances = 0.8 * NEAREST + (cutoff - 0.8 * NEAREST) * uniform
        radial = make_radial(text, [[cutoff]], pieces, 50 + seed)
        case = make_case(text, [100] * 40, 40, radial=radial, distances=distances, seed=seed)
        case = case.rounded(torch.float32)
        exact = case.operands(torch.float64, "cpu", exact=True)
        exact.edge_vec.requires_grad_()
        reference = torch.autograd.grad(exact.forward(), exact.edge_vec, exact.grad_out)[0]
        table = relative(case.operands(torch.float64, "cpu").backward((False, True))[1], reference)
        device = relative(case.operands(torch.float32, DEVICE).backward((False, True))[1].cpu(), reference)
        worst["table"], worst["table_max"] = max(worst["table"], table[0]), max(worst["table_max"], table[1])
        worst["fp32"] = max(worst["fp32"], device[0])
    return worst


def speed(texts, options):
    records = []
    graphs = {}
    for cells in options.cells:
        for name in options.problems:
            cutoff = cutoff_of(name)
            if (cells, cutoff) not in graphs:
                graphs[cells, cutoff] = diamond(cells, DEVICE, cutoff)
            radial = make_radial(texts[name], [[cutoff]], options.pieces)
            case = case_of(texts[name], graphs[cells, cutoff], radial)
            prototype = PROTOTYPE.get((name, case.x.shape[0]))
            more = {"section": "speed", "problem": name}
            if prototype:
                more["prototype"] = prototype
                more["note"] = "prototype {:.2f} + {:.2f}".format(*prototype)
            for dtype in (torch.float32, torch.float64) if cells == min(options.cells) else (torch.float32,):
                records.append(measure(name, case, dtype, options.repeats, **more))
                if DEVICE == "cuda":
                    torch.cuda.empty_cache()
    return records


def pieces(texts, options):
    records = []
    for name in ("mace-M", "nequip-M"):
        graph = diamond(max(options.cells), DEVICE, cutoff_of(name))
        for count in (24, 32, 48, 64, 96):
            case = case_of(texts[name], graph, make_radial(texts[name], [[cutoff_of(name)]], count))
            record = {"section": "pieces", "problem": name, "force_error": force_errors(name, texts[name], count)}
            errors = record["force_error"]
            record["note"] = f"force error {errors['table']:.1e} (fp32 {errors['fp32']:.1e})"
            records.append(measure(f"{name}, {count} pieces", case, torch.float32, options.repeats, **record))
    return records


def elements(texts, options):
    """Ten elements at random on diamond, a table of its own for every unordered pair, against one element."""
    records, base = [], None
    for name in ("mace-M", "nequip-M"):
        graph = diamond(max(options.cells), DEVICE, cutoff_of(name))
        generator = torch.Generator().manual_seed(2)
        for count in (1, 2, 5, 10):
            radial = make_radial(
                texts[name],
                torch.full((count, count), cutoff_of(name), dtype=torch.float64),
                options.pieces,
                networks=None,
                symmetric=True,
            )
            types = torch.randint(0, count, (graph[0],), generator=generator).int()
            case = case_of(texts[name], graph, radial, types)
            records.append(
                measure(
                    f"{name}, {count} elements on diamond",
                    case,
                    repeats=options.repeats,
                    section="elements",
                    problem=name,
                    elements=count,
                )
            )
            base = records[-1] if count == 1 else base
            ratios(records[-1], base)
    return records


def liquids(texts, options):
    """Water (two elements, rc 5) and a disordered cell of five elements against diamond of the same cutoff, which has
    one table, and then as many as they have (all atoms of the first element)."""
    records = []
    big = max(options.cells)
    for name in ("mace-M", "nequip-M", "nequip-water"):
        cutoff = cutoff_of(name)
        case = case_of(texts[name], diamond(big, DEVICE, cutoff), make_radial(texts[name], [[cutoff]], options.pieces))
        base = measure(f"{name}, diamond", case, repeats=options.repeats, section="liquids", problem=name)
        records.append(base)
        made = [("water", 2, *water([2, 2, 3] if big > 5 else [2, 1, 1], DEVICE))] if cutoff == 5.0 else []
        if name != "nequip-water":
            found, types = disordered(13 if big > 5 else 5, DEVICE)
            made.append(("disordered, five elements", 5, found, types))
        for what, count, found, types in made:
            inside = found[3].norm(dim=1) < cutoff
            found = (found[0], *(t[inside] for t in found[1:]))
            radial = make_radial(
                texts[name],
                torch.full((count, count), cutoff, dtype=torch.float64),
                options.pieces,
                networks=None,
                symmetric=True,
            )
            more = {"section": "liquids", "problem": name, "elements": count}
            own = case_of(texts[name], diamond(big, DEVICE, cutoff), radial, torch.zeros(8 * big**3, dtype=torch.int32))
            records.append(measure(f"{name}, diamond, {count} elements", own, repeats=options.repeats, **more))
            same_tables = records[-1]
            case = case_of(texts[name], found, radial, types)
            records.append(measure(f"{name}, {what}", case, repeats=options.repeats, **more))
            ratios(records[-1], base)
            ratios(records[-1], same_tables)
    return records


def ratios(record, base):
    """Prints and keeps how many times the base's ns an edge a graph takes."""
    keys = ("forward_ns", "backward_ns", "backward_atomic_ns")
    if all(k in record and k in base for k in keys):
        ratio = {k: record[k] / base[k] for k in keys}
        record.setdefault("ratios", {})[base["what"]] = ratio
        text = ", ".join(f"{k[:-3]} {ratio[k]:.2f}" for k in keys)
        print(f"{'':34s} times {base['what']}: {text}", flush=True)


def profile(texts, options):
    """Two calls of each kernel of the first problem, for a profiler."""
    name = options.problems[0]
    graph = diamond(max(options.cells), DEVICE, cutoff_of(name))
    case = case_of(texts[name], graph, make_radial(texts[name], [[cutoff_of(name)]], options.pieces))
    for transpose in (True, False):
        operands = case.operands(torch.float32, DEVICE, transpose)
        for _ in range(2):
            operands.results()
    return []


def summary(records, where, repeats):
    """Records of benchmarks/targets.json's names."""
    common = {**where, "dtype": "float32", "peer": None}
    result = []
    done = [r for r in records if "forward_ns" in r]
    speeds = [r for r in done if r["section"] == "speed" and r["problem"] == "mace-M" and r["dtype"] == "float32"]
    if speeds and repeats >= 5:
        best = max(speeds, key=lambda r: r["nodes"])
        for name, key, deterministic in (
            ("interaction_mace_m_fwd_ns", "forward", True),
            ("interaction_mace_m_bwd_ns", "backward_atomic", False),
        ):
            result.append(
                {
                    "name": name,
                    "value": best[f"{key}_ns"],
                    "unit": "ns/edge",
                    "spread": best[f"{key}_spread"],
                    "deterministic": deterministic,
                    "error": best["error"],
                    **common,
                }
            )
    for r in done:
        if r["section"] == "pieces" and r["problem"] == "mace-M" and r["pieces"] == PIECES:
            result.append(
                {
                    "name": "interaction_force_rmse_rel",
                    "value": r["force_error"]["fp32"],
                    "unit": "RMS(dF)/RMS(F)",
                    "spread": None,
                    "deterministic": True,
                    "error": r["force_error"]["table"],
                    **common,
                }
            )
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default="", help="folder of the results")
    parser.add_argument("--sections", default="speed,pieces,elements,liquids")
    parser.add_argument("--problems", default=",".join(SPEED), help="of the section speed")
    parser.add_argument("--cells", default="5,10", help="of diamond: 8 cells^3 atoms")
    parser.add_argument("--pieces", type=int, help="default: as the library takes")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    options.problems, options.cells = options.problems.split(","), [int(c) for c in options.cells.split(",")]
    global DEVICE
    DEVICE = options.device
    torch.ops.load_library(options.library)
    texts, where, records = radial_problems(), common.about(DEVICE), []
    print(f"# {where['machine']}, torch {where['torch']}, driver {where['driver']}, commit {where['commit']}")
    known = {"speed": speed, "pieces": pieces, "elements": elements, "liquids": liquids, "profile": profile}
    failed = 0
    for name in options.sections.split(","):
        print(f"# {name}", flush=True)
        try:
            records += known[name](texts, options)
        except Exception as error:  # one section must not cost the others
            failed += 1
            print(f"FAILED section {name}: {error!r}"[:600], flush=True)
        if options.out:
            folder = Path(options.out)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "interaction_bench.json").write_text(json.dumps({**where, "records": records}, indent=1) + "\n")
            lines = json.dumps(summary(records, where, options.repeats), indent=1) + "\n"
            (folder / "interaction_records.json").write_text(lines)
    failed += sum("failed" in r or "forward_ns" not in r for r in records)
    print(f"{len(records)} records, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
