"""Runs every variant of the convolution kernels once on small graphs, for compute-sanitizer to watch; compares nothing.

    compute-sanitizer --tool racecheck python tests/gpu/sanitize_conv.py --library build/lib/libclebsch.so

Operands are made on the CPU and nothing but Clebsch runs on the GPU. Set PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that
every tensor is an allocation of its own and its borders are watched.
"""

import argparse
import itertools
import os
import sys
import time

import torch
from conv_reference import Problem, make_graph

PROBLEMS = "test-uneven,test-parity,test-unsorted,test-weightless,test-one-channel,test-uvw,nequip-S,nequip-M,mace-l1"
SCHEDULES = ("", "prefetch=1,ahead=4", "prefetch=0,ahead=0", "units=4", "code=60", "receivers=2,tile=8", "hoist=0")


def graphs():
    """Empty rows and ghosts; a receiver that is split over blocks; unused capacity; no edge at all."""
    uneven = torch.tensor([0, 3, 40, 0, 1, 33, 17, 0, 5])
    return {
        "uneven": make_graph(uneven, 13),
        "padded": make_graph(uneven, 13, padding=11, layer_rows=6),
        "long": make_graph([1200, 2], 5),
        "empty": make_graph([0, 0], 3),
    }


def run(text, graph, dtype, mask, deterministic, double):
    problem = Problem(text)
    tensors = list(graph.list)
    if not deterministic:
        tensors[3] = tensors[4] = torch.zeros(0, dtype=torch.int32, device="cuda")
    capacity = tensors[1].numel()
    shapes = ((graph.nodes, problem.in1.dim), (capacity, problem.in2.dim), (capacity, problem.weight_count))
    operands = [torch.randn(*s, dtype=dtype).cuda().requires_grad_(m) for s, m in zip(shapes, mask, strict=True)]
    out = torch.ops.clebsch.tensor_product_conv(*operands, tensors, 0, text)
    wanted = [t for t, m in zip(operands, mask, strict=True) if m]
    if wanted:
        g = torch.randn(*out.shape, dtype=dtype).cuda().requires_grad_(double)
        gradients = torch.autograd.grad(out, wanted, g, create_graph=double)
        if double:
            tangents = [torch.randn(*t.shape, dtype=dtype).cuda() for t in gradients]
            torch.autograd.grad(gradients, (*wanted, g), tangents)
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--problems", default=PROBLEMS)
    parser.add_argument("--seconds", type=float, default=60, help="no further case is begun after this time")
    arguments = parser.parse_args()
    torch.ops.load_library(arguments.library)
    texts = torch.classes.clebsch.Model.named_problems()
    start, cases, skipped, refused = time.monotonic(), 0, 0, set()
    everything = (True, True, True)
    plans = [(everything, "uneven", s, d) for s in SCHEDULES for d in (True, False)]
    plans += [(everything, g, "", d) for g in ("padded", "long", "empty") for d in (True, False)]
    plans += [(m, "uneven", "", True) for m in itertools.product((False, True), repeat=3) if m != everything]
    made = graphs()
    # Plans outermost: what time cuts off is the rarest variant of every problem, not a problem.
    for mask, graph, schedule, deterministic in plans:
        os.environ["CLEBSCH_CUDA_SCHEDULE"] = schedule
        for name in arguments.problems.split(","):
            for dtype in (torch.float32, torch.float64):
                if time.monotonic() - start > arguments.seconds:
                    skipped += 1
                    continue
                try:
                    # Second derivatives are summed by torch, which also adds up what lies beyond the edges.
                    double = schedule == "" and mask == everything and graph != "padded"
                    run(texts[name], made[graph], dtype, mask, deterministic, double)
                    cases += 1
                except RuntimeError as error:
                    if schedule and "no schedule" in str(error):  # a forced plan need not fit
                        continue
                    refused.add(f"{name}: {str(error).splitlines()[0][:200]}")
    for line in sorted(refused):
        print("REFUSED", line)
    print(f"{cases} cases, {len(refused)} refused, {skipped} not begun in {arguments.seconds:.0f} s")
    return 1 if refused or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
