"""Clebsch: NequIP, MACE and Allegro models in LAMMPS, ASE and C++ from one TorchScript file.

``import clebsch`` takes milliseconds: it imports neither torch nor libclebsch, so that the command line and LAMMPS's
search for plugins do not wait for them. A name below brings its module when it is first used, and whatever uses the
ops ``torch.ops.clebsch.*`` loads libclebsch first (:func:`clebsch.library.load`, for code that calls them by itself).
Loading never fails: where the library is missing or built for another torch, export and ``clebsch info`` still work,
and running a model says what is needed (:func:`clebsch.library.require`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import library
    from .batch import Evaluation, Evaluator, evaluate
    from .errors import ClebschError, ExportRefused
    from .places import cmake_prefix, model_path
    from .tensor_product_conv import TensorProductConv, edge_graph
    from .version import __version__

__all__ = [
    "ClebschError",
    "Evaluation",
    "Evaluator",
    "ExportRefused",
    "TensorProductConv",
    "__version__",
    "cmake_prefix",
    "edge_graph",
    "evaluate",
    "library",
    "model_path",
]

_MODULES = {
    "ClebschError": "errors",
    "Evaluation": "batch",
    "Evaluator": "batch",
    "evaluate": "batch",
    "ExportRefused": "errors",
    "TensorProductConv": "tensor_product_conv",
    "cmake_prefix": "places",
    "edge_graph": "tensor_product_conv",
    "model_path": "places",
    "__version__": "version",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for (PEP 562); called once a name, which is then a global."""
    if name == "library":
        return import_module(".library", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("." + _MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
