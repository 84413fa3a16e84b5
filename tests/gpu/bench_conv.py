"""Times tensor_product_conv on one GPU beside OpenEquivariance (when it can be imported) on the same graph.

    python tests/gpu/bench_conv.py --library build/lib/libclebsch.so --problems tests/gpu/results/kernels.json

Diamond carbon, cutoff 6 A, features and weights random, weights and harmonics given (no radial network). Every result
is compared with the fp64 reference before it is timed. ns are per edge: median of 30 runs after 5, device events around
the op. `backward` is torch.autograd.grad of the op with respect to x, harmonics and weights.
"""

import argparse
import datetime
import itertools
import json
import os
import sys

import torch
from conv_reference import Graph, Problem, block_errors, make_graph, reference
from e3nn import o3

SIX = ["mace-l1", "mace-M", "mace-L", "nequip-water", "nequip-M", "7net-l3i5"]


def diamond(cells, cutoff=6.0, a=3.567):
    """Positions rattled by 0.05 A, edges of all pairs within the cutoff: (nodes, receivers, senders, vectors)."""
    base = [
        [0, 0, 0],
        [0, 0.5, 0.5],
        [0.5, 0, 0.5],
        [0.5, 0.5, 0],
        [0.25] * 3,
        [0.25, 0.75, 0.75],
        [0.75, 0.25, 0.75],
        [0.75, 0.75, 0.25],
    ]
    grid = torch.tensor(list(itertools.product(range(cells), repeat=3)), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    position = (grid[:, None] + torch.tensor(base, dtype=torch.float64)[None]).reshape(-1, 3) * a
    position = (position + 0.05 * torch.randn(position.shape, generator=generator, dtype=torch.float64)).cuda()
    nodes, found = position.shape[0], []
    for s in range(0, nodes, 512):
        d = position[None] - position[s : s + 512, None]
        for shift in itertools.product((-1, 0, 1), repeat=3):
            v = d + torch.tensor(shift, dtype=torch.float64, device="cuda") * cells * a
            r2 = (v * v).sum(-1)
            i, j = ((r2 < cutoff**2) & (r2 > 1e-8)).nonzero(as_tuple=True)
            found.append((i + s, j, v[i, j]))
    receivers, senders, vectors = (torch.cat(t) for t in zip(*found, strict=True))
    order = torch.argsort(receivers * nodes + senders, stable=True)
    return nodes, receivers[order], senders[order], vectors[order]


REPEATS = 30


def median_ns(function, edges, warmup=5):
    for _ in range(warmup):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e6 / edges)
    times.sort()
    return times[len(times) // 2], times[3 * len(times) // 4] - times[len(times) // 4]


def floor_ns(problem, nodes, edges, size, bandwidth):
    """Least bytes an edge over the measured copy bandwidth: forward, backward (with dX summed in cache)."""
    node = nodes / edges * size
    forward = size * (problem.weight_count + problem.in2.dim) + 4 + node * (problem.in1.dim + problem.out.dim)
    backward = 2 * size * (problem.weight_count + problem.in2.dim) + 4 + node * (2 * problem.in1.dim + problem.out.dim)
    return forward / bandwidth, backward / bandwidth


def copy_bandwidth():
    """Bytes read plus written a nanosecond by a large device copy."""
    a = torch.randn(1 << 29, device="cuda")
    b = torch.empty_like(a)
    ns, _ = median_ns(lambda: b.copy_(a), 1)
    return 2 * a.numel() * 4 / ns


class Peer:
    """OpenEquivariance's convolution of the same problem; operands in its own layout and order."""

    def __init__(self, problem, dtype):
        import numpy as np
        import openequivariance as oeq

        instructions = [(p.in1, p.in2, p.out, "uvu", True) for p in problem.paths]
        kind = {torch.float32: np.float32, torch.float64: np.float64}[dtype]
        description = oeq.TPProblem(
            problem.in1,
            problem.in2,
            problem.out,
            instructions,
            shared_weights=False,
            internal_weights=False,
            irrep_dtype=kind,
            weight_dtype=kind,
        )
        self.version = getattr(oeq, "__version__", "?")
        self.ops = {
            False: oeq.TensorProductConv(description, deterministic=False),
            True: oeq.TensorProductConv(description, deterministic=True),
        }
        self.problem = problem

    def to_peer(self, irreps, t):
        """channel fastest -> e3nn's [mul][2l+1]."""
        parts = [t[:, self.problem.columns(b, t.device).T.reshape(-1)] for b in self.problem.blocks(irreps)]
        return torch.cat(parts, 1).contiguous()

    def from_peer(self, irreps, t):
        out, begin = torch.empty_like(t), 0
        for block in self.problem.blocks(irreps):
            columns = self.problem.columns(block, t.device).T.reshape(-1)
            out[:, columns] = t[:, begin : begin + columns.numel()]
            begin += columns.numel()
        return out


def bench(name, problem, graph, vectors, dtype, with_peer, schedules):
    torch.manual_seed(0)
    edges, nodes = graph.edges, graph.nodes
    x = torch.randn(nodes, problem.in1.dim, device="cuda", dtype=torch.float64)
    y = o3.spherical_harmonics([ir.l for _, ir in problem.in2], vectors, True, "component")
    w = torch.randn(edges, problem.weight_count, device="cuda", dtype=torch.float64)
    g = torch.randn(nodes, problem.out.dim, device="cuda", dtype=torch.float64)
    # The exact result of the first rows alone keeps the reference small; so do the gradients of W and Y of their edges.
    rows = min(60, nodes)
    used = int((graph.receivers < rows).sum())
    exact = [t.to(dtype).double() for t in (x, y, w)]
    leaves = [
        exact[0].clone().requires_grad_(),
        exact[1][:used].clone().requires_grad_(),
        exact[2][:used].clone().requires_grad_(),
    ]
    expected = reference(problem, *leaves, graph.senders[:used], graph.receivers[:used], rows)
    _, expected_y, expected_w = torch.autograd.grad(expected, leaves, g[:rows].to(dtype).double())
    # dX of one node: its outgoing edges.
    node = int(graph.senders[0])
    out_edges = (graph.senders == node).nonzero()[:, 0]
    x_leaf = exact[0].clone().requires_grad_()
    partial = reference(
        problem,
        x_leaf,
        exact[1][out_edges],
        exact[2][out_edges],
        graph.senders[out_edges],
        graph.receivers[out_edges],
        nodes,
    )
    expected_x = torch.autograd.grad(partial, x_leaf, g.to(dtype).double())[0][node : node + 1]
    del exact, leaves, partial, x_leaf
    x, y, w = (t.to(dtype).requires_grad_() for t in (x, y, w))
    g = g.to(dtype)

    def measure(label, function, gradient, from_out=lambda t: t, from_x=lambda t: t, from_w=lambda t: t):
        out = function()
        gx, gy, gw = gradient(out)
        errors = [
            block_errors(problem, problem.out, from_out(out.detach())[:rows], expected.detach()),
            block_errors(problem, problem.in1, from_x(gx)[node : node + 1], expected_x),
            float((gy[:used].double() - expected_y).norm() / expected_y.norm()),
            float((from_w(gw)[:used].double() - expected_w).norm() / expected_w.norm()),
        ]
        del gx, gy, gw
        record = {
            "name": name,
            "dtype": str(dtype)[6:],
            "nodes": nodes,
            "edges": edges,
            "what": label,
            "error": max(errors),
        }
        if max(errors) > (1e-4 if dtype == torch.float32 else 1e-11):
            print(f"{name:13s} {label:28s} WRONG: {errors}", flush=True)
            record["wrong"] = errors
            return record
        forward, spread_f = median_ns(function, edges)
        backward, spread_b = median_ns(lambda: gradient(out), edges)
        record.update(forward_ns=forward, forward_spread=spread_f, backward_ns=backward, backward_spread=spread_b)
        print(
            f"{name:13s} {record['dtype']:8s} {label:28s} fwd {forward:7.3f} bwd {backward:7.3f} ns/edge"
            f"  error {max(errors):.1e}",
            flush=True,
        )
        return record

    records = []
    for schedule in schedules:
        if schedule:
            os.environ["CLEBSCH_CUDA_SCHEDULE"] = schedule
        else:
            os.environ.pop("CLEBSCH_CUDA_SCHEDULE", None)
        for deterministic in (True, False) if not schedule else (False,):
            tensors = list(graph.list)
            if not deterministic:
                tensors[3] = tensors[4] = torch.zeros(0, dtype=torch.int32, device="cuda")
            label = f"clebsch {schedule or ('deterministic' if deterministic else 'atomic')}"
            try:
                records.append(
                    measure(
                        label,
                        lambda graph=tensors: torch.ops.clebsch.tensor_product_conv(x, y, w, graph, -1, problem.text),
                        lambda out: torch.autograd.grad(out, (x, y, w), g, retain_graph=True),
                    )
                )
            except RuntimeError as error:
                print(f"{name:13s} {label}: {str(error)[:200]}", flush=True)
    os.environ.pop("CLEBSCH_CUDA_SCHEDULE", None)
    if with_peer:
        try:
            peer = Peer(problem, dtype)
            px = peer.to_peer(problem.in1, x.detach()).requires_grad_()
            pg = peer.to_peer(problem.out, g)
            permutation = torch.argsort(graph.senders * nodes + graph.receivers)
            for deterministic in (True, False):
                op = peer.ops[deterministic]
                pw = op.reorder_weights_from_e3nn(w.detach(), True).detach().requires_grad_()
                more = (permutation,) if deterministic else ()
                records.append(
                    measure(
                        f"openequivariance {'deterministic' if deterministic else 'atomic'}",
                        lambda op=op, pw=pw, more=more: op(px, y, pw, graph.receivers, graph.senders, *more),
                        lambda out, pw=pw: torch.autograd.grad(out, (px, y, pw), pg, retain_graph=True),
                        lambda t: peer.from_peer(problem.out, t),
                        lambda t: peer.from_peer(problem.in1, t),
                        lambda t, op=op: op.reorder_weights_to_e3nn(t, True),
                    )
                )
                records[-1]["version"] = peer.version
        except Exception as error:  # a peer that is not there or fails is no result of ours
            print(f"{name:13s} openequivariance: {repr(error)[:200]}", flush=True)
    return records


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--problems", required=True)
    parser.add_argument("--out")
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--only", default=",".join(SIX))
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--schedules", default="", help="CLEBSCH_CUDA_SCHEDULE values to try too, separated by spaces")
    parser.add_argument("--commit", default="")
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    global REPEATS
    REPEATS = arguments.repeats
    torch.ops.load_library(arguments.library)
    with open(arguments.problems) as file:
        problems = {item["name"]: item["problem"] for item in json.load(file)["problems"]}
    nodes, receivers, senders, vectors = diamond(arguments.cells)
    graph = make_graph(torch.bincount(receivers.cpu(), minlength=nodes), nodes, senders=senders)
    assert isinstance(graph, Graph) and torch.equal(graph.receivers, receivers)
    bandwidth = copy_bandwidth()
    torch.cuda.empty_cache()
    print(
        f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, diamond {nodes} atoms, {graph.edges} edges, "
        f"copy {bandwidth:.0f} GB/s"
    )
    records = []
    for name in arguments.only.split(","):
        problem = Problem(problems[name])
        for dtype in arguments.dtypes.split(","):
            dtype = getattr(torch, dtype)
            floor = floor_ns(problem, nodes, graph.edges, 4 if dtype == torch.float32 else 8, bandwidth)
            print(
                f"{name:13s} {str(dtype)[6:]:8s} {'floor (bytes)':28s} fwd {floor[0]:7.3f} bwd {floor[1]:7.3f} ns/edge",
                flush=True,
            )
            records += bench(name, problem, graph, vectors, dtype, arguments.peer, [""] + arguments.schedules.split())
            torch.cuda.empty_cache()
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(
                {
                    "command": " ".join(sys.argv),
                    "commit": arguments.commit,
                    "machine": torch.cuda.get_device_name(),
                    "torch": torch.__version__,
                    "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
                    "copy_GB_s": bandwidth,
                    "records": records,
                },
                file,
                indent=1,
            )


if __name__ == "__main__":
    main()
