"""What `clebsch doctor` says of torch, libclebsch, the GPU and the compiler of its kernels."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import library
from . import library_probe
from .child import Ended, run_child
from .finding import FAIL, NOTE, OK, Finding

#: Importing torch from a file system that many share may take a minute.
_PATIENCE = 180.0
_LEAST_CAPABILITY = 75
_DRIVER = Path("/proc/driver/nvidia/version")
_NO_LIBRARY = "build it with scripts/quickstart (docs/install.md), or set CLEBSCH_LIBRARY to its path"


def look() -> Iterator[Finding]:
    """The findings, in order."""
    environment = dict(os.environ)
    # The child has to find this package where it is a checkout too.
    package = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH", "")]))
    ended = run_child([sys.executable, "-m", library_probe.__name__], _PATIENCE, environment=environment)
    yield from explain(ended)


def explain(ended: Ended) -> Iterator[Finding]:
    """The findings of what library_probe wrote."""
    stages: dict[str, Any] = {}
    for line in ended.output.splitlines():
        if line.startswith(library_probe.MARK):
            stages |= json.loads(line.removeprefix(library_probe.MARK))
    if "torch" in stages:
        yield _torch(stages["torch"])
    if "library" in stages:
        yield _library(stages["library"], stages["torch"])
    gpus = stages.get("gpus", {"names": []})
    if "compiler" in stages:
        yield _compiler(stages["compiler"], bool(gpus["names"]))
        yield _cache(stages["cache"])
    if "multilinear" in stages:
        yield _multilinear(stages["multilinear"])
    if "gpus" in stages:
        yield _gpus(gpus, stages["torch"])
    if ended.problem:
        last = ended.output.strip().splitlines()[-1:] or [""]
        said = "" if last[0].startswith(library_probe.MARK) else f": {last[0]}"
        step = stages.get("begun", "starting Python")
        yield Finding(
            step, FAIL, f"{ended.problem}{said}", "install torch anew in an environment of its own, then Clebsch"
        )


def _wanted_torch() -> str:
    """The release that the libclebsch here is for; '' where none is found."""
    path = next((path for path in library.candidates() if path.is_file()), None)
    return library.built_for(path) if path else ""


def _torch(torch: dict[str, Any]) -> Finding:
    if torch["problem"]:
        wanted = _wanted_torch()
        return Finding("torch", FAIL, torch["problem"], "pip install torch" + (f"=={wanted}" if wanted else ""))
    build = f"for CUDA {torch['cuda']}" if torch["cuda"] else "for CPUs alone"
    return Finding("torch", OK, f"{torch['version']}, built {build}")


def _library(found: dict[str, Any], torch: dict[str, Any]) -> Finding:
    if found["path"]:
        return Finding("libclebsch", OK, f"{found['version']} for torch {found['built_for']}, {found['path']}")
    candidates = library.candidates()
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        folders = ", ".join(str(candidate.parent) for candidate in candidates)
        return Finding("libclebsch", FAIL, f"not found in {folders}", _NO_LIBRARY)
    if found["built_for"]:
        wanted = found["built_for"]
        return Finding(
            "libclebsch", FAIL, f"{path} is for torch {wanted}, this Python has {torch['version']}",
            f"pip install torch=={wanted}, or build Clebsch for this torch",
        )  # fmt: skip
    return Finding("libclebsch", FAIL, found["problem"], _NO_LIBRARY)


def _compiler(compiler: dict[str, Any], gpu: bool) -> Finding:
    if not compiler["problem"]:
        return Finding("NVRTC", OK, compiler["version"])
    status = FAIL if gpu else NOTE
    return Finding(
        "NVRTC", status, compiler["problem"], "pip install nvidia-cuda-nvrtc, or set CLEBSCH_NVRTC to its path"
    )


def _cache(cache: dict[str, Any]) -> Finding:
    if cache["problem"]:
        return Finding(
            "kernel cache", NOTE, f"{cache['problem']}; every run compiles its kernels",
            "set CLEBSCH_CACHE_DIR to a folder that belongs to you",
        )  # fmt: skip
    return Finding("kernel cache", OK, f"{cache['folder']}, {cache['files']} kernels, {cache['bytes'] / 1e6:.1f} MB")


def _multilinear(found: dict[str, Any]) -> Finding:
    if not found["problem"]:
        return Finding("multilinear", OK, found["path"])
    if not found["there"]:
        return Finding(
            "multilinear", NOTE, f"no {found['path']}; attention, sampling and the like need it, models do not",
            "install the wheel, or build with cmake -DCLEBSCH_MULTILINEAR=ON (docs/install.md)",
        )  # fmt: skip
    return Finding("multilinear", FAIL, found["problem"], "build it again together with libclebsch, for this torch")


def _gpus(gpus: dict[str, Any], torch: dict[str, Any]) -> Finding:
    if gpus["names"] and not gpus["problem"]:
        pairs = list(zip(gpus["names"], gpus["capabilities"], strict=True))
        text = ", ".join(f"{name} ({capability // 10}.{capability % 10})" for name, capability in pairs)
        if all(capability >= _LEAST_CAPABILITY for _, capability in pairs):
            return Finding("GPU", OK, text)
        return Finding("GPU", NOTE, text, "use GPUs of compute capability 7.5 or later, or device cpu")
    if gpus["broken"]:
        return Finding("GPU", FAIL, gpus["problem"], "see what nvidia-smi says, or run with device cpu")
    if not torch["cuda"] and _DRIVER.exists():
        return Finding(
            "GPU", NOTE, "there is an NVIDIA driver, but this torch is built for CPUs alone",
            f"install the CUDA build of torch {library.torch_release(torch['version'])}",
        )  # fmt: skip
    reason = "no NVIDIA driver" if not _DRIVER.exists() else gpus["problem"] or "none that torch can use"
    return Finding("GPU", NOTE, f"{reason}; models run on the CPU")
