"""Energy, forces and virial on the CPU: Clebsch beside nequip and nequip-allegro, as nequip-compile makes them, eager
and as TorchScript, in one run.

usage: cpu_nequip.py [--only NAME] [--side N] [--repeats 7] [--threads 1,2] [--json OUT]

Same atoms, same graph, same dtype (the model's), every contestant at its best thread count of those given. An answer
is compared with upstream before it is timed; one that differs is not timed. Neighbour lists are not part of any time
but are shown, with the model's forward and backward, as the parts of a step. Prints a table; --json writes records.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
import torch  # noqa: E402
from common import ROOT, quartiles  # noqa: E402
from compiled import compiled  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.compare import Values, errors, upstream_nequip  # noqa: E402
from clebsch.neighbours import NeighbourFinder  # noqa: E402
from clebsch.probe import Probe, random_structure  # noqa: E402
from clebsch.runtime import Model  # noqa: E402

#: Relative errors beyond which a contestant is not timed.
LIMITS = {"float32": 1e-4, "float64": 1e-5}
#: Ends of records' names.
SUFFIXES = {"nequip eager": "", "nequip TorchScript": "_torchscript", "nequip-compile": "_compiled"}


def preset_m(types: list[str], dtype: str) -> torch.nn.Module:
    from nequip.model import PresetNequIPGNNModel

    shared = dict(seed=1, model_dtype=dtype, type_names=types, r_max=5.0, avg_num_neighbors=50.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PresetNequIPGNNModel(preset="M", per_type_energy_scales=5.0, **shared).eval()


def allegro(types: list[str]) -> torch.nn.Module:
    """The l_max 2 model of upstream's tutorial: 2 layers, 64 scalars, 32 tensor channels."""
    from allegro.model import AllegroModel

    embed = {"_target_": "allegro.nn.TwoBodyBesselScalarEmbed", "num_bessels": 8}
    shared = dict(seed=1, model_dtype="float32", type_names=types, r_max=5.0, avg_num_neighbors=50.0)
    sizes = dict(l_max=2, num_layers=2, num_scalar_features=64, num_tensor_features=32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AllegroModel(radial_chemical_embed=embed, per_type_energy_scales=5.0, **shared, **sizes).eval()


def water_model() -> torch.nn.Module:
    """Upstream's model with the shipped weights of models/water-nequip."""
    spec = importlib.util.spec_from_file_location("water_nequip", ROOT / "models/recipes/water-nequip/export_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.model()


def water_box(cutoff: float) -> Probe:
    """The committed box of the water example, or its first molecules' likeness at the same density without it."""
    from ase.io import read

    path = ROOT / "examples/water_box/water.data"
    atoms = read(path, format="lammps-data", atom_style="atomic", Z_of_type={1: 8, 2: 1})
    edges = NeighbourFinder(cutoff).find(atoms.positions, atoms.cell, atoms.pbc)
    positions = torch.tensor(atoms.positions)
    cell = torch.tensor(atoms.cell.array)
    types = torch.tensor([0 if s == "O" else 1 for s in atoms.get_chemical_symbols()])
    shifts = (edges.vectors - positions[edges.senders] + positions[edges.receivers]) @ torch.linalg.inv(cell)
    return Probe(positions, cell, types, edges.receivers, edges.senders, shifts.round())


def timed(step: Callable[[], object], repeats: int) -> list[float]:
    """Sorted seconds of `repeats` calls after two to warm up."""
    times = []
    for k in range(repeats + 2):
        start = time.perf_counter()
        step()
        if k >= 2:
            times.append(time.perf_counter() - start)
    return sorted(times)


def inputs(probe: Probe) -> dict[str, torch.Tensor]:
    return {
        "pos": probe.positions,
        "cell": probe.cell.reshape(1, 3, 3),
        "edge_index": torch.stack([probe.receivers, probe.senders]),
        "edge_cell_shift": probe.shifts,
        "atom_types": probe.types,
    }


def upstream_step(model: torch.nn.Module, probe: Probe) -> Callable[[], dict]:
    data = inputs(probe)
    return lambda: model({k: v.clone() if k in ("pos", "cell") else v for k, v in data.items()})


def values_of(out: dict[str, torch.Tensor]) -> Values:
    return Values(
        out["atomic_energy"].detach().double().reshape(-1),
        out["forces"].detach().double(),
        out["virial"].detach().double().reshape(3, 3),
    )


def best(step: Callable[[], object], threads: list[int], repeats: int) -> dict:
    """The fastest thread count of a contestant: its median, and the middle half as spread."""
    results = []
    for count in threads:
        torch.set_num_threads(count)
        median, spread = quartiles(timed(step, repeats))
        results.append({"threads": count, "seconds": median, "spread": spread})
    return min(results, key=lambda r: r["seconds"])


def scripted(model: torch.nn.Module) -> torch.nn.Module:
    from e3nn.util.jit import script

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return script(model)


def compare(name: str, upstream: torch.nn.Module, probe: Probe, threads: list[int], repeats: int) -> dict:
    dtype = str(upstream.model_dtype).removeprefix("torch.")
    reference = upstream_nequip(upstream, probe)
    print(f"\n{name}: {len(probe.types)} atoms, {len(probe.receivers)} edges, {dtype}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        write = export.allegro if name == "allegro" else export.nequip
        write(upstream, path, verify=False)
        model = Model(path)
    vectors = probe.vectors
    contestants: dict[str, Callable[[], dict]] = {
        "clebsch": lambda: model.compute(vectors, probe.types, probe.receivers, probe.senders),
        "nequip eager": upstream_step(upstream, probe),
    }
    # Generated code keeps the number of threads it was compiled with.
    torch.set_num_threads(max(threads))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outputs = ["atomic_energy", "forces", "virial"]  # its target pair_nequip
        call = compiled(upstream, inputs(probe), outputs, Path(folder) / "model.nequip.pt2")
    print(f"  nequip-compile: {time.perf_counter() - start:.0f} s", flush=True)
    contestants["nequip-compile"] = upstream_step(call, probe)
    try:
        contestants["nequip TorchScript"] = upstream_step(scripted(upstream), probe)
    except Exception as error:  # upstream supports it no longer on new torch; say so instead of failing
        print(f"  nequip TorchScript: not available ({type(error).__name__})")
    rows = {}
    for contestant, step in contestants.items():
        found = errors(values_of(step()), reference)
        if not found["forces"] <= LIMITS[dtype] or not found["energy"] <= LIMITS[dtype]:
            raise SystemExit(f"{name}, {contestant}: differs from upstream, not timed: {found}")
        rows[contestant] = {**best(step, threads, repeats), "error": found["forces"]}
    for contestant, row in rows.items():
        ratio = row["seconds"] / rows["clebsch"]["seconds"]
        per_atom = 1e6 * row["seconds"] / len(probe.types)
        print(
            f"  {contestant:20} {1e3 * row['seconds']:9.2f} ms  {per_atom:8.2f} us/atom  {row['threads']} threads  "
            f"force error {row['error']:.1e}  {ratio:6.2f} x clebsch",
            flush=True,
        )
    parts = split(model, probe, rows["clebsch"]["threads"], repeats)
    print("  parts of a Clebsch step: " + ", ".join(f"{k} {1e3 * v:.2f} ms" for k, v in parts.items()))
    return {
        "name": name,
        "atoms": len(probe.types),
        "edges": len(vectors),
        "dtype": dtype,
        "rows": rows,
        "parts": parts,
    }


def split(model: Model, probe: Probe, threads: int, repeats: int) -> dict[str, float]:
    """Median seconds of neighbour search, energy alone, and what forces and virial add."""
    torch.set_num_threads(threads)
    finder = NeighbourFinder(model.r_max)
    vectors = probe.vectors
    positions, cell = probe.positions.numpy(), probe.cell.numpy()
    middle = repeats // 2
    graph = timed(lambda: finder.find(positions, cell, True), repeats)[middle]
    energy = timed(
        lambda: model.compute(vectors, probe.types, probe.receivers, probe.senders, forces=False, virial=False), repeats
    )[middle]
    both = timed(lambda: model.compute(vectors, probe.types, probe.receivers, probe.senders), repeats)[middle]
    return {"neighbour list": graph, "energy": energy, "forces and virial": both - energy}


def records(results: list[dict]) -> list[dict]:
    """In the form of benchmarks/results/summary.json."""
    from importlib.metadata import version

    out = []
    for result in results:
        ours = result["rows"]["clebsch"]
        package = "nequip-allegro" if result["name"] == "allegro" else "nequip"
        for contestant, row in result["rows"].items():
            if contestant == "clebsch":
                continue
            ratio = row["seconds"] / ours["seconds"]
            out.append(
                {
                    "name": f"cpu_{result['name'].replace('-', '_')}_ratio" + SUFFIXES[contestant],
                    "value": ratio,
                    "unit": "x upstream",
                    "spread": ratio * (row["spread"] / row["seconds"] + ours["spread"] / ours["seconds"]),
                    "dtype": result["dtype"],
                    "deterministic": True,
                    "error": ours["error"],
                    "peer": {"name": contestant, "version": version(package), "value": row["seconds"]},
                    "seconds": ours["seconds"],
                    "atoms": result["atoms"],
                    "edges": result["edges"],
                    "threads": {"clebsch": ours["threads"], "peer": row["threads"]},
                    "parts": result["parts"],
                    **common.about("cpu"),
                }
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=6, help="preset M on side^3 random atoms besides the water box")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", default="1,2", help="thread counts to try, for every contestant")
    parser.add_argument("--json", metavar="OUT")
    parser.add_argument("--only", metavar="NAME", help="nequip-water, nequip-m, nequip-m-one-type or allegro")
    options = parser.parse_args()
    threads = [int(t) for t in options.threads.split(",")]

    from nequip.utils.global_state import global_state_initialized, set_global_state

    if not global_state_initialized():
        set_global_state(allow_tf32=False)
    cases: dict[str, Callable[[], tuple[torch.nn.Module, Probe]]] = {
        "nequip-water": lambda: (water_model(), water_box(5.0)),
        "nequip-m": lambda: (preset_m(["O", "H"], "float32"), water_box(5.0)),
        "nequip-m-one-type": lambda: (preset_m(["C"], "float32"), random_structure(1, 5.0, 0, options.side, 0.1)),
        "allegro": lambda: (allegro(["O", "H"]), water_box(5.0)),
    }
    chosen = [name for name in cases if options.only in (None, name)]
    if not chosen:
        parser.error(f"--only: expected one of {', '.join(cases)}, got {options.only!r}")
    results = [compare(name, *cases[name](), threads, options.repeats) for name in chosen]
    if options.json:
        Path(options.json).write_text(json.dumps(records(results), indent=1) + "\n")


if __name__ == "__main__":
    main()
