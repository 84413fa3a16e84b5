"""Does the grade of extrapolation find the atoms whose forces are wrong? Tables of the shipped models.

    benchmarks/run grade [-- --folder FOLDER]
    python benchmarks/grade FOLDER --json out.json [--parts water-nequip,water-allegro,carbon-mace]

FOLDER holds the structures (water.py and carbon.py make what is missing, half an hour of one core) and the features
once they are computed. Every variant of quality.py is judged; that of the library is "pooled" and "an element each".
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import read

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/grade"), str(ROOT / "src/python")]

import common  # noqa: E402
from quality import VARIANTS, Array, Fitted, auc, spearman  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.batch import Evaluator  # noqa: E402
from clebsch.features import atom_features  # noqa: E402

PARTS = ("water-nequip", "water-allegro", "carbon-mace")
#: eV/A: an atom with a larger error of its force is one to be found.
WRONG = 0.15


def recipe(name: str) -> Any:
    """The module that makes a shipped model from its weights."""
    path = ROOT / "models/recipes" / name / "export_model.py"
    spec = importlib.util.spec_from_file_location(f"export_{name.replace('-', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_file(name: str, folder: Path) -> Path:
    """The shipped model by this release: its file names its features."""
    out = folder / f"{name}.pt"
    if not out.exists():
        made = recipe(name)
        if name.startswith("water"):
            from nequip.utils.global_state import set_global_state

            set_global_state(allow_tf32=False)
        write: Callable[..., Any] = getattr(export, name.split("-")[1])
        write(made.model(), str(out), verify=False)
    return out


def features_of(name: str, sort: str, frames: list[Atoms], folder: Path) -> tuple[Array, Any]:
    kept = folder / f"{name}-{sort}.npz"
    if not kept.exists():
        features, types = atom_features(frames, model_file(name, folder))
        np.savez(kept, features=features, types=types)
    found = np.load(kept)
    return found["features"], found["types"]


def forces_of(name: str, sort: str, frames: list[Atoms], folder: Path) -> tuple[Array, Array]:
    """(N, 3) eV/A and energies an atom (S,) of the model."""
    kept = folder / f"{name}-{sort}-forces.npz"
    if not kept.exists():
        found = Evaluator(model_file(name, folder), "cpu")([frame.copy() for frame in frames], stress=False)
        each = found.energies / [len(frame) for frame in frames]
        np.savez(kept, forces=np.concatenate(found.forces), energies=each)
    arrays = np.load(kept)
    return arrays["forces"], arrays["energies"]


def norm(forces: Array) -> Array:
    return np.linalg.norm(forces, axis=1)


class Judged:
    """Labelled structures, the model's forces, and what is wrong."""

    def __init__(self, name: str, sort: str, frames: list[Atoms], folder: Path) -> None:
        self.frames = frames
        self.features, self.types = features_of(name, sort, frames, folder)
        self.forces, self.energies = forces_of(name, sort, frames, folder)
        self.error = norm(self.forces - np.concatenate([frame.get_forces() for frame in frames]))
        self.owner = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])

    def means(self, values: Array) -> Array:
        return np.bincount(self.owner, values) / np.bincount(self.owner)

    def row(self, score: Array, of_structure: Array | None = None) -> dict[str, float]:
        mean = self.means(score) if of_structure is None else of_structure
        rmse = np.sqrt(self.means(self.error**2))
        tenth = self.error > np.quantile(self.error, 0.9)
        return {"auc": auc(score, self.error > WRONG), "auc_0.3": auc(score, self.error > 2 * WRONG),
                "auc_tenth": auc(score, tenth), "spearman": spearman(mean, rmse)}  # fmt: skip


def broken_row(grade: Callable[..., Array], own: Array, frames: list[Atoms], features: Array, types: Any) -> dict:
    """Parts of the structures with a broken bond: whose largest grade is above the training maximum, and above all
    training grades but one of 10,000; whose broken pair has the two largest grades, and one of whose atoms has the
    largest; whose broken bond is the first of all O-H bonds by the sum of its atoms' grades. least: the smallest of
    their largest grades, over the training maximum. own: training grades. Atoms are ordered O H H."""
    most, nearly = float(own.max()), float(np.quantile(own, 0.9999))
    grades = grade(features, types).reshape(len(frames), -1)
    above = pair = one = often = bond = 0
    for frame, mine in zip(frames, grades, strict=True):
        order = np.argsort(-mine)
        wanted = {frame.info["oxygen"], frame.info["hydrogen"]}
        bonds = mine.reshape(-1, 3)[:, :1] + mine.reshape(-1, 3)[:, 1:]
        first = int(bonds.argmax())
        bond += {3 * (first // 2), 3 * (first // 2) + 1 + first % 2} == wanted
        above += mine.max() > most
        often += mine.max() > nearly
        pair += set(order[:2].tolist()) == wanted
        one += int(order[0]) in wanted
    counted = {"above": above, "above_9999": often, "pair_first": pair, "one_first": one, "bond_first": bond}
    parts = {key: value / len(frames) for key, value in counted.items()}
    return {**parts, "least": float(grades.max(1).min() / most)}


def show(title: str, rows: dict[str, dict[str, float]]) -> None:
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    print(f"\n{title}\n{'':44s}" + "".join(f"{key:>16s}" for key in keys))
    for name, row in rows.items():
        print(f"{name:44s}" + "".join(f"{row[key]:16.4g}" if key in row else f"{'':16s}" for key in keys), flush=True)


def judge(name: str, train: list[Atoms], hard: list[Atoms], broken: list[Atoms], folder: Path, **others: Array) -> dict:
    """All variants of one model. others: scores (N,) of the hard set's atoms to compare with."""
    known, kinds = features_of(name, "train", train, folder)
    judged = Judged(name, "hard", hard, folder)
    around = features_of(name, "broken", broken, folder) if broken else None
    rows: dict[str, dict[str, float]] = {}
    for variant in VARIANTS:
        fitted = Fitted(variant, known, kinds)
        own = fitted(known, kinds)
        row = judged.row(fitted(judged.features, judged.types))
        row["q99"], row["maximum"] = float(np.quantile(own, 0.99)), float(own.max())
        if around is not None:
            row.update(broken_row(fitted, own, broken, *around))
        rows[variant.name] = row
    rows["|F|"] = judged.row(norm(judged.forces))
    rows["energy an atom"] = {"spearman": spearman(judged.energies, np.sqrt(judged.means(judged.error**2)))}
    for other, score in others.items():
        rows[other] = judged.row(score)
    wrong = judged.error > WRONG
    title = f"{name}: {len(hard)} structures, {len(wrong)} atoms, {wrong.mean():.2%} of them off by {WRONG} eV/A; " \
            f"training set {len(known)} atoms"  # fmt: skip
    show(title, rows)
    by = {}
    for sort in sorted({(f.info["temperature"], f.info["density"]) for f in hard if "temperature" in f.info}):
        mine = np.isin(
            judged.owner, [k for k, f in enumerate(hard) if (f.info.get("temperature"), f.info.get("density")) == sort]
        )
        reference = np.concatenate([f.get_forces() for f in hard])[mine]
        by[f"{sort[0]:g} K, {sort[1]:g} g/cm3"] = {
            "rmse_relative": float(np.sqrt((judged.error[mine] ** 2).mean() / (norm(reference) ** 2).mean())),
            "wrong": float(wrong[mine].mean()),
        }
    if by:
        show(f"{name}: errors of the hard set", by)
    return {"model": name, "atoms": len(wrong), "wrong": int(wrong.sum()), "rows": rows, "by": by}


def records_of(result: dict) -> list[dict]:
    """What summary.json keeps of a model: the grade of the library, and what it is compared with."""
    name, rows, found = result["model"].replace("-", "_"), result["rows"], []
    kept = ("auc", "auc_tenth", "spearman", "above", "above_9999", "one_first", "pair_first", "bond_first")
    compared = ("auc", "auc_tenth", "spearman", "above", "bond_first")
    ends = {"": "pooled", "_by_element": "an element each", "_of_force": "|F|", "_maxvol": "pooled, maxvol",
            "_squares": "pooled, squares too"}  # fmt: skip
    for end, row in ((end, rows[variant]) for end, variant in ends.items()):
        for key in compared if end else kept:
            if key in row:
                found.append({"name": f"grade_{key}_{name}{end}", "value": row[key], "unit": "of 1", "spread": None,
                              "dtype": "float64", "deterministic": True, "error": None, "peer": None,
                              **common.about("cpu")})  # fmt: skip
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, default=Path("grade.json"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    parts, made = args.parts.split(","), []
    if any(part.startswith("water") for part in parts):
        import water

        water.make(args.folder, args.jobs)
        train, hard, broken = (read(args.folder / f"{sort}.xyz", ":") for sort in ("train", "hard", "broken"))
        both = {name: forces_of(name, "hard", hard, args.folder)[0] for name in PARTS[:2]}
        apart = norm(both[PARTS[0]] - both[PARTS[1]])
        for name in PARTS[:2]:
            if name in parts:
                made.append(judge(name, train, hard, broken, args.folder, **{"NequIP beside Allegro, |dF|": apart}))
    if "carbon-mace" in parts:
        import carbon

        train, hard = carbon.make(args.folder, args.jobs)
        made.append(judge("carbon-mace", train, hard, [], args.folder))
    common.save(args.json, {"results": made, **common.about("cpu")})
    records = [record for one in made for record in records_of(one)]
    common.save(args.json.with_name(f"{args.json.stem}_records.json"), records)


if __name__ == "__main__":
    main()
