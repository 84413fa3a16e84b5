"""MACE's symmetric contraction: Clebsch beside mace-torch's own (and, from peer_sc.py, others), in one run.

usage: symmetric_contraction.py [--device cpu] [--case mace-M ...] [--dtype float32 ...] [--atoms N ...] [--elements Z]
                                [--threads N] [--repeats N] [--json OUT]

With mace-torch on the path: PYTHONPATH=.deps/mace:src/python. Every contestant takes features in its own layout and has
its weights given; Clebsch's coefficients are made once outside the time, as in molecular dynamics ("drop-in": made in
every call, and mace's layout). An answer is compared with mace-torch in float64 before it is timed; one that differs is
not timed. "forward" is without gradients, "forward + backward" with those of the features alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

warnings.simplefilter("ignore")

import mace  # noqa: E402, F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
import torch  # noqa: E402
from e3nn import o3  # noqa: E402
from mace.modules.symmetric_contraction import SymmetricContraction  # noqa: E402
from torch import Tensor  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

from clebsch import library  # noqa: E402
from clebsch.product_basis import ProductBasis  # noqa: E402
from clebsch.training.mace import ClebschSymmetricContraction  # noqa: E402

#: name: channels, highest degree in, highest degree out, correlation
CASES = {"mace-S": (128, 3, 0, 3), "mace-M": (128, 3, 1, 3), "mace-L": (128, 3, 2, 3)}
#: Largest error, relative to the largest number, with which a contestant is timed.
LIMITS = {"float32": 1e-4, "float64": 1e-11}


@dataclass
class Contestant:
    """``step`` maps features in the contestant's layout to its output; the two others convert from and to mace's."""

    step: Callable[[Tensor], Tensor]
    prepare: Callable[[Tensor], Tensor] = lambda x: x
    restore: Callable[[Tensor], Tensor] = lambda out: out


@dataclass
class Case:
    """One contraction with random weights, and random atoms for it."""

    name: str
    module: torch.nn.Module  # mace-torch's, in the dtype and on the device of the run
    irreps_in: o3.Irreps
    irreps_out: o3.Irreps
    correlation: int
    x: Tensor  # (N, C, D)
    y: Tensor  # (N, Z) one-hot
    expected: list[Tensor]  # output and gradient of the features, float64
    cotangent: Tensor


def irreps(channels: int, lmax: int) -> o3.Irreps:
    return o3.Irreps([(channels, (degree, (-1) ** degree)) for degree in range(lmax + 1)])


def make_case(name: str, dtype: torch.dtype, device: str, atoms: int, elements: int) -> Case:
    channels, l_in, l_out, correlation = CASES[name]
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    irreps_in, irreps_out = irreps(channels, l_in), irreps(channels, l_out)
    module = SymmetricContraction(irreps_in, irreps_out, correlation, num_elements=elements).to(device)
    x = torch.randn(atoms, channels, (l_in + 1) ** 2, device=device)
    y = torch.nn.functional.one_hot(torch.randint(0, elements, (atoms,), device=device), elements).double()
    cotangent = torch.randn(atoms, irreps_out.dim, device=device)
    expected = derivative(Contestant(lambda a: module(a, y)), x, cotangent)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    torch.set_default_dtype(dtype)
    return Case(
        name, module.to(dtype), irreps_in, irreps_out, correlation, x.to(dtype), y.to(dtype), expected, cotangent
    )


def derivative(contestant: Contestant, x: Tensor, cotangent: Tensor) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    out = contestant.restore(contestant.step(contestant.prepare(x)))
    (grad,) = torch.autograd.grad(out, x, cotangent.to(out.dtype))
    return [out.detach(), grad]


def error(case: Case, contestant: Contestant) -> float:
    found = derivative(contestant, case.x, case.cotangent)
    pairs = zip(found, case.expected, strict=True)
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in pairs)


def clebsch_op(case: Case) -> Contestant:
    basis = ProductBasis.from_mace(case.module)
    coefficients = basis.coefficients(ProductBasis.weights(case.module)).contiguous()
    types = case.y.argmax(-1).int()
    graph = [types.new_empty(0)] * 7
    atoms, channels, _ = case.x.shape

    def restore(out: Tensor) -> Tensor:
        parts = out.reshape(atoms, -1, channels).split([2 * ir.l + 1 for _, ir in case.irreps_out], dim=1)
        return torch.cat([part.transpose(1, 2).flatten(1) for part in parts], dim=1)

    return Contestant(
        lambda x: torch.ops.clebsch.symmetric_contraction(x, coefficients, types, graph, -1, basis.problem),
        lambda x: x.transpose(1, 2).reshape(atoms, -1),
        restore,
    )


def own_contestants(case: Case) -> dict[str, Contestant]:
    drop_in = ClebschSymmetricContraction(case.module)
    return {
        "clebsch": clebsch_op(case),
        "clebsch drop-in": Contestant(lambda x: drop_in(x, case.y)),
        "mace-torch": Contestant(lambda x: case.module(x, case.y)),
    }


def seconds(step: Callable[[], object], repeats: int, device: str) -> tuple[float, float]:
    """Median of `repeats` calls after three to warm up, and half their range. On a GPU by its own clock."""
    times = []
    for k in range(repeats + 3):
        if device == "cpu":
            start = time.perf_counter()
            step()
            elapsed = time.perf_counter() - start
        else:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            step()
            end.record()
            torch.cuda.synchronize()
            elapsed = begin.elapsed_time(end) / 1e3
        if k >= 3:
            times.append(elapsed)
    times.sort()
    return times[len(times) // 2], (times[-1] - times[0]) / 2


def measure(case: Case, contestants: dict[str, Contestant], dtype: str, repeats: int, device: str) -> list[dict]:
    atoms, records = len(case.x), []
    for name, contestant in contestants.items():
        found = error(case, contestant)
        record = {"case": case.name, "contestant": name, "dtype": dtype, "atoms": atoms, "error": found}
        if not found < LIMITS[dtype]:
            print(f"  {name:24} differs from mace-torch by {found:.1e}: not timed", flush=True)
            records.append(record)
            continue
        x = contestant.prepare(case.x).detach().contiguous()
        leaf = x.clone().requires_grad_()
        cotangent = torch.randn_like(contestant.step(x))
        with torch.no_grad():
            forward, spread = seconds(lambda c=contestant, x=x: c.step(x), repeats, device)
        both, both_spread = seconds(
            lambda c=contestant, x=leaf, g=cotangent: torch.autograd.grad(c.step(x), x, g), repeats, device
        )
        record |= {
            "forward_ns_atom": 1e9 * forward / atoms,
            "forward_spread": 1e9 * spread / atoms,
            "forward_backward_ns_atom": 1e9 * both / atoms,
            "forward_backward_spread": 1e9 * both_spread / atoms,
        }
        records.append(record)
        print(
            f"  {name:24} forward {record['forward_ns_atom']:10.1f} ns/atom   forward + backward "
            f"{record['forward_backward_ns_atom']:10.1f} ns/atom   error {found:.1e}",
            flush=True,
        )
    return records


def run(contestants_of: Callable[[Case], dict[str, Contestant]], description: str | None) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--case", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=["float32", "float64"])
    parser.add_argument("--atoms", nargs="+", type=int, default=[1000])
    parser.add_argument("--elements", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0, help="0: torch's own number")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json")
    a = parser.parse_args()
    library.require()
    if a.threads:
        torch.set_num_threads(a.threads)
    machine = torch.cuda.get_device_name() if a.device == "cuda" else platform.processor() or platform.machine()
    print(f"{machine}, torch {torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} processors")
    records = []
    for name in a.case:
        for dtype in a.dtype:
            for atoms in a.atoms:
                print(f"{name}, {dtype}, {atoms} atoms, {a.elements} elements", flush=True)
                case = make_case(name, getattr(torch, dtype), a.device, atoms, a.elements)
                records += measure(case, contestants_of(case), dtype, a.repeats, a.device)
    if a.json:
        Path(a.json).write_text(json.dumps({**common.about(a.device), "records": records}, indent=1) + "\n")
    if any("forward_ns_atom" not in record for record in records if record["contestant"].startswith("clebsch")):
        raise SystemExit("Clebsch's answer is wrong")


if __name__ == "__main__":
    run(own_contestants, __doc__)
