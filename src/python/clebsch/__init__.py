"""Clebsch: NequIP models in LAMMPS, ASE and C++ from one TorchScript file.

``import clebsch`` loads libclebsch, which registers ``torch.ops.clebsch.*``. It never fails: where the library is
missing or built for another torch, export and ``clebsch info`` still work, and running a model says what is needed
(:func:`clebsch.library.require`).
"""

from __future__ import annotations

from .errors import ClebschError, ExportRefused
from .library import load as _load
from .tensor_product_conv import TensorProductConv, edge_graph
from .version import __version__

_load()

__all__ = ["ClebschError", "ExportRefused", "TensorProductConv", "__version__", "edge_graph"]
