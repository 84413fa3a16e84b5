"""Energies, forces and stresses of many structures, which run as few large graphs (docs/developers/systems.md).

>>> results = clebsch.evaluate(structures, "model.pt")
>>> results.energies, results.forces[3], results.stresses[3]
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from ase import Atoms
from numpy.typing import NDArray

from .element_model import VOIGT, ElementModel, volumes_of
from .errors import ClebschError
from .progress import Progress, silent
from .runtime import Model
from .turns import Turns

_log = logging.getLogger("clebsch")
#: Atoms of a batch where nobody says how many: a GPU is busy, and memory stays small (about 2 GB for a large model); a
#: CPU has no use for more than fit its caches.
_ATOMS_ON_GPU, _ATOMS_ON_CPU = 16384, 512
#: A step is recorded when so many batches replay it; a recording costs about as much as it saves a large batch in all.
_RECORDED_BATCHES = 8
#: Batches at a time: one that a GPU computes, one that waits behind it, one that a thread prepares.
_PLACES = 3


@dataclass
class Evaluation:
    """Results in the order of the structures.

    energies (S,) eV; atomic_energies, one (N,) eV a structure; forces, one (N, 3) eV/Angstrom a structure, or None;
    stresses (S, 6) eV/Angstrom^3 in Voigt order xx yy zz yz xz xy, NaN without a cell of three vectors, or None;
    outputs, by name: named per-atom outputs of the model that were asked for, one (N, ...) a structure.
    """

    energies: NDArray[np.float64]
    atomic_energies: list[NDArray[np.float64]]
    forces: list[NDArray[np.float64]] | None
    stresses: NDArray[np.float64] | None
    outputs: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.energies)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """energy, energies, forces and stress of one structure, as ASE names them."""
        one: dict[str, Any] = {"energy": float(self.energies[index]), "energies": self.atomic_energies[index]}
        if self.forces is not None:
            one["forces"] = self.forces[index]
        if self.stresses is not None and not np.isnan(self.stresses[index, 0]):
            one["stress"] = self.stresses[index]
        return one


@dataclass
class _Packed:
    """Structures as the arrays of Model.compute_systems."""

    indices: Sequence[int]
    positions: NDArray[np.float64]
    numbers: NDArray[np.int64]
    cells: NDArray[np.float64]
    periodic: NDArray[np.bool_]
    starts: NDArray[np.int32]
    prepared: bool = False  #: Model.prepare_systems has been called for it

    @classmethod
    def of(cls, structures: Sequence[Atoms], indices: Sequence[int]) -> _Packed:
        chosen = [structures[index] for index in indices]
        starts = np.zeros(len(chosen) + 1, dtype=np.int32)
        np.cumsum([len(atoms.arrays["numbers"]) for atoms in chosen], out=starts[1:])
        return cls(
            indices,
            np.ascontiguousarray(
                np.concatenate([atoms.arrays["positions"] for atoms in chosen], dtype=np.float64)  # or Fortran's order
            ),
            np.concatenate([atoms.arrays["numbers"] for atoms in chosen]),
            np.array([atoms.cell.array for atoms in chosen], dtype=np.float64),
            np.array([atoms.pbc for atoms in chosen], dtype=bool),
            starts,
        )

    def tensors(self, elements: ElementModel) -> tuple[torch.Tensor, ...]:
        """positions, cells, periodic, starts and types as Model.compute_systems takes them."""
        arrays = (self.positions, self.cells, self.periodic, self.starts)
        return (*map(torch.from_numpy, arrays), elements.types_of(self.numbers))


class Evaluator:
    """A model that is kept for many calls of evaluate. Arguments as of evaluate; the model is loaded when it is made,
    with many types by the first call. Calls of several threads take turns, one after the other."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        device: str = "auto",
        dtype: str | None = None,
        *,
        radial: str = "table",
        types: Mapping[str, str] | None = None,
        threads: int | None = None,
        max_atoms: int | None = None,
        cuda_graph: bool = True,
    ) -> None:
        if max_atoms is not None and max_atoms < 1:
            raise ClebschError(f"max_atoms: expected at least 1, got {max_atoms}")
        self._max_atoms = max_atoms
        self._turns = Turns()
        self._elements = ElementModel(
            model, types, device, dtype=dtype, radial=radial, threads=threads or 0, cuda_graph=cuda_graph
        )

    @property
    def model(self) -> Model:
        """The loaded model; with many types, after the first call."""
        return self._elements.model

    def __call__(
        self,
        structures: Iterable[Atoms],
        *,
        forces: bool = True,
        stress: bool = True,
        outputs: Sequence[str] = (),
        progress: Progress | bool = False,
    ) -> Evaluation:
        """As evaluate, with this model. outputs: named per-atom outputs that are wanted, such as "extrapolation"."""
        with self._turns:
            return self._evaluate(list(structures), forces, stress, outputs, progress)

    def _evaluate(
        self, structures: list[Atoms], forces: bool, stress: bool, outputs: Sequence[str], progress: Progress | bool
    ) -> Evaluation:
        for index, atoms in enumerate(structures):
            if not isinstance(atoms, Atoms):
                raise ClebschError(f"structure {index}: expected ase.Atoms, got {type(atoms).__name__}")
        watch = _watcher(progress)
        found = _Collected(len(structures), forces, stress, outputs)
        if not structures:  # a model of many types may not be loaded yet
            return found.evaluation()
        self._load(structures, watch)
        most = self._max_atoms or (_ATOMS_ON_CPU if self.model.device == "cpu" else _ATOMS_ON_GPU)
        sizes = [len(atoms) for atoms in structures]
        batches, room = _in_turn(_batches(sizes, most), sizes, most)
        ahead = self._works_ahead() and not outputs
        started: deque[tuple[int, _Packed]] = deque()

        def finish(count: int) -> None:
            """Fetches results until at most `count` batches are under way."""
            while len(started) > count:
                self._finish(structures, *started.popleft(), found)
                watch("structures evaluated", found.done, len(structures))

        # One thread packs the next batch and, for a GPU, makes its list, while the model, outside of Python, computes.
        with ThreadPoolExecutor(max_workers=1) as pool:
            upcoming: Future[_Packed] | None = pool.submit(self._prepared, structures, batches[0], 0, ahead)
            for number in range(len(batches)):
                assert upcoming is not None
                packed, place = upcoming.result(), number % _PLACES
                under_way = packed.prepared and self._start(packed, place, room, found)
                follows = number + 1
                if follows < len(batches):
                    upcoming = pool.submit(self._prepared, structures, batches[follows], follows % _PLACES, ahead)
                if under_way:
                    started.append((place, packed))
                    finish(1)
                    continue
                finish(0)
                self._run(structures, packed, room, found)
                watch("structures evaluated", found.done, len(structures))
            finish(0)
        return found.evaluation()

    def _works_ahead(self) -> bool:
        """On a GPU; CLEBSCH_BATCHES=together in the environment waits for each batch, CLEBSCH_BATCHES=ahead does not
        wait on the CPU either, where there is nothing to be gained."""
        how = os.environ.get("CLEBSCH_BATCHES", "")
        if how not in ("", "together", "ahead"):
            raise ClebschError(f"CLEBSCH_BATCHES: expected together or ahead, got {how!r}")
        return how == "ahead" or (how == "" and self.model.device != "cpu")

    def _prepared(self, structures: Sequence[Atoms], batch: Sequence[int], place: int, ahead: bool) -> _Packed:
        """A batch's arrays and, `ahead`, its list, unless that fails: _run then finds which structure it was."""
        packed = _Packed.of(structures, batch)
        if ahead and len(batch) > 1:
            with suppress(ClebschError):
                self.model.prepare_systems(place, *packed.tensors(self._elements))
                packed.prepared = True
        return packed

    def _start(self, packed: _Packed, place: int, room: int, found: _Collected) -> bool:
        """Whether the model has begun with the batch."""
        try:
            self.model.start_systems(
                place, room=room, forces=found.forces is not None, virial=found.stresses is not None
            )
        except ClebschError as error:
            _log.debug("a batch is computed by itself, as it could not begin: %s", error)
            return False
        return True

    def _finish(self, structures: Sequence[Atoms], place: int, packed: _Packed, found: _Collected) -> None:
        """Results of a batch that was started; where it fails, it is computed again, in parts."""
        try:
            result = self.model.finish_systems(place)
        except ClebschError as error:
            _log.debug("a batch is computed again by itself: %s", error)
            self._run(structures, packed, 0, found)
            return
        found.take(packed, result)

    def _load(self, structures: Sequence[Atoms], progress: Progress) -> None:
        """Loads the model for all elements at once, instead of again and again."""
        numbers = np.concatenate([atoms.arrays["numbers"] for atoms in structures])
        usual = len(numbers) > 0 and numbers.min() >= 0 and numbers.max() < 1000
        # Counting is several times faster than sorting.
        present = np.flatnonzero(np.bincount(numbers)) if usual else np.unique(numbers)
        try:
            self._elements.check(present)
        except ClebschError as error:
            for index, atoms in enumerate(structures):
                if not self._elements.knows(atoms.arrays["numbers"]).all():
                    raise ClebschError(f"structure {index}: {error}") from None
            raise
        self._elements.types_of(present, progress)

    def _run(self, structures: Sequence[Atoms], packed: _Packed, room: int, found: _Collected) -> None:
        """A batch; where it fails, its halves: one that asks for too much memory runs in parts, and an error names the
        structure that it is about."""
        try:
            result = self.model.compute_systems(
                *packed.tensors(self._elements),
                skin=0.0,
                room=room,
                forces=found.forces is not None,
                virial=found.stresses is not None,
                outputs=list(found.outputs),
            )
        except ClebschError as error:
            if len(packed.indices) == 1:
                index = packed.indices[0]
                raise ClebschError(f"structure {index}: {self._elements.explained(error, structures[index])}") from None
            half = len(packed.indices) // 2
            for part in (packed.indices[:half], packed.indices[half:]):
                self._run(structures, _Packed.of(structures, part), 0, found)
            return
        found.take(packed, result)


class _Collected:
    """Results of batches, put in their places."""

    def __init__(self, count: int, forces: bool, stress: bool, outputs: Sequence[str] = ()) -> None:
        self.done = 0
        self.energies = np.zeros(count)
        self.atomic: list[Any] = [None] * count
        self.forces: list[Any] | None = [None] * count if forces else None
        self.stresses = np.full((count, 6), np.nan) if stress else None
        self.outputs: dict[str, list[Any]] = {name: [None] * count for name in outputs}

    def take(self, packed: _Packed, result: dict[str, torch.Tensor]) -> None:
        self.done += len(packed.indices)
        self.energies[packed.indices] = result["energies"].numpy()
        bounds = packed.starts.tolist()
        per_atom = [(result["atomic_energy"], self.atomic), (result.get("forces"), self.forces)]
        per_atom += [(result[name], target) for name, target in self.outputs.items()]
        for values, target in per_atom:
            if values is None or target is None:
                continue
            array = values.numpy()
            for place, index in enumerate(packed.indices):
                target[index] = array[bounds[place] : bounds[place + 1]]
        if self.stresses is not None:
            volumes = volumes_of(packed.cells)
            volumes[volumes == 0] = np.nan
            self.stresses[packed.indices] = result["virials"].numpy()[:, VOIGT] / -volumes[:, None]

    def evaluation(self) -> Evaluation:
        return Evaluation(self.energies, self.atomic, self.forces, self.stresses, self.outputs)


def _batches(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Indices in batches of at most `most` atoms, or one structure; sizes fall, so that alike are together.

    As few batches as that takes, and of nearly as many atoms each where that is possible: a GPU computes as many rows
    for the last one as for the others.
    """
    order = np.argsort(-np.asarray(sizes, dtype=np.int64), kind="stable").tolist()
    batches = _filled(order, sizes, most)
    if len(batches) < 2:
        return batches
    even = -(-sum(sizes) // len(batches))
    # With room for one structure more than the average, every batch has more than the average, so there are not more.
    for limit in (even, even + max(sizes)):
        if limit < most and len(evened := _filled(order, sizes, limit)) <= len(batches):
            return evened
    return batches


def _in_turn(batches: list[list[int]], sizes: Sequence[int], most: int) -> tuple[list[list[int]], int]:
    """The batches with structures of more than `most` atoms last, and the atoms that buffers are to have room for from
    the start. A GPU computes as many rows as its buffers have, so one such structure would slow down all other batches.
    """
    totals = [sum(sizes[index] for index in batch) for batch in batches]
    usual = [batch for batch, total in zip(batches, totals, strict=True) if total <= most]
    large = [batch for batch, total in zip(batches, totals, strict=True) if total > most]
    room = max((total for total in totals if total <= most), default=0)
    return usual + large, room if len(usual) > 1 else 0


def _filled(order: Sequence[int], sizes: Sequence[int], most: int) -> list[list[int]]:
    batches: list[list[int]] = []
    atoms = 0
    for index in order:
        if not batches or atoms + sizes[index] > most:
            batches.append([])
            atoms = 0
        batches[-1].append(index)
        atoms += sizes[index]
    return batches


def _watcher(progress: Progress | bool) -> Progress:
    if progress is True:
        from .cli.progress import Bar

        return Bar()
    return progress or silent


def evaluate(
    structures: Iterable[Atoms],
    model: str | os.PathLike[str] | Evaluator,
    device: str = "auto",
    forces: bool = True,
    stress: bool = True,
    max_atoms: int | None = None,
    *,
    dtype: str | None = None,
    radial: str = "table",
    types: Mapping[str, str] | None = None,
    threads: int | None = None,
    progress: Progress | bool = False,
) -> Evaluation:
    """Energies, forces and stresses of structures of any sizes, cells and boundaries, empty ones included.

    structures: ase.Atoms; their calculators and constraints are not looked at.
    model: path of a model file, or an Evaluator, which keeps a loaded model for many calls and whose other arguments
        then hold instead of those here.
    device, dtype, radial, types, threads: as of clebsch.ase.ClebschCalculator.
    forces, stress: what to compute beside energies.
    max_atoms: atoms that are computed together at most; a larger structure is computed alone. None: 16,384 on a GPU,
        512 on the CPU. A batch for which memory runs out is computed in parts.
    progress: True for a bar on a terminal's stderr, or a function (clebsch.progress.Progress).

    Values are those of the calculator for each structure (float64: to rounding). Raises ClebschError as the calculator
    does, with the index of the structure.
    """
    if isinstance(model, Evaluator):
        if max_atoms is not None or dtype is not None or types is not None or threads is not None:
            raise ClebschError("evaluate: expected max_atoms, dtype, types and threads where the Evaluator was made")
        return model(structures, forces=forces, stress=stress, progress=progress)
    structures = list(structures)
    atoms = sum(len(one) for one in structures if isinstance(one, Atoms))
    recorded = atoms > _RECORDED_BATCHES * (max_atoms or _ATOMS_ON_GPU)
    evaluator = Evaluator(
        model, device, dtype, radial=radial, types=types, threads=threads, max_atoms=max_atoms, cuda_graph=recorded
    )
    return evaluator(structures, forces=forces, stress=stress, progress=progress)
