"""clebsch compile: fills the cache of compiled GPU kernels without a GPU."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import library
from .errors import ClebschError
from .progress import Progress, silent
from .runtime import Model


def standard_folder() -> str:
    """The folder that runs look in: CLEBSCH_CACHE_DIR, else XDG_CACHE_HOME/clebsch, else HOME/.cache/clebsch."""
    library.require()
    return torch.classes.clebsch.Model.kernel_cache_folder()


def architectures() -> list[int]:
    """Compute capabilities, as 10 * major + minor, whose limits libclebsch knows."""
    library.require()
    return list(torch.classes.clebsch.Model.kernel_architectures())


def parse_architectures(text: str) -> list[int]:
    """'80,90,sm_100' -> [80, 90, 100]. Raises ClebschError for one that is not known."""
    known = architectures()
    result = []
    for item in text.split(","):
        number = item.strip().removeprefix("sm_").removesuffix("a")
        if not number.isdecimal() or int(number) not in known:
            names = ", ".join(map(str, known)) or "none: this libclebsch was built without the GPU backend"
            raise ClebschError(f"--arch: expected architectures out of {names}, got {item.strip()!r}")
        if int(number) not in result:
            result.append(int(number))
    return result


def describe(kernel: dict[str, Any]) -> str:
    """One line: architecture, kernel, what it works on, resources."""
    parts = dict(part.split("=", 1) for part in kernel["problem"].split(" ")[1:] if "=" in part)
    operands = " x ".join(parts[key] for key in ("in1", "in2", "in", "scalars", "gated") if parts.get(key))
    line = f"sm_{kernel['arch']}  {kernel['kernel']}" + (f"  [{operands}]" if operands else "")
    if kernel["error"]:
        return f"{line}  FAILED"
    if not kernel["files"]:
        return line
    spilled = f"{kernel['spill_bytes']} B spilled" if kernel["spill_bytes"] else "no spills"
    how = "in the cache" if kernel["cached"] else f"{kernel['seconds']:.2f} s"
    return f"{line}  {kernel['registers']} registers, {spilled}, {kernel['shared_bytes']} B shared, {how}"


@dataclass
class Compiled:
    """What compile_file did: one entry a kernel and architecture (docs/developers/map.md, compile_kernels)."""

    folder: str
    kernels: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def errors(self) -> list[str]:
        return [f"sm_{k['arch']} {k['kernel']} of '{k['problem']}': {k['error']}" for k in self.kernels if k["error"]]

    def summary(self) -> str:
        failed = len(self.errors)
        found = sum(k["cached"] for k in self.kernels)
        spilling = sum(k["spill_bytes"] > 0 for k in self.kernels)
        text = (
            f"{len(self.kernels)} kernels in {self.seconds:.1f} s: {len(self.kernels) - found - failed} compiled, "
            f"{found} found in the cache {self.folder}"
        )
        if spilling:
            text += f", {spilling} spill registers"
        return text + (f", {failed} FAILED" if failed else "")


def compile_file(
    path: str | os.PathLike[str],
    archs: Sequence[int],
    *,
    cache: str | None = None,
    dtype: str | None = None,
    radial: str = "table",
    deterministic: bool = True,
    threads: int = 0,
    dry_run: bool = False,
    report: Callable[[str], None] = lambda line: None,
    progress: Progress = silent,
) -> Compiled:
    """Compiles every GPU kernel that a run of the model asks for, in parallel threads (0: one a core).

    No GPU is needed, only libnvrtc. Names, sources and cache keys are those of a run with the same `dtype` (None: the
    model's own), `radial` and `deterministic`. `cache` None: the standard folder. `report` gets one line a kernel, as
    an architecture is done; `progress` is told of every kernel. Errors of single kernels are in the result. Raises
    ClebschError where the model or the cache folder cannot be used.
    """
    library.require()
    folder = standard_folder() if cache is None else os.path.abspath(cache)
    if not dry_run:
        problem = torch.classes.clebsch.Model.kernel_cache_problem(folder)
        if problem:
            raise ClebschError(f"compiled kernels cannot be kept: {problem}")
    # Kernels are listed for any types in use: with one of them little is built.
    names = torch.classes.clebsch.Model.inspect(os.fspath(path)) if os.path.isfile(path) else None
    in_use = json.loads(names)["type_names"][:1] if names else []
    model = Model(path, dtype=dtype, radial=radial, deterministic=deterministic, threads=1, types_in_use=in_use)
    result = Compiled(folder)
    start = time.monotonic()
    for arch in archs:
        kernels = model.compile_kernels(
            arch, cache_folder=folder, list_only=dry_run, threads=threads, progress=progress
        )
        for kernel in kernels:
            report(describe(kernel))
        result.kernels += kernels
        if not dry_run and any(kernel["stored"] < kernel["files"] for kernel in kernels):
            refusal = torch.classes.clebsch.Model.kernel_cache_refusal(folder)
            raise ClebschError(f"compiled kernels cannot be kept: {refusal}")
    result.seconds = time.monotonic() - start
    return result
