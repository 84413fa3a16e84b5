"""What torch and libclebsch say of this machine: ``python -m clebsch.cli.library_probe``, a process of its own.

It writes one JSON object a line as it goes, {"torch": {...}}, {"library": {...}} and so on. A torch or a library that
crashes or hangs thus ends this process and not the doctor, who then knows how far it came.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

#: First characters of a line of ours; libraries may print others.
MARK = "clebsch-doctor "


def _tell(**stage: Any) -> None:
    print(MARK + json.dumps(stage), flush=True)


def main() -> int:
    _tell(begun="importing torch")
    try:
        import torch
    except (ImportError, OSError) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        _tell(torch={"version": "", "problem": "not installed" if missing else str(error)})
        return 0
    _tell(torch={"version": torch.__version__, "cuda": torch.version.cuda or "", "problem": ""})

    from .. import library

    _tell(begun="loading libclebsch")
    state = library.load()
    found = {"path": str(state.path or ""), "built_for": state.built_for, "problem": state.problem}
    model = None
    if state.path is not None:
        model = torch.classes.clebsch.Model
        found["version"] = model.version()
    _tell(library=found)
    if model is not None:
        _tell(begun="opening NVRTC")
        _tell(compiler=json.loads(model.kernel_compiler()))
        folder = model.kernel_cache_folder()
        _tell(cache={"folder": folder, "problem": model.kernel_cache_problem(""), **_content(folder)})
        _tell(begun="loading libclebsch_multilinear")
        _tell(multilinear=_multilinear())
    _tell(begun="starting the GPU")
    _tell(gpus=_gpus(torch, model))
    return 0


def _multilinear() -> dict[str, Any]:
    """Where the library of attention, sampling and the like is, and why it cannot be had."""
    from .. import multilinear_library
    from ..errors import ClebschError

    path = multilinear_library.place()
    try:
        multilinear_library.require()
    except ClebschError as error:
        return {"path": str(path), "there": path.is_file(), "problem": str(error)}
    return {"path": str(path), "there": True, "problem": ""}


def _gpus(torch: Any, model: Any) -> dict[str, Any]:
    """names with their compute capabilities, and why there are none, in the words of the library where it is loaded."""
    found: dict[str, Any] = {"names": [], "capabilities": [], "problem": "", "broken": False}
    with warnings.catch_warnings(record=True) as said:  # torch says here that a driver is too old
        warnings.simplefilter("always")
        try:
            for device in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
                properties = torch.cuda.get_device_properties(device)
                found["names"].append(properties.name)
                found["capabilities"].append(10 * properties.major + properties.minor)
        except (AssertionError, RuntimeError) as error:
            found["problem"], found["broken"] = str(error).split("\n")[0], True
    if model is not None:
        library = json.loads(model.gpus())
        found["problem"] = library["problem"] or found["problem"]
        found["broken"] = library["broken"] or found["broken"]
    if not found["names"] and said:
        found["problem"], found["broken"] = str(said[-1].message).split("\n")[0], True
    return found


def _content(folder: str) -> dict[str, int]:
    """How many kernels are kept in a folder, and their bytes."""
    sizes = []
    try:
        with os.scandir(folder) as entries:
            sizes = [entry.stat().st_size for entry in entries if entry.name.endswith(".cubin")]
    except OSError:
        pass
    return {"files": len(sizes), "bytes": sum(sizes)}


if __name__ == "__main__":
    sys.exit(main())
