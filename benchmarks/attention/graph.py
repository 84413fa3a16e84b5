"""graph_attention as the local FusedMM of sparse matrices, out_r = sum over edges of (q_r . k_s) v_s, beside cuSPARSE's
SDDMM and SpMM through torch; a wrong answer is not timed.

  benchmarks/run graph-attention [--device cuda] [-- --only r256]

Random rows of 32 edges, and a crystal of diamond. Times on a GPU are of graph replays (what the device takes, without
Python), of calls in a loop where a contender cannot be captured. Errors are root mean squares against float64 on the
rounded inputs, in those of the output. On the CPU the peer is torch's MKL.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/attention"), str(ROOT / "src/python")]

import common  # noqa: E402
from timing import both_times, error_of, event_times, forward_times  # noqa: E402

from clebsch.attention import EdgeRows, graph_attention  # noqa: E402

#: name, record, graph, nodes, columns, dtype, whether values are the keys.
CASES = [
    ("r256", "fusedmm_local_us", "random", 65536, 256, torch.float32, True),
    ("r256 separate", "fusedmm_separate_us", "random", 65536, 256, torch.float32, False),
    ("r256 bfloat16", "fusedmm_local_bf16_us", "random", 65536, 256, torch.bfloat16, True),
    ("r128", "fusedmm_local_r128_us", "random", 65536, 128, torch.float32, True),
    ("diamond", "fusedmm_diamond_us", "diamond", 8000, 256, torch.float32, True),
]
BOUND = {torch.float32: 1e-6, torch.bfloat16: 5e-3}


def random_graph(nodes: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """32 senders a receiver, all different."""
    random = torch.Generator().manual_seed(1)
    step = nodes // 32
    senders = torch.randint(step, (nodes, 32), generator=random) + step * torch.arange(32)
    return senders.flatten().to(device), torch.arange(nodes).repeat_interleave(32).to(device)


def diamond_graph(nodes: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A cube of cells of eight atoms, periodic, with all neighbours within 1.69 lattice constants: 158 of each atom."""
    side = round((nodes / 8) ** (1 / 3))
    face = torch.tensor([[0, 0, 0], [0, 2, 2], [2, 0, 2], [2, 2, 0]])
    basis = torch.cat((face, face + 1))  # in quarters of the lattice constant
    shifts = torch.tensor(list(itertools.product(range(-2, 3), repeat=3)))
    places = (basis[None] + 4 * shifts[:, None]).reshape(-1, 3)
    cells = torch.tensor(list(itertools.product(range(side), repeat=3)))
    senders, receivers = [], []
    for atom in range(8):
        square = (places - basis[atom]).square().sum(1)
        near = torch.nonzero((square > 0) & (square <= 16 * 1.69**2)).flatten()
        cell = (cells[:, None] + shifts[near // 8][None]) % side
        senders.append(((cell[..., 0] * side + cell[..., 1]) * side + cell[..., 2]) * 8 + near % 8)
        receivers.append((torch.arange(side**3) * 8 + atom)[:, None].expand(-1, near.shape[0]))
    senders, receivers = (torch.cat([x.flatten() for x in part]) for part in (senders, receivers))
    order = torch.argsort(receivers * nodes + senders)
    return senders[order].to(device), receivers[order].to(device)


def exact(q, k, v, senders, receivers):
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for run in torch.arange(senders.shape[0], device=q.device).split(1 << 18):
        s, r = senders[run], receivers[run]
        scores = (q[r].double() * k[s].double()).sum(1, keepdim=True)
        out.index_add_(0, r, scores * v[s].double())
    return out


def calls_on_the_cpu(work: Callable, repeats: int) -> list[float]:
    """Microseconds of each of `repeats` calls."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        work()
        times.append(1e6 * (time.perf_counter() - begin))
    return times[1:]


def times_of(call: Callable, tensors: list[torch.Tensor], repeats: int, ours: bool) -> dict:
    """Forward, how it was timed, and forward with backward. On a GPU torch's sparse operations are neither captured nor
    differentiated: their backward took longer than the benchmark may."""
    fewer = repeats // 2 + 2
    if tensors[0].is_cuda and not ours:
        with torch.no_grad():
            return {"forward": event_times(lambda: call(*tensors), repeats, 3), "way": "calls", "both": None}
    if tensors[0].is_cuda:
        forward, way = forward_times(call, tensors, repeats)
        return {"forward": forward, "way": way, "both": both_times(call, tensors, fewer)}
    x = [t.detach().clone().requires_grad_() for t in tensors]
    weight = torch.randn_like(x[0])
    with torch.no_grad():
        forward = calls_on_the_cpu(lambda: call(*tensors), repeats)
    both = calls_on_the_cpu(lambda: torch.autograd.grad(call(*x), x, weight), fewer)
    return {"forward": forward, "way": "calls", "both": both}


def contenders(graph: tuple[torch.Tensor, torch.Tensor], nodes: int, shared: bool) -> dict[str, Callable]:
    senders, receivers = graph
    rows = EdgeRows(senders, receivers, nodes, nodes)
    ones = torch.ones(senders.shape[0], device=senders.device)
    pattern = torch.sparse_csr_tensor(rows.row_ptr, rows.senders, ones, (nodes, nodes))

    def ours(q, k, *v):
        return graph_attention(q, k, *(v or (None,)), normalise="none", rows=rows)

    def sparse(q, k, *v):
        values = v[0] if v else k
        like = pattern if pattern.dtype == q.dtype else pattern.to(q.dtype)
        return torch.sparse.mm(torch.sparse.sampled_addmm(like, q, k.T, beta=0.0), values)

    return {"clebsch": ours, "cuSPARSE" if senders.is_cuda else "MKL": sparse}


def record(name: str, times: list[float], error: float, dtype: torch.dtype, peer, device: str) -> dict:
    median, spread = common.quartiles(times)
    other = None if peer is None else {"name": peer[0], "version": torch.__version__, "value": peer[1]}
    return {
        "name": name, "value": median, "unit": "us", "spread": spread, "dtype": str(dtype).removeprefix("torch."),
        "deterministic": True, "error": error, "peer": other, **common.about(device),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="graph_attention.json")
    parser.add_argument("--records", default="graph_attention_records.json")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="the cases whose names begin so")
    options = parser.parse_args()
    device, rows, records = options.device, [], []
    graphs: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for label, name, kind, nodes, columns, dtype, shared in CASES:
        if not label.startswith(options.only) or (device == "cpu" and dtype != torch.float32):
            continue
        if kind not in graphs:
            graphs[kind] = (random_graph if kind == "random" else diamond_graph)(nodes, device)
        senders, receivers = graphs[kind]
        random = torch.Generator(device=device).manual_seed(2)
        q, k, v = (torch.randn(nodes, columns, generator=random, device=device).to(dtype) for _ in range(3))
        tensors = [q, k] if shared else [q, k, v]
        expected = exact(q, k, k if shared else v, senders, receivers)
        print(f"{label}: {nodes} nodes, {senders.shape[0] / nodes:.1f} edges each, {columns} columns", flush=True)
        found = {}
        for contender, call in contenders((senders, receivers), nodes, shared).items():
            try:
                with torch.no_grad():
                    error = error_of(call(*tensors), expected)
                if contender == "clebsch" and not error <= BOUND[dtype]:
                    raise SystemExit(f"clebsch: expected an error of at most {BOUND[dtype]}, got {error}")
                found[contender] = {"error": error, **times_of(call, tensors, options.repeats, contender == "clebsch")}
            except RuntimeError as problem:  # cuSPARSE has no kernels for some types
                print(f"  {contender}: {str(problem).splitlines()[0]}", flush=True)
                continue
            row = found[contender]
            both = f", with backward {statistics.median(row['both']):.1f} us" if row["both"] else ""
            forward = statistics.median(row["forward"])
            print(f"  {contender:10s} forward {forward:9.1f} us ({row['way']}){both}, error {error:.1e}", flush=True)
        if "clebsch" not in found:
            raise SystemExit("clebsch did not run")
        rows.append({"case": label, "nodes": nodes, "edges": senders.shape[0], "columns": columns, "found": found})
        peer = next((c for c in found if c != "clebsch"), None)
        for part, end in (("forward", ""), ("both", "_backward")):
            known = peer is not None and found[peer][part] is not None
            value = (peer, statistics.median(found[peer][part])) if known else None
            named = name.replace("_us", f"{'_cpu' if device == 'cpu' else ''}{end}_us")
            records.append(record(named, found["clebsch"][part], found["clebsch"]["error"], dtype, value, device))
        common.save(options.json, rows)
        common.save(options.records, records)


if __name__ == "__main__":
    main()
