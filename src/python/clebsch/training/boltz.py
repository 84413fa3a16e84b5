"""Boltz models whose triangle multiplicative updates are Clebsch's."""

from __future__ import annotations

import torch
from torch import Tensor

from ..triangle.module import boltz_weights
from .pair_stack import ClebschTriangle, replace_all

_NAMES = ("TriangleMultiplicationOutgoing", "TriangleMultiplicationIncoming")


class ClebschBoltzTriangle(ClebschTriangle):
    """Boltz's forward pass; use_kernels, which asks for another library's, changes nothing."""

    norms = ("norm_in", "norm_out")

    def weights(self) -> dict[str, Tensor | None]:
        return boltz_weights(self)

    def forward(self, x: Tensor, mask: Tensor | None = None, use_kernels: bool = False, **_: object) -> Tensor:
        return self.update(x, mask)


def _is_one(module: torch.nn.Module) -> bool:
    return all(hasattr(module, name) for name in ("norm_in", "p_in", "g_in", "norm_out", "p_out", "g_out"))


def enable_clebsch(model: torch.nn.Module, precision: str | None = None) -> torch.nn.Module:
    """Swaps every triangle multiplicative update of a Boltz model for Clebsch's, in place; returns the model.

    Modules are found by their class's name. Parameters stay the same objects under the same names, so state_dict,
    optimiser and results (to rounding) stay as they were. precision: as of triangle_multiplicative_update; a second
    call changes it. Raises ClebschError when libclebsch_multilinear.so is missing, the model has no such module, or
    one has hooks, adapters around its layers or two eps, which the kernels would leave out.
    """
    return replace_all(model, _NAMES, _is_one, ClebschBoltzTriangle, precision, "Boltz")
