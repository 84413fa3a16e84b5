"""The sign of real Wigner 3j tensors, which differs between releases of e3nn.

A coupling is fixed by its symmetry up to a sign. Clebsch's are those of src/core/math/coupling.cpp, which e3nn 0.6 has
too; e3nn 0.4.4 permutes tables of sorted degrees and has the other sign when l1 + l2 + l3 is odd and two degrees are
equal. Whoever takes over a product of e3nn compares the tensor that it computes with.

What is compared with is coupling_signs.txt: one entry of each coupling, written by the library's own code. Exports run
in the upstream package's environment too, where libclebsch cannot be loaded.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_TABLE = Path(__file__).with_name("coupling_signs.txt")


def sign_of(tensor: Tensor) -> float:
    """+1 or -1: `tensor` (2 l1 + 1, 2 l2 + 1, 2 l3 + 1) is this times the coupling that Clebsch uses.

    Raises ValueError when it is neither: not of norm 1, or with another number at the place of the table's entry.
    """
    degrees = tuple((n - 1) // 2 for n in tensor.shape)
    entry = _entries().get(degrees)
    if entry is None:
        raise ValueError(f"expected the Wigner 3j tensor of degrees that couple, up to 7, got degrees {degrees}")
    place, value = entry
    own, norm = float(tensor[place]), float(tensor.double().norm())
    if abs(abs(own) - abs(value)) > 1e-6 or abs(norm - 1.0) > 1e-6:
        raise ValueError(
            f"expected the Wigner 3j tensor of degrees {degrees} or its negative, with norm 1 and {value:.7g} at "
            f"{place}, got norm {norm:.7g} and {own:.7g}"
        )
    return 1.0 if own * value > 0 else -1.0


def of_product(product: torch.nn.Module, l1: int, l2: int, l3: int) -> float:
    """sign_of the coupling that an ``e3nn.o3.TensorProduct`` computes with."""
    return sign_of(_tensor_of(product, l1, l2, l3))


def _tensor_of(product: torch.nn.Module, l1: int, l2: int, l3: int) -> Tensor:
    """A buffer of the product's compiled code, which travels with a saved model, or what this e3nn would make."""
    for name, buffer in product.named_buffers():
        if name.rsplit(".", 1)[-1] == f"_w3j_{l1}_{l2}_{l3}" and not buffer.is_meta:
            return buffer.detach().to("cpu", torch.float64)
    from e3nn import o3

    return o3.wigner_3j(l1, l2, l3).to("cpu", torch.float64)


@cache
def _entries() -> dict[tuple[int, ...], tuple[tuple[int, ...], float]]:
    """Degrees (l1, l2, l3) to the place (m1, m2, m3), counted from 0, and the value of the coupling's largest entry."""
    lines = (line.split() for line in _TABLE.read_text().splitlines() if not line.startswith("#"))
    return {tuple(map(int, line[:3])): (tuple(map(int, line[3:6])), float(line[6])) for line in lines}
