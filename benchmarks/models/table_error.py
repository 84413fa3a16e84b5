"""Force error of radial tables against the number of pieces, for whole models: `radial table` against `radial exact`.

usage: table_error.py [--pieces 24,32,48,64,96] [--json OUT] [MODEL.pt ...]

fp64 on the CPU. Models: NequIP's presets S, M, L with random weights on rattled diamond (64 atoms), the shipped water
model on the example's water (648 atoms), and the files named (on diamond). Each as it is and with all distances scaled
by 0.8. Prints RMS(dF) / RMS(F) and max |dF| / RMS(F).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from ase import Atoms  # noqa: E402
from ase.build import bulk  # noqa: E402
from ase.io import read  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.neighbours import NeighbourFinder  # noqa: E402
from clebsch.runtime import Model  # noqa: E402


def preset(name: str, folder: str) -> str:
    """An exported preset with random weights for carbon, cutoff 5 A."""
    from nequip.model import PresetNequIPGNNModel
    from nequip.utils.global_state import global_state_initialized, set_global_state

    if not global_state_initialized():
        set_global_state(allow_tf32=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PresetNequIPGNNModel(
            preset=name,
            seed=1,
            model_dtype="float64",
            type_names=["C"],
            r_max=5.0,
            avg_num_neighbors=90.0,
            per_type_energy_scales=5.0,
        )
        path = f"{folder}/nequip-{name}.pt"
        export.nequip(model.eval(), path)
    return path


def diamond() -> Atoms:
    atoms = bulk("C", "diamond", a=3.567, cubic=True).repeat(2)
    atoms.positions += np.random.default_rng(3).normal(scale=0.08, size=atoms.positions.shape)
    return atoms


def forces(model: Model, atoms: Atoms, cutoff: float, names: list[str]) -> torch.Tensor:
    edges = NeighbourFinder(cutoff).find(atoms.positions, atoms.cell, atoms.pbc)
    types = torch.tensor([names.index(s) for s in atoms.get_chemical_symbols()])
    return model.compute(edges.vectors, types, edges.receivers, edges.senders, forces=True)["forces"]


def study(label: str, path: str, atoms: Atoms, pieces: list[int]) -> list[dict]:
    """Records of one model, the structure as it is and compressed."""
    exact = Model(path, dtype="float64", radial="exact")
    names, cutoff = list(exact.metadata["type_names"]), float(exact.metadata["r_max"])
    records = []
    for scale in (1.0, 0.8):
        structure = atoms.copy()
        structure.set_cell(atoms.cell * scale, scale_atoms=True)
        reference = forces(exact, structure, cutoff, names)
        rms = float(reference.square().mean().sqrt())
        for count in pieces:
            table = Model(path, dtype="float64", table_pieces=count)
            difference = forces(table, structure, cutoff, names) - reference
            record = {
                "model": label,
                "scale": scale,
                "pieces": count,
                "rms_force": rms,
                "rmse_relative": float(difference.square().mean().sqrt()) / rms,
                "largest_relative": float(difference.abs().max()) / rms,
            }
            records.append(record)
            print(
                f"{label:14s} distances x {scale:3.1f}  {count:4d} pieces  RMS {record['rmse_relative']:.1e}"
                f"  largest {record['largest_relative']:.1e}  (RMS force {rms:.3g} eV/A)",
                flush=True,
            )
    return records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="model files that know carbon")
    parser.add_argument("--pieces", default="24,32,48,64,96")
    parser.add_argument("--json", help="write the records here")
    arguments = parser.parse_args()
    pieces = [int(p) for p in arguments.pieces.split(",")]
    water = read(
        common.ROOT / "examples/water_box/water.data", format="lammps-data", atom_style="atomic", Z_of_type={1: 8, 2: 1}
    )
    records = study("shipped water", str(common.ROOT / "models/water-nequip.pt"), water, pieces)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("S", "M", "L"):
            records += study(f"preset {name}", preset(name, folder), diamond(), pieces)
    for path in arguments.models:
        records += study(Path(path).stem, path, diamond(), pieces)
    if arguments.json:
        common.save(arguments.json, common.about("cpu") | {"records": records})
    return 0


if __name__ == "__main__":
    sys.exit(main())
