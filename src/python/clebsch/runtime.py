"""Running a model: a thin wrapper of torch.classes.clebsch.Model (docs/developers/map.md, "Python-visible class")."""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import library
from .errors import ClebschError
from .progress import Progress, silent, watched
from .turns import Turns

_log = logging.getLogger("clebsch")
Result = TypeVar("Result")


def check_device(device: str) -> str:
    """The device as the library reads it; ClebschError for what is none. Whether there is a GPU shows at load."""
    device = str(device)
    number = device.removeprefix("cuda:")
    if device not in ("auto", "cpu", "cpu:padded", "cuda") and not (number != device and number.isdecimal()):
        raise ClebschError(f"device: expected auto, cpu, cuda or cuda:N, got {device!r}")
    return device


def dtype_name(dtype: Any) -> str | None:
    """The name of a dtype given as a string, torch's or numpy's; None stays None."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype).name


_loaded: weakref.WeakSet[Model] = weakref.WeakSet()
_any_loaded = False


def _one_thread() -> None:
    """In a forked child: OpenMP's threads did not come along, and a team of them would wait for ever."""
    if not _any_loaded or torch.get_num_threads() == 1:
        return
    torch.set_num_threads(1)
    for model in _loaded:
        model.set_threads(1)


os.register_at_fork(after_in_child=_one_thread)


def _text(value: bool) -> str:
    return "yes" if value else "no"


def _listed(outputs: Sequence[str]) -> list[str]:
    if isinstance(outputs, str):
        raise ClebschError(f"outputs: expected a list of names, got the text {outputs!r}")
    return list(outputs)


class Model:
    """A loaded, validated model.

    path: the model file.
    dtype: "float32", "float64", or None for the model's own.
    radial: "table" (fast) or "exact" (the network itself, the reference).
    types_in_use: names of the types to build radial tables for; empty for all.
    threads: 0 for torch's current setting.
    device: "cpu", "cuda", "cuda:N", or "auto" for a GPU when there is a usable one.
    cuda_graph: replay a recorded step on a GPU (the environment's CLEBSCH_CUDA_GRAPH=0 forbids it too).
    progress: told how far the load is, which takes long with tables of many elements and when kernels are compiled.

    Steps of several threads take turns, one after the other; a neighbour list of set_neighbours is that of all of them.
    What the library has to tell, e.g. that a step was recorded again, goes to the logger "clebsch" as a warning. Raises
    ClebschError for a file that is refused (nothing of it has run) or where libclebsch is missing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dtype: str | None = None,
        radial: str = "table",
        types_in_use: Sequence[str] = (),
        threads: int = 0,
        deterministic: bool = True,
        table_pieces: int | None = None,
        device: str = "cpu",
        cuda_graph: bool = True,
        progress: Progress = silent,
    ) -> None:
        library.require()
        options = {
            "radial": radial,
            "deterministic": _text(deterministic),
            "threads": str(int(threads)),
            "device": check_device(device),
            "cuda_graph": _text(cuda_graph),
        }
        if dtype is not None:
            options["dtype"] = str(dtype_name(dtype))
        if isinstance(types_in_use, str):
            raise ClebschError(f"types_in_use: expected a list of names, got the text {types_in_use!r}")
        if types_in_use:
            options["types_in_use"] = ",".join(types_in_use)
        if table_pieces is not None:
            options["table_pieces"] = str(int(table_pieces))
        try:
            self._model = watched(partial(torch.classes.clebsch.Model, os.fspath(path), options), progress)
        except RuntimeError as error:
            raise ClebschError(_message(error)) from None
        self.metadata: dict[str, Any] = json.loads(self._model.metadata())
        self._turns = Turns()
        global _any_loaded
        _any_loaded = True
        _loaded.add(self)

    @property
    def type_names(self) -> list[str]:
        return list(self.metadata["type_names"])

    @property
    def r_max(self) -> float:
        """Largest pair cutoff, Angstrom."""
        return float(self.metadata["r_max"])

    @property
    def dtype(self) -> str:
        """Of the run."""
        return self._model.dtype()

    @property
    def device(self) -> str:
        """Where it runs: "cpu" or "cuda:0"."""
        return self._model.device()

    @property
    def last_run(self) -> dict[str, Any]:
        """The last step on a GPU: upload_ms, compute_ms, read_ms, replayed, captures, capacities rows, nodes, edges; on
        the CPU as well: lists."""
        return json.loads(self._model.last_run())

    def time_device(self, repeats: int) -> float:
        """Milliseconds a repeat of the last step takes on its GPU, without transfers."""
        with self._turns:
            return self._model.time_device(repeats)

    @property
    def tables(self) -> list[dict[str, Any]]:
        """One entry a layer: layer, tables, pieces, bytes, value_error, slope_error; empty with radial="exact"."""
        return self.report_tables()

    def report_tables(self, progress: Progress = silent) -> list[dict[str, Any]]:
        """The same as `tables`. The errors are measured when first asked for, which takes long for many elements."""
        return json.loads(watched(self._model.tables, progress))

    def compile_kernels(
        self,
        arch: int,
        *,
        cache_folder: str = "",
        list_only: bool = False,
        threads: int = 0,
        progress: Progress = silent,
    ) -> list[dict[str, Any]]:
        """GPU kernels of a step, compiled for an architecture (0: the current device's); one entry a kernel."""
        call = partial(self._model.compile_kernels, int(arch), cache_folder, list_only, int(threads))
        try:
            return json.loads(watched(call, progress))
        except RuntimeError as error:
            raise ClebschError(_message(error)) from None

    def set_threads(self, threads: int) -> None:
        with self._turns:
            self._model.set_threads(int(threads))

    def compute(
        self,
        edge_vec: Tensor,
        types: Tensor,
        receivers: Tensor,
        senders: Tensor,
        *,
        n_local: int | None = None,
        n_rows: int | None = None,
        forces: bool = True,
        virial: bool = True,
        atom_virial: bool = False,
        centroid_virial: bool = False,
        outputs: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        """Energies, forces and virials of one graph, as float64 CPU tensors (docs/developers/map.md).

        edge_vec (E, 3) = x[sender] - x[receiver] in Angstrom; types (M,); receivers, senders (E,); edges in any order.
        """
        n_local = len(types) if n_local is None else n_local
        n_rows = n_local if n_rows is None else n_rows
        return self._step(
            lambda: self._model.compute(
                edge_vec, types, receivers, senders, n_local, n_rows, forces, virial, atom_virial, centroid_virial,
                _listed(outputs),
            )
        )  # fmt: skip

    def set_neighbours(
        self,
        types: Tensor,
        receivers: Tensor,
        senders: Tensor,
        shifts: Tensor,
        *,
        n_local: int | None = None,
        n_rows: int | None = None,
    ) -> None:
        """A neighbour list for compute_positions: all pairs that may come within their cutoff before the next list.

        types (M,) int64; receivers, senders (P,) int64 in any order; shifts (P, 3) int32, cell vectors that are added
        to the sender's position.
        """
        n_local = len(types) if n_local is None else n_local
        n_rows = n_local if n_rows is None else n_rows
        try:
            with self._turns:
                self._model.set_neighbours(types, receivers, senders, shifts, n_local, n_rows)
        except RuntimeError as error:
            raise ClebschError(_message(error)) from None

    def compute_positions(
        self,
        positions: Tensor,
        cell: Tensor,
        *,
        forces: bool = True,
        virial: bool = True,
        atom_virial: bool = False,
        centroid_virial: bool = False,
        outputs: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        """As compute, for the atoms of the last set_neighbours at positions (M, 3) in a cell (3, 3), float64, Angstrom.

        Edges are found where the model runs: a step on a GPU uploads positions alone.
        """
        return self._step(
            lambda: self._model.compute_positions(
                positions, cell, forces, virial, atom_virial, centroid_virial, _listed(outputs)
            )
        )

    def compute_systems(
        self,
        positions: Tensor,
        cells: Tensor,
        periodic: Tensor,
        starts: Tensor,
        types: Tensor,
        *,
        skin: float = 1.0,
        room: int = 0,
        forces: bool = True,
        virial: bool = True,
        atom_virial: bool = False,
        outputs: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        """Systems of atoms with cells of their own, as one graph (docs/developers/systems.md).

        Contiguous CPU tensors: positions (N, 3) float64 in Angstrom, anywhere; cells (S, 3, 3) float64, rows are
        vectors, zero for open directions without one; periodic (S, 3) bool; starts (S + 1) int32, the first atom of
        each system and N; types (N,) int32. Pairs are searched where the model runs, and a list serves as many calls
        as `skin` (Angstrom) allows. room: atoms that a GPU's buffers have room for at least.

        Float64 CPU tensors: energy (), atomic_energy (N,), energies (S,) in eV; with forces, virial or atom_virial:
        forces (N, 3) eV/Angstrom, virials (S, 6) and atom_virial (N, 6) in eV, order xx yy zz xy xz yz;
        `outputs`, named ones of the model.
        """
        return self._step(
            lambda: self._model.compute_systems(
                positions, cells, periodic, starts, types, skin, room, forces, virial, atom_virial, _listed(outputs)
            )
        )

    def prepare_systems(
        self, place: int, positions: Tensor, cells: Tensor, periodic: Tensor, starts: Tensor, types: Tensor
    ) -> None:
        """compute_systems of several systems in three calls, so that a GPU has the next batch when it ends one.

        place: 0, 1 or 2, the batch's until finish_systems. This call makes the list, without a skin; another thread may
        make it while other batches are started or finished.
        """
        try:
            self._model.prepare_systems(place, positions, cells, periodic, starts, types)
        except RuntimeError as error:
            raise ClebschError(_message(error)) from None

    def start_systems(self, place: int, *, room: int = 0, forces: bool = True, virial: bool = True) -> None:
        """Hands a prepared batch to the GPU, behind one that it may be computing, and does not wait."""
        self._step(lambda: self._model.start_systems(place, room, forces, virial))

    def finish_systems(self, place: int) -> dict[str, Tensor]:
        """Waits for the results of a started batch: energy, atomic_energy, energies and, as asked, forces, virials."""
        return self._step(lambda: self._model.finish_systems(place))

    def step_of_system(
        self,
        positions: Tensor,
        cells: Tensor,
        periodic: Tensor,
        starts: Tensor,
        types: Tensor,
        *,
        skin: float,
        gradients: bool,
        graded: bool = False,
    ) -> NDArray[np.float64]:
        """compute_systems of one system, for steps of dynamics: fewer objects are made.

        Returns [energy, virial (6), atomic energies (N), with `gradients` forces (3 N), with `graded` grades of
        extrapolation (N)] in one array, units and order as of compute_systems; without gradients the virial is zero.
        """
        with self._turns:
            try:
                numbers = self._model.step_of_system(
                    positions, cells, periodic, starts, types, skin, gradients, graded
                ).numpy()
            except RuntimeError as error:
                self._tell()
                raise ClebschError(_message(error)) from None
            if numbers[0]:
                self._tell()
        return numbers[1:]

    @property
    def feature_covariance(self) -> Tensor:
        """Covariance of the training set's features, (1, d, d) of all elements or (T, d, d); (0) without a grade."""
        return self._model.feature_covariance()

    @property
    def lists(self) -> int:
        """Lists of pairs that compute_systems has made so far."""
        return self.last_run["lists"]

    def _step(self, work: Callable[[], Result]) -> Result:
        with self._turns:
            try:
                return work()
            except RuntimeError as error:
                raise ClebschError(_message(error)) from None
            finally:
                self._tell()

    def _tell(self) -> None:
        for message in self._model.take_messages():
            _log.warning("%s", message)


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Metadata of a model file after every check that needs no run of it."""
    library.require()
    try:
        return json.loads(torch.classes.clebsch.Model.inspect(os.fspath(path)))
    except RuntimeError as error:
        raise ClebschError(_message(error)) from None


def _message(error: RuntimeError) -> str:
    """The library's own sentence, without the frames that torch appends."""
    return str(error).split("\nException raised from", 1)[0].strip()
