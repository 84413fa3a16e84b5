"""Writes tests/unit/data/symmetric_problems.txt: the symmetric contractions of MACE's usual sizes, a name and a problem
text a line, made from mace-torch's own U tensors. Run by hand: PYTHONPATH=.deps/mace:src/python python make_...py"""

from __future__ import annotations

from pathlib import Path

import mace  # noqa: F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
import torch
from e3nn import o3
from mace.tools.cg import U_matrix_real

from clebsch.product_basis import ProductBasis

# name: channels, max_ell, output degrees, correlation
CASES = {
    "mace-S": (128, 3, 0, 3),
    "mace-M": (128, 3, 1, 3),
    "mace-L": (128, 3, 2, 3),
    "test-uneven": (37, 2, 1, 3),
    "test-correlation-4": (8, 2, 1, 4),
    "test-linear": (3, 1, 1, 1),
}


def irreps(channels: int, lmax: int) -> str:
    return "+".join(f"{channels}x{degree}{'eo'[degree % 2]}" for degree in range(lmax + 1))


def main() -> None:
    torch.set_default_dtype(torch.float64)
    lines = []
    for name, (channels, max_ell, lmax, correlation) in CASES.items():
        coupling = o3.Irreps(irreps(1, max_ell))
        tensors = [
            [U_matrix_real(coupling, o3.Irreps(str(ir)), order)[-1] for order in range(1, correlation + 1)]
            for _, ir in o3.Irreps(irreps(1, lmax))
        ]
        basis = ProductBasis(irreps(channels, max_ell), irreps(channels, lmax), tensors)
        lines.append(f"{name} {basis.problem}\n")
    path = Path(__file__).resolve().parents[1] / "unit" / "data" / "symmetric_problems.txt"
    path.write_text("".join(lines))


if __name__ == "__main__":
    main()
