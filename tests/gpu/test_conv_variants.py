"""Runs every variant of the convolution kernels once on small graphs, for compute-sanitizer to watch; compares nothing.

    compute-sanitizer --tool racecheck python tests/gpu/sanitize_conv.py --library build/lib/libclebsch.so
    python tests/gpu/sanitize_conv.py --library build/lib/libclebsch.so --list        # no GPU needed
    python tests/gpu/sanitize_conv.py --library build/lib/libclebsch.so --summary LOGS

Cases are ordered so that every variant (plan, sum by atomics or in fixed order, number type, pass) comes early, then
other problems, graphs and choices of gradients. --shard I/N runs every N-th of them. With --log FILE each case leaves a
line as soon as it is done, and a second run with the same file begins where the first ended: a process that a fault
stops costs one case. The logs of a run under tool T are named T-<shard>.log, what the tool says T-<shard>.txt;
--summary makes one report of them.

Operands are made on the CPU and nothing but Clebsch runs on the GPU. Set PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that
every tensor is an allocation of its own and its borders are watched.
"""

import argparse
import dataclasses
import itertools
import os
import re
import sys
import time
from pathlib import Path

import torch

# First those that between them have every feature: uneven, several blocks, uvw, weightless.
PROBLEMS = "test-uneven,test-uvw,test-weightless,mace-l1,test-one-channel,test-parity,test-unsorted,nequip-S,nequip-M"
PLANS = ("", "stages=2", "prefetch=1,ahead=4", "units=4", "code=60", "receivers=2,tile=8", "hoist=0",
         "prefetch=0,ahead=0", "stages=4,units=2")  # fmt: skip
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FINDINGS = "Uninitialized|Invalid|Program hit|Race|hazard|Barrier|Divergent|leak"
EVERYTHING = (True, True, True)
# Their double backward is compiled in a second or two: it is run under every plan.
SMALL = ("test-uneven", "test-uvw", "test-weightless", "mace-l1", "test-one-channel")
# Guesses for --list: 424 first-order cases took 75 s, compiling included, in one of four processes on an H200.
CASE_SECONDS, COMPILE_SECONDS, START_SECONDS = 0.5, 1.0, 15.0


@dataclasses.dataclass(frozen=True)
class Case:
    problem: str
    dtype: str
    graph: str = "uneven"
    plan: str = ""
    mask: tuple = EVERYTHING
    deterministic: bool = True

    @property
    def double(self):
        """Second derivatives too. They are summed by torch, which also adds up what lies beyond the edges."""
        return self.mask == EVERYTHING and self.graph != "padded" and (not self.plan or self.problem in SMALL)

    @property
    def passes(self):
        return ("forward", *(["backward"] if any(self.mask) else []), *(["double"] if self.double else []))

    def variants(self):
        mode = "deterministic" if self.deterministic else "atomic"
        return [(self.plan or "default", mode, self.dtype, p) for p in self.passes]

    def __str__(self):
        mask = "".join("xyw"[i] for i in range(3) if self.mask[i]) or "none"
        mode = "deterministic" if self.deterministic else "atomic"
        return f"{self.problem} {self.dtype} {self.graph} {self.plan or 'default'} {mask} {mode}"


def all_cases(problems):
    """In order of importance."""
    dtypes, modes = ("float32", "float64"), (True, False)
    edges = [Case("edge_embedding", d) for d in dtypes]
    plans = [Case(p, d, plan=s, deterministic=m)
             for p in problems for s in PLANS for m in modes for d in dtypes]  # fmt: skip
    graphs = [Case(p, d, graph=g, deterministic=m)
              for g in ("padded", "long", "empty") for p in problems for m in modes for d in dtypes]  # fmt: skip
    masks = [Case(p, d, mask=k) for k in itertools.product((False, True), repeat=3) if k != EVERYTHING
             for p in problems for d in dtypes]  # fmt: skip
    return edges + plans + graphs + masks


def graphs():
    """Empty rows and ghosts; a receiver that is split over blocks; unused capacity; no edge at all."""
    from conv_reference import make_graph

    uneven = torch.tensor([0, 3, 40, 0, 1, 33, 17, 0, 5])
    return {
        "uneven": make_graph(uneven, 13),
        "padded": make_graph(uneven, 13, padding=11, layer_rows=6),
        "long": make_graph([1200, 2], 5),
        "empty": make_graph([0, 0], 3),
    }


def run_edges(dtype):
    """edge_embedding with its first and second derivative."""
    from test_edge_embedding import Edges, problem

    edges = Edges(9, 60, 5, 7)
    graph, radial = [t.cuda() for t in edges.graph], [t.cuda() for t in edges.radial]
    vectors = torch.cat([edges.vectors, edges.padding]).cuda().requires_grad_()
    made = torch.ops.clebsch.edge_embedding(
        vectors, graph, edges.types.cuda(), radial, 0, problem(3, 6), getattr(torch, dtype)
    )
    weights = [torch.randn(*t.shape, dtype=t.dtype).cuda() for t in made]
    (first,) = torch.autograd.grad(made, [vectors], weights, create_graph=True)
    torch.autograd.grad(first, [vectors], torch.randn(*first.shape, dtype=first.dtype).cuda())
    torch.cuda.synchronize()


def run(case, text, graph):
    from conv_reference import Problem

    problem, dtype = Problem(text), getattr(torch, case.dtype)
    tensors = list(graph.list)
    if not case.deterministic:
        tensors[3] = tensors[4] = torch.zeros(0, dtype=torch.int32, device="cuda")
    capacity = tensors[1].numel()
    shapes = ((graph.nodes, problem.in1.dim), (capacity, problem.in2.dim), (capacity, problem.weight_count))
    operands = [torch.randn(*s, dtype=dtype).cuda().requires_grad_(m) for s, m in zip(shapes, case.mask, strict=True)]
    out = torch.ops.clebsch.tensor_product_conv(*operands, tensors, 0, text)
    wanted = [t for t, m in zip(operands, case.mask, strict=True) if m]
    if wanted:
        g = torch.randn(*out.shape, dtype=dtype).cuda().requires_grad_(case.double)
        gradients = torch.autograd.grad(out, wanted, g, create_graph=case.double)
        if case.double:
            tangents = [torch.randn(*t.shape, dtype=dtype).cuda() for t in gradients]
            torch.autograd.grad(gradients, (*wanted, g), tangents)
    torch.cuda.synchronize()


def read_logs(folder):
    """{tool: {case: what became of it}} and {tool: summaries of the tool itself and lines that speak of an error}."""
    done, said = {t: {} for t in TOOLS}, {t: [] for t in TOOLS}
    for tool in TOOLS:
        for log in sorted(Path(folder).glob(f"{tool}-*.log")):
            for line in log.read_text().splitlines():
                state, _, case = line.partition(" ")
                done[tool][case] = state
        for text in sorted(Path(folder).glob(f"{tool}-*.txt")):
            lines = [re.sub(r"/[^ ]*/", "", line) for line in text.read_text(errors="replace").splitlines()]
            for i, line in enumerate(lines):
                if "SUMMARY" in line and not re.search(r"SUMMARY: 0 (errors|hazards)", line):
                    said[tool].append(f"{text.name}: {line}")
                elif "SUMMARY" not in line and re.search(rf"^========= .*({FINDINGS})", line):
                    said[tool] += [f"{text.name}: {part}" for part in lines[i : i + 5]]
    return done, said


def summary(folder, problems):
    cases = all_cases(problems)
    names = {str(c): c for c in cases}
    done, said = read_logs(folder)
    clean, complete = True, True
    covered = {}
    for tool in TOOLS:
        states = done[tool]
        count = {s: sum(1 for c in names if states.get(c) == s) for s in ("done", "none", "refused", "begun")}
        left = len(names) - count["done"] - count["none"] - count["refused"]
        print(
            f"{tool}: {count['done']} cases run, {count['none']} plans that do not fit, {count['refused']} refused, "
            f"{left} not finished, {len(said[tool])} lines of findings"
        )
        for name in names:
            if states.get(name) in ("refused", "begun"):
                print(f"  {states[name]}: {name}")
        for line in said[tool][:40]:
            print(f"  {line}")
        clean &= not said[tool] and not count["refused"] and not count["begun"]
        complete &= left == 0
        covered[tool] = {v for name, c in names.items() if states.get(name) == "done" for v in c.variants()}
    wanted = {v for c in cases for v in c.variants()}
    missing = {v: [t for t in TOOLS if v not in covered[t]] for v in sorted(wanted)}
    missing = {v: tools for v, tools in missing.items() if tools}
    print(f"{len(wanted) - len(missing)} of {len(wanted)} variants (plan, mode, dtype, pass) under all four tools")
    for variant, tools in missing.items():
        print(f"  {', '.join(variant)}: not under {', '.join(tools)}")
    print("CLEAN" if clean else "FINDINGS", "COMPLETE" if complete else "INCOMPLETE")
    return 0 if clean and not missing else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--problems", default=PROBLEMS)
    parser.add_argument("--seconds", type=float, default=60, help="no further case is begun after this time")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--log")
    parser.add_argument("--list", action="store_true", help="prints the cases and an estimate of the time")
    parser.add_argument("--summary", metavar="FOLDER")
    arguments = parser.parse_args()
    problems = arguments.problems.split(",")
    if arguments.summary:
        return summary(arguments.summary, problems)
    shard, shards = (int(n) for n in arguments.shard.split("/"))
    cases = all_cases(problems)
    mine = cases[shard::shards]
    if arguments.list:
        for case in mine:
            print(case)
        kernels = len({(c.problem, c.dtype, c.plan, c.mask, c.deterministic, p) for c in mine for p in c.passes})
        print(
            f"{len(mine)} cases, {len({v for c in mine for v in c.variants()})} variants, at most {kernels} kernels: "
            f"about {kernels * COMPILE_SECONDS:.0f} s of compiling, then "
            f"{START_SECONDS + len(mine) * CASE_SECONDS:.0f} s a tool in one process"
        )
        return 0
    torch.ops.load_library(arguments.library)
    texts = torch.classes.clebsch.Model.named_problems()
    known = {}
    if arguments.log and os.path.exists(arguments.log):
        for line in Path(arguments.log).read_text().splitlines():
            state, _, name = line.partition(" ")
            known[name] = state
    start, count, refused, skipped = time.monotonic(), 0, 0, 0

    def note(state, case):
        if arguments.log:
            with open(arguments.log, "a") as log:
                log.write(f"{state} {case}\n")

    made = graphs()
    for case in mine:
        if str(case) in known:
            continue
        if time.monotonic() - start > arguments.seconds:
            skipped += 1
            continue
        note("begun", case)
        os.environ["CLEBSCH_CUDA_SCHEDULE"] = case.plan
        try:
            if case.problem == "edge_embedding":
                run_edges(case.dtype)
            else:
                run(case, texts[case.problem], made[case.graph])
            count += 1
            note("done", case)
        except RuntimeError as error:
            if case.plan and "no schedule" in str(error):  # a forced plan need not fit
                note("none", case)
                continue
            refused += 1
            note("refused", case)
            print(f"REFUSED {case}: {str(error).splitlines()[0][:200]}", flush=True)
            try:
                torch.cuda.synchronize()
            except RuntimeError:  # a fault: nothing runs in this process any more
                print("the device's context is lost; begin again with the same --log", flush=True)
                os._exit(4)
    print(f"{count} cases, {refused} refused, {skipped} not begun in {arguments.seconds:.0f} s")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
