"""Times `interaction` under other plans than the planner's (CLEBSCH_CUDA_INTERACTION), fp32 on rattled diamond.

    python benchmarks/interaction/sweep_interaction.py --library build/lib/libclebsch.so

Kernels of all plans are compiled side by side by processes of their own first, so CLEBSCH_CACHE_DIR must be a folder
that can be written. A plan whose results differ from the default plan's is not timed.
"""

import argparse
import os
import subprocess
import sys
import time

import torch
from bench_interaction import case_of, cutoff_of
from graphs import diamond  # found by bench_interaction
from interaction_cases import make_case, make_radial, radial_problems, relative
from measure import time_ns

VARIABLE = "CLEBSCH_CUDA_INTERACTION"
PROBLEMS = "mace-M,nequip-M,mace-L,nequip-S,nequip-L,nequip-water"
PLANS = (
    "",
    "prefetch=0",
    "prefetch=1",
    "blocks=2",
    "blocks=3",
    "blocks=4",
    "blocks=5",
    "receivers=2",
    "receivers=4",
    "tile=8",
    "tile=32",
    "hoist=0",
    "units=2",
    "units=4",
    "units=8",
    "units=8,blocks=2",
    "code=100000",
    "code=600",
    "prefetch=1,blocks=3",
    "prefetch=0,blocks=4",
)


def compile_only(texts, problems):
    """Small calls of every kernel of the plan in the environment."""
    for name in problems:
        case = make_case(texts[name], [3, 0], 3)
        for transpose in (True, False):
            try:
                case.operands(torch.float32, "cuda", transpose).results()
            except RuntimeError:
                pass  # a plan that does not fit; the timing says so


def compile_all(options, plans):
    """One process a plan and problem, as many at a time as there are cores."""
    waiting = [(plan, name) for plan in plans for name in options.problems]
    running, end = [], time.monotonic() + options.compile_seconds
    command = [sys.executable, __file__, "--library", options.library, "--compile-only", "--problems"]
    while (waiting or running) and time.monotonic() < end:
        running = [p for p in running if p.poll() is None]
        while waiting and len(running) < (os.cpu_count() or 4):
            plan, name = waiting.pop(0)
            running.append(subprocess.Popen([*command, name], env={**os.environ, VARIABLE: plan}))
        time.sleep(0.05)
    for process in running:
        process.kill()
    print(
        f"# {len(waiting) + len(running)} of {len(plans) * len(options.problems)} plans not compiled in time",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--problems", default=PROBLEMS)
    parser.add_argument("--plans", default=";".join(PLANS), help="separated by semicolons, the default plan first")
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=150, help="no further plan is begun after this time")
    parser.add_argument("--compile-seconds", type=float, default=70)
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    options.problems = options.problems.split(",")
    torch.ops.load_library(options.library)
    texts = radial_problems()
    if options.compile_only:
        compile_only(texts, options.problems)
        return
    begin = time.monotonic()
    plans = options.plans.split(";")
    compile_all(options, plans)
    print(f"# compiled after {time.monotonic() - begin:.0f} s", flush=True)
    graphs = {}
    for name in options.problems:
        cutoff = cutoff_of(name)
        if cutoff not in graphs:
            graphs[cutoff] = diamond(options.cells, "cuda", cutoff)
        case = case_of(texts[name], graphs[cutoff], make_radial(texts[name], [[cutoff]]))
        operands = {t: case.operands(torch.float32, "cuda", t) for t in (True, False)}
        expected = None
        for plan in plans:
            if time.monotonic() - begin > options.seconds:
                print(f"{name:13s} {plan}: not begun")
                continue
            os.environ[VARIABLE] = plan
            try:
                results = operands[True].results()
                expected = expected or [t.double() for t in results]
                error = max(relative(a, b)[0] for a, b in zip(results, expected, strict=True))
                if not error < 1e-5:
                    print(f"{name:13s} {plan:22s} WRONG: differs by {error:.1e}", flush=True)
                    continue
                calls = (operands[True].forward, operands[True].backward, operands[False].backward)
                forward, backward, atomic = (time_ns(c, "cuda", options.repeats)[0] / case.edges for c in calls)
            except RuntimeError as error:
                print(f"{name:13s} {plan:22s} {str(error)[:150]}", flush=True)
                continue
            print(
                f"{name:13s} {plan or 'default':22s} forward {forward:7.3f}  backward: det {backward:7.3f} atomic"
                f" {atomic:7.3f} ns/edge",
                flush=True,
            )


if __name__ == "__main__":
    main()
