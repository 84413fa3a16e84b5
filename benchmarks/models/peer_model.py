"""Whole NequIP and Allegro models beside upstream's, eager and with the kernels it can use, in one run on one GPU.

    python3 benchmarks/models/peer_model.py OUT.json [--models S M L allegro-l2] [--cells 2 5 10] [--seconds 200]

Ours are the files that make_models.py exports; upstream's models are made again from the same seed, so the weights are
the same, which energies and forces show: a peer is compared with ours in float64 first and not timed beyond 1e-3. All
have the graph on the GPU already, as upstream is timed elsewhere; ours also with edges found on the GPU from positions
("points"). Ours are replays that follow each other; of a peer the fastest of single calls, calls that follow each other
and replays of a CUDA graph counts. "compiled" is what nequip-compile makes (AOTInductor, any number of atoms and edges,
energy and forces alone), which takes one to three minutes a model. Medians of repeats, spread is the middle half.
Writes after every line. Needs
CLEBSCH_LIBRARY, CLEBSCH_GPU_MODELS and the packages of pack_nequip.sh and pack_peers.sh. `--device cpu` rehearses with
small structures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
from common import quartiles  # noqa: E402
from compiled import compiled  # noqa: E402
from model_cases import Structure, diamond, evaluate, load, model_path, water  # noqa: E402
from peer_times import peer_times  # noqa: E402

os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
R_MAX = 5.0
#: Package whose version is a code's.
PACKAGES = {
    "nequip": "nequip", "allegro": "nequip-allegro", "e3nn": "e3nn", "OpenEquivariance": "openequivariance",
    "cuEquivariance": "cuequivariance-torch", "Triton": "triton",
}  # fmt: skip
MODIFIERS = {
    "nequip": {"eager": None, "OpenEquivariance": "enable_OpenEquivariance"},
    "allegro": {
        "eager": None,
        "Triton": "enable_TritonContracter",
        "cuEquivariance": "enable_CuEquivarianceContracter",
    },
}
#: Of a code: what nequip-compile makes of it.
COMPILED = "compiled"


def file_of(name: str) -> str:
    """Our model file of a model of make_models.py."""
    return name if name.startswith("allegro") else f"nequip-{name}"


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else 0


def reset(device: str) -> int:
    if device != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def upstream(preset: str, modifier: str | None, device: str):
    """The model with random weights, as make_models.py makes it."""
    import make_models
    from nequip.model.modify_utils import modify

    model = make_models.upstream(preset)
    if modifier:
        model = modify(model, [{"modifier": modifier}])
    return model.to(device).eval()


def compiled_upstream(preset: str, modifier: str | None, structure: Structure, device: str, folder: Path):
    """The same as nequip-compile makes it."""
    path = folder / f"{file_of(preset)}-{modifier or 'plain'}.nequip.pt2"
    return compiled(upstream(preset, modifier, device), inputs(structure, device), ["total_energy", "forces"], path)


def inputs(structure: Structure, device: str) -> dict[str, torch.Tensor]:
    receivers, senders, shifts = structure.pairs(R_MAX)
    points, cell = structure.points()
    data = {
        "pos": points, "cell": cell[None], "edge_index": torch.stack([receivers, senders]),
        "edge_cell_shift": shifts.double(), "atom_types": structure.types,
    }  # fmt: skip
    return {key: value.to(device) for key, value in data.items()}


def relative(got: torch.Tensor, exact: torch.Tensor) -> float:
    difference = got.detach().cpu().double() - exact
    return float(difference.square().mean().sqrt() / exact.square().mean().sqrt())


def ours(preset: str, structure: Structure, exact: dict, args: argparse.Namespace) -> dict[str, object]:
    before = reset(args.device)
    on_cpu = args.device != "cuda"
    model = load(file_of(preset), "cpu:padded" if on_cpu else "cuda", "float32", deterministic=False)
    found = evaluate(model, structure)
    record = {"error": relative(found["forces"], exact["forces"])}
    for _ in range(3):
        evaluate(model, structure)
    repeats = 2 if on_cpu else 20
    times = [model.time_device(repeats) for _ in range(args.repeats)]
    model.set_neighbours(structure.types, *structure.pairs(model.r_max + 1.0))
    for _ in range(4):
        model.compute_positions(*structure.points())
    points = [model.time_device(repeats) for _ in range(args.repeats)]
    record["ms"], record["spread_ms"] = quartiles(times)
    record["points_ms"], record["points_spread_ms"] = quartiles(points)
    record["bytes"] = peak(args.device) - before
    return record


def peer(model, structure: Structure, exact: dict, args: argparse.Namespace) -> dict[str, object]:
    before = reset(args.device)
    data = inputs(structure, args.device)

    def step() -> dict[str, torch.Tensor]:
        return model(data | {"pos": data["pos"].clone()})  # of which gradients are taken

    out = step()
    energy = float(out["total_energy"].detach().cpu().sum())
    record = {
        "error": relative(out["forces"], exact["forces"]),
        "energy_error": abs(energy - float(exact["energy"])) / max(abs(float(exact["energy"])), len(structure)),
    }
    if not (record["error"] < 1e-3 and record["energy_error"] < 1e-3):
        raise RuntimeError(f"it computes something else: forces {record['error']:.1e}, {record['energy_error']:.1e}")
    del out
    record |= peer_times(step, args.repeats, args.device)
    record["bytes"] = peak(args.device) - before
    return record


def head(args: argparse.Namespace) -> dict[str, object]:
    """What every line says: machine, and the versions of all peers."""
    return common.about(args.device) | {"versions": {p: common.version_of(p) for p in PACKAGES.values()}}


def named_records(records: list[dict[str, object]]) -> list[dict[str, object]]:
    """For benchmarks/record.py: ours with the fastest peer of the same run; names as bench_model.py has them."""
    from bench_model import NAMES

    named = []
    for name, (model, structure, unit) in NAMES.items():
        rows = {r["code"]: r for r in records if (r["model"], r["structure"]) == (model, structure)}
        peers = sorted((r for code, r in rows.items() if code != "clebsch"), key=lambda r: r["ms"])
        if "clebsch" not in rows or not peers or unit == "MB/atom":
            continue
        mine, best = rows["clebsch"], peers[0]
        scale = 1e3 / mine["atoms"] if unit == "us/atom" else 1.0
        family = model.partition("-")[0]
        version = mine["versions"][PACKAGES.get(best["code"].split()[-1], PACKAGES[family])]
        peer = {"name": f"{family} {best['code']}", "version": version, "value": scale * best["ms"]}
        named.append(
            {
                "name": name, "value": scale * mine["ms"], "unit": unit, "spread": scale * mine["spread_ms"],
                "dtype": "float32", "deterministic": False, "error": mine["error"], "peer": peer,
                "peers": {f"{r['code']}, {r['way']}": scale * r["ms"] for r in peers},
                "points": scale * mine["points_ms"], "kb_atom": mine["kb_atom"], "peer_kb_atom": best["kb_atom"],
                "atoms": mine["atoms"], "machine": mine["machine"], "torch": mine["torch"],
                "driver": mine["driver"], "commit": mine["commit"], "date": mine["date"], "command": mine["command"],
            }
        )  # fmt: skip
    return named


def main() -> int:
    """Status 1 when nothing could be compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", nargs="*", default=["M", "S", "L"])
    parser.add_argument("--cells", nargs="*", type=int, default=[2, 10])
    parser.add_argument("--water", type=int, default=14, help="molecules an edge of the water box; 0: none")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=200.0, help="nothing new is begun after this time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--codes", nargs="*", metavar="CODE", help="eager, OpenEquivariance, ...; all of a family")
    parser.add_argument("--compile", nargs="*", default=[], metavar="CODE", help="codes to compile as well, as eager")
    parser.add_argument("--packages", type=Path, help="a folder where what is compiled is, or else is left; OUT's")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    from nequip.utils.global_state import set_global_state

    set_global_state(allow_tf32=False)
    about, records, exact = head(args), [], {}
    print("#", json.dumps(about), flush=True)
    structures = [(str(8 * cells**3), diamond(cells)) for cells in args.cells]
    if args.water:
        structures.append(("water", water(args.water)))

    def note(preset: str, label: str, name: str, structure: Structure, work, *operands) -> None:
        if time.monotonic() > end:
            print(f"{file_of(preset)} {label} {name}: no time left", flush=True)
            return
        try:
            record = work(*operands, structure, exact[label], args)
        except Exception as error:  # a peer that runs out of memory must not end the rest
            print(f"{file_of(preset)} {label} {name}: {type(error).__name__} {str(error)[:300]}", flush=True)
            if not isinstance(error, (RuntimeError, ImportError)):
                traceback.print_exc(limit=3)
            reset(args.device)
            return
        atoms = len(structure)
        record |= {"model": file_of(preset), "structure": label, "code": name, "atoms": atoms}
        record |= {"us_atom": 1e3 * record["ms"] / atoms, "kb_atom": record["bytes"] / atoms / 1e3}
        mine = [r for r in records if (r["model"], r["structure"], r["code"]) == (record["model"], label, "clebsch")]
        ratio = f"{record['ms'] / mine[0]['ms']:7.2f}x ours" if mine else f"points {record.get('points_ms', 0):.3f} ms"
        records.append(record | about)
        print(
            f"{record['model']:10s} {label:>6s} {name:17s} {record['ms']:9.3f} +- {record['spread_ms']:.3f} ms "
            f"{record['us_atom']:8.3f} us/atom {record['kb_atom']:9.1f} kB/atom  error {record['error']:.1e}  {ratio}"
            + "".join(f", {way} {ms:.3f}" for way, ms in record.get("ways", {}).items()),
            flush=True,
        )
        args.out.write_text(json.dumps(records, indent=1) + "\n")
        lines = json.dumps(named_records(records), indent=1) + "\n"
        args.out.with_suffix(".records.json").write_text(lines)

    for preset in args.models:
        if not model_path(file_of(preset)).exists():
            print(f"no file {model_path(file_of(preset))}", flush=True)
            continue
        exact.clear()
        for label, structure in structures:
            reference = load(file_of(preset), args.device, "float64", cuda_graph=False)
            exact[label] = evaluate(reference, structure)
            del reference
            note(preset, label, "clebsch", structure, ours, preset)
        modifiers = MODIFIERS[file_of(preset).partition("-")[0]]
        forms = [
            (name, upstream, (preset, modifier, args.device))
            for name, modifier in modifiers.items()
            if args.codes is None or name in args.codes
        ]
        forms += [
            (
                f"{COMPILED} {name}",
                compiled_upstream,
                (preset, modifiers[name], structures[0][1], args.device, args.packages or args.out.parent),
            )
            for name in args.compile
            if name in modifiers
        ]
        for name, make, given in forms:
            if time.monotonic() > end:
                break
            try:
                start = time.monotonic()
                model = make(*given)
                print(f"{file_of(preset)} {name}: made in {time.monotonic() - start:.0f} s", flush=True)
            except Exception as error:
                print(f"{file_of(preset)} {name}: {type(error).__name__} {str(error)[:300]}", flush=True)
                continue
            for label, structure in structures:
                note(preset, label, name, structure, peer, model)
            model = None
            reset(args.device)
    return 0 if len(records) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
