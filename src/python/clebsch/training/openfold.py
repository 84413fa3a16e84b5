"""OpenFold models whose triangle multiplicative updates are Clebsch's."""

from __future__ import annotations

import torch
from torch import Tensor

from ..triangle.module import openfold_weights
from .pair_stack import ClebschTriangle, replace_all

_NAMES = (
    "TriangleMultiplicationOutgoing",
    "TriangleMultiplicationIncoming",
    "FusedTriangleMultiplicationOutgoing",
    "FusedTriangleMultiplicationIncoming",
)


class ClebschOpenFoldTriangle(ClebschTriangle):
    """OpenFold's forward pass: what asks for memory to be saved, or for another library's kernel, is not needed."""

    norms = ("layer_norm_in", "layer_norm_out")

    def weights(self) -> dict[str, Tensor | None]:
        return openfold_weights(self)

    def forward(
        self,
        z: Tensor,
        mask: Tensor | None = None,
        inplace_safe: bool = False,
        _add_with_inplace: bool = False,
        **_: object,
    ) -> Tensor:
        update = self.update(z, mask)
        # OpenFold's pass in place returns the sum if it is told so.
        return z.add_(update) if inplace_safe and _add_with_inplace else update


def _is_one(module: torch.nn.Module) -> bool:
    linear = ("linear_ab_p", "linear_ab_g") if hasattr(module, "linear_ab_p") else ("linear_a_p", "linear_b_p")
    return all(hasattr(module, name) for name in (*linear, "linear_g", "linear_z", "layer_norm_in", "layer_norm_out"))


def enable_clebsch(model: torch.nn.Module, precision: str | None = None) -> torch.nn.Module:
    """Swaps every triangle multiplicative update of an OpenFold model for Clebsch's, in place; returns the model.

    Modules are found by their class's name. Parameters stay the same objects under the same names, so state_dict,
    optimiser and results (to rounding) stay as they were. precision: as of triangle_multiplicative_update; a second
    call changes it. Raises ClebschError when libclebsch_multilinear.so is missing, the model has no such module, or
    one has hooks, adapters around its layers or two eps, which the kernels would leave out.
    """
    return replace_all(model, _NAMES, _is_one, ClebschOpenFoldTriangle, precision, "OpenFold")
