"""Energy and forces on the CPU: Clebsch against mace-torch eager on a rattled diamond lattice, in one run.

usage: PYTHONPATH=<folder of mace-torch> cpu_mace.py [--only mace-s|mace-m] [--side 3] [--repeats 5] [--threads 1,2]
                                                     [--json OUT]

Random weights, carbon, cutoff 6 Angstrom, float32: the models and the lattice of the GPU comparison. Same atoms, same
graph, every contestant at its best thread count; an answer is compared with upstream in float64 before it is timed.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import mace  # noqa: F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
import numpy as np
import torch
from cpu_nequip import best, common
from e3nn import o3
from mace import modules

from clebsch import export
from clebsch.compare import errors, evaluate, upstream_mace
from clebsch.probe import Probe, all_pairs
from clebsch.runtime import Model

#: Relative error beyond which nothing is timed.
LIMIT = 1e-4
HIDDEN = {"mace-s": "128x0e", "mace-m": "128x0e+128x1o"}


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        return modules.ScaleShiftMACE(
            r_max=6.0,
            num_bessel=8,
            num_polynomial_cutoff=5,
            max_ell=3,
            interaction_cls=block,
            interaction_cls_first=block,
            num_interactions=2,
            num_elements=1,
            hidden_irreps=o3.Irreps(HIDDEN[name]),
            MLP_irreps=o3.Irreps("16x0e"),
            atomic_energies=np.array([-3.0]),
            avg_num_neighbors=100.0,
            atomic_numbers=[6],
            correlation=3,
            gate=torch.nn.functional.silu,
            radial_MLP=[64, 64, 64],
            atomic_inter_scale=40.0,
            atomic_inter_shift=0.0,
        ).eval()
    finally:
        torch.set_default_dtype(before)


def diamond(side: int, cutoff: float) -> Probe:
    """side^3 cubic cells of 8 atoms, displaced by 0.05 Angstrom."""
    length = 3.567
    generator = torch.Generator().manual_seed(0)
    face = torch.tensor([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]], dtype=torch.float64)
    basis = torch.cat([face, face + 0.25])
    steps = torch.arange(side, dtype=torch.float64)
    corners = torch.cartesian_prod(steps, steps, steps).reshape(-1, 1, 3)
    positions = ((corners + basis) * length).reshape(-1, 3)
    positions = positions + 0.05 * torch.randn(positions.shape, generator=generator, dtype=torch.float64)
    cell = torch.eye(3, dtype=torch.float64) * (side * length)
    types = torch.zeros(len(positions), dtype=torch.int64)
    return Probe(positions, cell, types, *all_pairs(positions, cell, cutoff))


def upstream_step(model: torch.nn.Module, probe: Probe) -> Callable[[], object]:
    atoms = len(probe.types)
    shifts = (probe.shifts @ probe.cell).float()
    data = {
        "edge_index": torch.stack([probe.senders, probe.receivers]),
        "shifts": -shifts,
        "unit_shifts": -probe.shifts.float(),
        "positions": probe.positions.float(),
        "cell": probe.cell.float(),
        "node_attrs": torch.ones(atoms, 1),
        "batch": torch.zeros(atoms, dtype=torch.int64),
        "ptr": torch.tensor([0, atoms]),
        "head": torch.tensor([0]),
    }

    def step() -> object:
        fresh = {k: v.clone() if k == "positions" else v for k, v in data.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model(fresh, training=False, compute_force=True)

    return step


def compare(name: str, side: int, threads: list[int], repeats: int) -> dict:
    upstream = model_of(name)
    probe = diamond(side, 6.0)
    reference = upstream_mace(copy.deepcopy(upstream).double(), probe, [6])
    with tempfile.TemporaryDirectory() as folder:
        export.mace(upstream, Path(folder) / "model.pt", verify=False)
        model = Model(Path(folder) / "model.pt")
    found = errors(evaluate(model, probe), reference)
    if not max(found["forces"], found["energy"]) <= LIMIT:
        raise SystemExit(f"{name}: differs from upstream, not timed: {found}")
    vectors = probe.vectors
    print(f"\n{name}: {len(probe.types)} atoms, {len(vectors)} edges, float32, force error {found['forces']:.1e}")
    rows = {}
    for contestant, step, count in (
        (
            "clebsch",
            lambda: model.compute(vectors, probe.types, probe.receivers, probe.senders, virial=False),
            repeats,
        ),
        ("mace-torch eager", upstream_step(upstream, probe), max(repeats // 2, 1)),
    ):
        rows[contestant] = best(step, threads, count)
        seconds = rows[contestant]["seconds"]
        print(
            f"  {contestant:18} {1e3 * seconds:9.1f} ms  {1e6 * seconds / len(probe.types):8.1f} us/atom  "
            f"{rows[contestant]['threads']} threads  {seconds / rows['clebsch']['seconds']:6.2f} x clebsch",
            flush=True,
        )
    return {"name": name, "atoms": len(probe.types), "edges": len(vectors), "rows": rows, "error": found["forces"]}


def record(result: dict) -> dict:
    """In the form of benchmarks/results/summary.json."""
    from importlib.metadata import version

    ours, peer = result["rows"]["clebsch"], result["rows"]["mace-torch eager"]
    ratio = peer["seconds"] / ours["seconds"]
    return {
        "name": f"cpu_{result['name'].replace('-', '_')}_ratio",
        "value": ratio,
        "unit": "x upstream",
        "spread": ratio * (peer["spread"] / peer["seconds"] + ours["spread"] / ours["seconds"]),
        "dtype": "float32",
        "deterministic": True,
        "error": result["error"],
        "peer": {"name": "mace-torch eager", "version": version("mace-torch"), "value": peer["seconds"]},
        "seconds": ours["seconds"],
        "atoms": result["atoms"],
        "edges": result["edges"],
        "threads": {"clebsch": ours["threads"], "peer": peer["threads"]},
        **common.about("cpu"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=3, help="8 side^3 atoms")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", default="1,2", help="thread counts to try, for every contestant")
    parser.add_argument("--json", metavar="OUT")
    parser.add_argument("--only", choices=sorted(HIDDEN))
    options = parser.parse_args()
    threads = [int(t) for t in options.threads.split(",")]
    names = [options.only] if options.only else sorted(HIDDEN)
    results = [compare(name, options.side, threads, options.repeats) for name in names]
    if options.json:
        Path(options.json).write_text(json.dumps([record(r) for r in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
