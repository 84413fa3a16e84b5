"""Times tensor_product_conv beside e3nn, OpenEquivariance, FlashTP and cuEquivariance, in one process.

    python benchmarks/conv --library build/lib/libclebsch.so --device cuda --cells 5 --json conv.json --plot conv.png

Rattled diamond carbon, cutoff 6 A (1000 atoms with --cells 5, 8000 with 10), random features and weights, weights and
harmonics given: the convolution alone. Every result is compared with an fp64 reference first, block by block; one that
is wrong is not timed. Times are medians of calls queued one after the other, in ns per edge, with torch's autograd and
the launches; `backward` is torch.autograd.grad by x, harmonics and weights, `double` its derivative by these and the
incoming gradient. Operands lie in each library's own layout. Libraries that cannot be imported are named and left out.
"""

import argparse
import gc
import itertools
import json
import math
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402
import torch  # noqa: E402
from contenders import LIBRARIES, Case  # noqa: E402
from conv_reference import Problem, make_graph  # noqa: E402
from exact import TOLERANCE, Exact, Operands  # noqa: E402
from graphs import diamond  # noqa: E402

LAST = ("openequivariance-ir_mul", "e3nn")
SIX = "mace-l1,mace-M,mace-L,nequip-water,nequip-M,7net-l3i5"


def leaves_of(contender, operands):
    return [contender.to_own(n, getattr(operands, n)).requires_grad_() for n in ("x", "y", "w")]


def first_derivatives(contender, leaves, g, out):
    return torch.autograd.grad(out, leaves, g, retain_graph=True)


def run(contender, case, operands, exact, passes, repeats, record):
    """Checks, then times; fills record."""
    os.environ.pop("CLEBSCH_CUDA_SCHEDULE", None)
    if contender.schedule:
        os.environ["CLEBSCH_CUDA_SCHEDULE"] = contender.schedule
    x, y, w = leaves = leaves_of(contender, operands)
    g = contender.to_own("out", operands.g)
    edges, device = case.graph.edges, case.device
    if "double" in passes and operands.tangents[0] is not None:
        g.requires_grad_()
        tangents = [contender.to_own(n, t) for n, t in zip(("x", "y", "w"), operands.tangents, strict=True)]
    errors = []
    if not contender.double_only:
        out = contender.forward(x, y, w)
        gradients = first_derivatives(contender, leaves, g.detach(), out)
        names = ("out", "x", "y", "w")
        results = [contender.to_common(n, t.detach()) for n, t in zip(names, (out, *gradients), strict=True)]
        errors = exact.errors(results)
        del results, gradients
        record["error"] = max(errors)
        if not record["error"] <= TOLERANCE[case.dtype]:
            record["wrong"] = errors
            return
        if "forward" in passes:
            detached = [t.detach() for t in leaves]
            record["forward_ns"], record["forward_spread"] = (
                t / edges for t in measure.time_ns(lambda: contender.forward(*detached), device, repeats)
            )
        if "backward" in passes:
            record["backward_ns"], record["backward_spread"] = (
                t / edges
                for t in measure.time_ns(lambda: first_derivatives(contender, leaves, g.detach(), out), device, repeats)
            )
        del out
    if "double" not in passes:
        return
    if contender.double:
        plain = [t.detach() for t in (*leaves, g)]

        def second():
            return contender.double(*plain, *tangents)

    else:
        gradients = torch.autograd.grad(contender.forward(x, y, w), leaves, g, create_graph=True)

        def second():
            return torch.autograd.grad(gradients, (*leaves, g), tangents, retain_graph=True)

    names = ("x", "y", "w", "out")
    errors = exact.errors([contender.to_common(n, t.detach()) for n, t in zip(names, second(), strict=True)], 4)
    record["double_error"] = max(errors)
    record.setdefault("error", record["double_error"])
    if not record["double_error"] <= 3 * TOLERANCE[case.dtype]:
        record["wrong"] = errors
        return
    record["double_ns"], record["double_spread"] = (t / edges for t in measure.time_ns(second, device, repeats))


def clean(device):
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def bench(case, vectors, libraries, passes, repeats, result, save):
    """Appends the records of one problem in one dtype to result; saves after each, as a peer may end the process."""
    records, unavailable = result["records"], result["unavailable"]
    operands = Operands(case.problem, case.graph, vectors, case.dtype, "double" in passes)
    exact = Exact(case.problem, case.graph, operands)
    work = measure.work(case.problem, case.graph.nodes, case.graph.edges, operands.x.element_size())
    for library in libraries:
        if library in unavailable:
            continue
        try:
            for contender in LIBRARIES[library](case):
                if contender.double_only and "double" not in passes:
                    continue
                record = {
                    "problem": case.name,
                    "dtype": str(case.dtype)[6:],
                    "nodes": case.graph.nodes,
                    "edges": case.graph.edges,
                    "library": contender.library,
                    "version": contender.version,
                    "mode": contender.mode,
                    "work": {k: {"flop": v[0], "bytes": v[1]} for k, v in work.items()},
                }
                try:
                    run(contender, case, operands, exact, passes, repeats, record)
                except Exception as error:  # a peer's failure is no result; ours is one, and main() exits with 1
                    record["failed"] = repr(error)[:300]
                records.append(record)
                print(report.line(record), flush=True)
                save()
                del contender
                clean(case.device)
        except ImportError as error:
            unavailable[library] = repr(error)[:200]
            print(f"# {library} is not here: {error!r:.200}", flush=True)
        except NotImplementedError as error:
            print(f"# {case.name}: {library} has {error}", flush=True)
        except Exception as error:
            print(f"# {case.name}: {library} failed: {error!r:.300}", flush=True)
            records.append({"problem": case.name, "dtype": str(case.dtype)[6:], "library": library, "mode": "",
                            "failed": repr(error)[:300]})  # fmt: skip
        clean(case.device)


def peaks(device):
    """Measured; without torch's own compiler of kernels, copies alone, and no operation is a share of a peak."""
    try:
        return measure.peaks(device)
    except (AttributeError, RuntimeError) as error:
        print(f"# peak of multiply-adds not measured: {error!r:.200}")
        return {"copy_GB_s": measure.copy_rate(device), "float32_GFLOP_s": math.inf, "float64_GFLOP_s": math.inf}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libclebsch.so")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--problems", default=SIX, help="names of src/core/problem/named_problems.cpp, with commas")
    parser.add_argument("--libraries", default="clebsch,cuequivariance,flashtp,openequivariance,e3nn")
    parser.add_argument("--passes", default="forward,backward,double")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--cells", type=int, default=5, help="8 cells^3 atoms")
    parser.add_argument("--cutoff", type=float, default=6.0, help="A")
    parser.add_argument("--schedules", default="", help="values of CLEBSCH_CUDA_SCHEDULE to time too, with spaces")
    parser.add_argument("--plans-only", action="store_true", help="of Clebsch, what --schedules names alone")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds after which nothing is begun")
    parser.add_argument("--json", help="write records here, after every measurement")
    parser.add_argument("--plot", help="write a roofline plot here")
    arguments = parser.parse_args()
    start, device = time.monotonic(), arguments.device
    torch.ops.load_library(arguments.library)
    texts = torch.classes.clebsch.Model.named_problems()
    nodes, receivers, senders, vectors = diamond(arguments.cells, device, arguments.cutoff)
    degrees = torch.bincount(receivers.cpu(), minlength=nodes)
    graph = make_graph(degrees, nodes, senders=senders, device=device)
    result = {
        **common.about(device),
        "peaks": peaks(device),
        "records": [],
        "unavailable": {},
    }
    clean(device)
    rates = ", ".join(f"{k.replace('_', ' ', 1).replace('_', '/')} {v:.0f}" for k, v in result["peaks"].items())
    print(f"# {result['machine']}, torch {result['torch']}, {nodes} atoms, {graph.edges} edges; peaks: {rates}")

    def save():
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")

    # The slow ones last, so that a deadline costs them alone.
    libraries = arguments.libraries.split(",")
    groups = [[k for k in libraries if k not in LAST], *([k] for k in LAST if k in libraries)]
    for group, dtype, name in itertools.product(groups, arguments.dtypes.split(","), arguments.problems.split(",")):
        if time.monotonic() - start > arguments.deadline:
            print(f"# {name} {dtype} {' '.join(group)}: no time left")
        elif group:
            plans = arguments.schedules.split()
            case = Case(name, Problem(texts[name]), graph, getattr(torch, dtype), device, plans, arguments.plans_only)
            bench(case, vectors, group, arguments.passes.split(","), arguments.repeats, result, save)
            save()
    print(report.table(result))
    if arguments.plot:
        report.plot(result, arguments.plot)
    ours = [r for r in result["records"] if r["library"].startswith("clebsch")]  # a peer's failure is not ours
    return 1 if not ours or any("failed" in r or "wrong" in r for r in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
