"""clebsch select: a pool of structures, a model and what is known -> the structures to label next."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from .errors import ClebschError
from .features import atom_features, read_structures
from .grade import Matrix, spectrum
from .model_file import read_metadata
from .progress import Progress, silent
from .runtime import Model
from .sampling.selection import leverage_scores, select


@dataclass
class Chosen:
    """structures: indices in the pool, in the order of choice; pool: how many it has; before, after: leverage grades of
    all its atoms by what was known, and by that with the chosen ones."""

    structures: list[int]
    pool: int
    before: Matrix
    after: Matrix

    @property
    def before_q99(self) -> float:
        return float(np.quantile(self.before, 0.99))

    @property
    def after_q99(self) -> float:
        return float(np.quantile(self.after, 0.99))


def choose_structures(
    pool: str | os.PathLike[str] | Sequence[Atoms],
    model: str | os.PathLike[str],
    count: int,
    *,
    known: str | os.PathLike[str] | Sequence[Atoms] | None = None,
    method: str = "doptimal",
    per: str = "structure",
    per_atom_gain: bool = False,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Chosen:
    """Chooses `count` structures, or with per "atom" the structures of `count` atoms, and writes them to `out`
    (extended xyz). Structures written have info["pool_index"] and the array "chosen" (per atom), and keep what they
    had.

    known: structures that are trained on already; None: the covariance of the model file, which must have a grade with
    all elements pooled. method, seed and per_atom_gain: as of clebsch.sampling.select. Raises ClebschError for a file
    without features or covariance, and as clebsch.sampling.select does. Nothing is written then.
    """
    if per not in ("structure", "atom"):
        raise ClebschError(f"per: expected structure or atom, got {per!r}")
    if out is not None and not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        raise ClebschError(f"expected an existing folder to write into, got {os.fspath(out)!r}")
    known_set = _known(model, known, device, progress)
    structures = read_structures(pool) if isinstance(pool, (str, os.PathLike)) else list(pool)
    features, _ = atom_features(structures, model, device=device, progress=progress)
    owners = np.repeat(np.arange(len(structures)), [len(atoms) for atoms in structures])
    groups = owners if per == "structure" else None
    if groups is not None and len(owners) and owners[-1] + 1 < len(structures):
        raise ClebschError("pool: expected structures with atoms, got an empty one at its end")
    picked = select(
        features, count, method, groups=groups, known=known_set, per_atom=per_atom_gain, seed=seed, progress=progress
    )
    marked = np.zeros(len(owners), dtype=bool)
    if per == "structure":
        order = [int(s) for s in picked]
        marked[np.isin(owners, picked)] = True
    else:
        order = list(dict.fromkeys(int(s) for s in owners[picked]))
        marked[picked] = True
    covariance, atoms = known_set
    rank = spectrum(covariance).rank
    before = leverage_scores(features, known=known_set) * atoms / rank
    rows = features[np.isin(owners, order)]
    total = atoms + len(rows)
    joint = (covariance * atoms + rows.T @ rows) / total
    # In the units of the grades before: what was added is known now, and the mean of the old set stays what 1 means.
    after = leverage_scores(features, known=(joint, total)) * atoms / rank
    if out is not None:
        _write(structures, order, owners, marked, out)
    return Chosen(order, len(structures), before, after)


def _known(
    model: str | os.PathLike[str],
    known: str | os.PathLike[str] | Sequence[Atoms] | None,
    device: str,
    progress: Progress,
) -> tuple[Matrix, float]:
    """Covariance and number of atoms."""
    if known is not None:
        structures = read_structures(known) if isinstance(known, (str, os.PathLike)) else list(known)
        features, _ = atom_features(structures, model, device=device, progress=progress)
        if len(features) == 0:
            raise ClebschError("known: expected structures with atoms, got none")
        return features.T @ features / len(features), len(features)
    metadata = read_metadata(model)
    counts = metadata.get("extrapolation", {}).get("counts")
    if counts is None:
        raise ClebschError(
            f"{os.fspath(model)}: expected a model file with the covariance of its training set (clebsch export "
            "--extrapolation TRAIN.xyz), got one without; or give --known TRAIN.xyz"
        )
    loaded = Model(model, types_in_use=[metadata["type_names"][int(np.argmax(counts))]])
    matrices = loaded.feature_covariance.numpy()
    # One an element: together they are the pooled one.
    weights = np.asarray(counts, dtype=np.float64) if len(matrices) == len(counts) else np.array([float(sum(counts))])
    return np.einsum("t,tij->ij", weights, matrices) / weights.sum(), float(sum(counts))


def _write(
    structures: Sequence[Atoms],
    order: Sequence[int],
    owners: NDArray[np.int64],
    marked: NDArray[np.bool_],
    out: str | os.PathLike[str],
) -> None:
    import ase.io

    written = []
    for s in order:
        atoms = structures[s].copy()
        atoms.calc = structures[s].calc
        atoms.info["pool_index"] = s
        atoms.arrays["chosen"] = marked[owners == s]
        written.append(atoms)
    temporary = f"{os.fspath(out)}.tmp"
    try:
        ase.io.write(temporary, written, format="extxyz")
        os.replace(temporary, out)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def draw_grades(chosen: Chosen, path: str | os.PathLike[str]) -> bool:
    """A histogram of the pool's grades before and after; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    both = np.concatenate([chosen.before, chosen.after])
    low, high = max(both.min(), 1e-6), max(both.max(), 2e-6)
    bins = np.geomspace(low * 0.9, high * 1.1, 60)
    axes.hist(chosen.before, bins=bins, histtype="step", label="before")
    axes.hist(chosen.after, bins=bins, histtype="step", label=f"with {len(chosen.structures)} structures chosen")
    axes.set(xscale="log", yscale="log", xlabel="grade (1: mean of what was known)", ylabel="atoms of the pool")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    return True
