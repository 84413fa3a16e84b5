"""Does the grade warn where the model is right? Water of the shipped model at 300 and at 600 K.

    python benchmarks/grade/alarms.py [MODEL.pt] [--also OTHER.pt] --device cuda --ps 50 --replicas 10 --json OUT.json

MODEL.pt: default models/water-nequip.pt. OTHER.pt: a file of the same network with another grade, looked at in the same
run every fifth step. Replicas of 192 atoms from benchmarks/md/water192_settled.data, each with noise of its own, all in
one batch: half of them at either temperature, so that the replicas of a temperature are together `ps` long. Langevin
(BAOAB), 0.5 fs, 1/(100 fs); the first `warm` ps do not count. The largest grade of a replica at every step is looked
at: an alarm is one above the training maximum.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from ase import units
from ase.io import read

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src/python")]
import common  # noqa: E402

from clebsch import library  # noqa: E402
from clebsch.element_model import ElementModel  # noqa: E402
from clebsch.model_file import read_metadata  # noqa: E402

START = ROOT / "benchmarks/md/water192_settled.data"
KELVIN = (300.0, 600.0)
TIMESTEP, DAMPING = 0.5, 100.0  # fs
OTHER = 5  # steps from one look at the other grade to the next


class OtherGrade:
    """The grade of a file, of features that another file of the same network gives."""

    def __init__(self, path: Path) -> None:
        library.load()
        grade = torch.jit.load(str(path)).grade
        self.said = read_metadata(path)["extrapolation"]
        self.buffers = grade.transform.double(), grade.counts.double()

    def __call__(self, features: torch.Tensor, types: torch.Tensor) -> np.ndarray:
        return torch.ops.clebsch.extrapolation(features, types, *self.buffers, 0, self.said["grade"]).numpy()


class Replicas:
    """Copies of the box, `each` at a temperature."""

    def __init__(self, model: Path, device: str, each: int, other: OtherGrade | None = None, seed: int = 7) -> None:
        self.elements = ElementModel(str(model), None, device)
        self.other = other
        box = read(START, format="lammps-data", atom_style="atomic", units="metal")
        count = each * len(KELVIN)
        self.kelvin = np.repeat(KELVIN, each)
        self.rng = np.random.default_rng(seed)
        self.positions = np.tile(box.positions, (count, 1, 1))
        self.masses = box.get_masses()[None, :, None]
        self.spread = np.sqrt(units.kB * self.kelvin[:, None, None] / self.masses)
        self.velocities = self.spread * self.rng.normal(size=self.positions.shape)
        self.cells = torch.from_numpy(np.tile(box.cell.array, (count, 1, 1)))
        self.periodic = torch.ones((count, 3), dtype=torch.bool)
        self.starts = torch.arange(count + 1, dtype=torch.int32) * len(box)
        self.types = self.elements.types_of(np.tile(box.numbers, count))
        self.grades, self.others, self.count = np.empty(0), None, 0
        self.forces = self.evaluate()

    def evaluate(self) -> np.ndarray:
        looks = self.other is not None and self.count % OTHER == 0
        self.count += 1
        outputs = ["extrapolation", "last_features"] if looks else ["extrapolation"]
        found = self.elements.model.compute_systems(
            torch.from_numpy(self.positions.reshape(-1, 3)), self.cells, self.periodic, self.starts, self.types,
            virial=False, outputs=outputs)  # fmt: skip
        self.grades = found["extrapolation"].numpy().reshape(len(self.kelvin), -1)
        self.others = None
        if self.other is not None and looks:
            self.others = self.other(found["last_features"], self.types).reshape(self.grades.shape)
        return found["forces"].numpy().reshape(self.positions.shape)

    def step(self) -> None:
        time_step = TIMESTEP * units.fs
        keep = np.exp(-TIMESTEP / DAMPING)
        self.velocities += 0.5 * time_step * self.forces / self.masses
        self.positions += 0.5 * time_step * self.velocities
        noise = self.spread * self.rng.normal(size=self.positions.shape)
        self.velocities = keep * self.velocities + np.sqrt(1 - keep**2) * noise
        self.positions += 0.5 * time_step * self.velocities
        self.forces = self.evaluate()
        self.velocities += 0.5 * time_step * self.forces / self.masses

    def temperatures(self) -> np.ndarray:
        """Of each replica, K."""
        return (self.masses * self.velocities**2).mean(axis=(1, 2)) / units.kB


def run(replicas: Replicas, ps: float, warm: float, seconds: float) -> list[dict[str, float]]:
    """A row a temperature. seconds: what all of it may take."""
    begin = time.monotonic()
    for _ in range(round(1000 * warm / TIMESTEP)):
        replicas.step()
    largest, temperatures, others = [], [], []
    for step in range(max(1, round(1000 * ps / TIMESTEP))):
        replicas.step()
        largest.append(replicas.grades.max(axis=1))
        if replicas.others is not None:
            others.append(replicas.others.max(axis=1))
        temperatures.append(replicas.temperatures())
        if step % 10 == 9 and time.monotonic() - begin > seconds:
            break
    mean = np.mean(temperatures, axis=0)
    per_step = 1e3 * (time.monotonic() - begin) / (len(largest) + 1000 * warm / TIMESTEP)
    rows = []
    kinds = [(replicas.elements.metadata["extrapolation"], np.array(largest))]
    if others and replicas.other is not None:
        kinds.append((replicas.other.said, np.array(others)))
    for said, grades in kinds:
        every = 1 if len(grades) == len(largest) else OTHER
        for kelvin in KELVIN:
            mine = grades[:, replicas.kelvin == kelvin]
            rows.append({"grade": said["grade"], "kelvin": kelvin,
                         "ps": mine.size * every * TIMESTEP / 1000, "every": every,
                         "replicas": mine.shape[1], "mean_kelvin": float(mean[replicas.kelvin == kelvin].mean()),
                         "alarms": int((mine > said["maximum"]).sum()),
                         "above_q9999": int((mine > said["q9999"]).sum()),
                         "largest": float(mine.max()), "median_of_largest": float(np.median(mine)),
                         "training_maximum": said["maximum"], "training_q9999": said["q9999"],
                         "ms_a_step": per_step})  # fmt: skip
    return rows


def records_of(rows: list[dict], about: dict) -> list[dict]:
    """The largest grade of a run over the training maximum, as summary.json has it: an alarm is above 1."""
    return [{"name": f"grade_largest_{row['kelvin']:g}_k_water_nequip_{row['grade']}",
             "value": row["largest"] / row["training_maximum"], "unit": "of the training maximum", "spread": None,
             "dtype": "float32", "deterministic": True, "error": None, "peer": None, "ps": row["ps"], **about}
            for row in rows]  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?", default=ROOT / "models/water-nequip.pt")
    parser.add_argument("--also", type=Path, help="a file of the same network with another grade")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ps", type=float, default=50.0, help="of all replicas of a temperature together")
    parser.add_argument("--replicas", type=int, default=10, help="at each temperature")
    parser.add_argument("--warm", type=float, default=2.0, help="ps before the grades count")
    parser.add_argument("--seconds", type=float, default=1e9, help="that it may take")
    parser.add_argument("--json", type=Path, default=Path("alarms.json"))
    args = parser.parse_args()
    other = OtherGrade(args.also) if args.also else None
    replicas = Replicas(args.model, args.device, args.replicas, other)
    rows = run(replicas, args.ps / args.replicas, args.warm, args.seconds)
    for row in rows:
        print({k: v if isinstance(v, str) else round(v, 3) for k, v in row.items()}, flush=True)
    about = common.about(args.device)
    common.save(args.json, {"runs": rows, **about})
    common.save(args.json.with_name(f"{args.json.stem}_records.json"), records_of(rows, about))


if __name__ == "__main__":
    main()
