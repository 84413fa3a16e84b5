"""The modules of MACE's density layers before clebsch::interaction_density: a second interaction, of one channel, with
features of ones. Files with this code stay readable; tests make such files with it."""

# No `from __future__ import annotations`: TorchScript reads the annotations of these classes as objects.
from typing import Final, List  # noqa: UP035

import torch
from torch import Tensor

from clebsch.export import mace_modules, modules

ops = torch.ops.clebsch


class Density(torch.nn.Module):
    alpha: Final[float]
    beta: Final[float]

    def __init__(self, radial_sum: modules.Interaction, types: int, alpha: float, beta: float) -> None:
        super().__init__()
        self.sum = radial_sum
        self.alpha = alpha
        self.beta = beta
        self.register_buffer("ones", torch.ones(types, 1, dtype=radial_sum.network.dtype))

    def forward(self, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        total = self.sum(self.ones.index_select(0, types), edge_vec, types, graph)
        return torch.reciprocal(torch.add(torch.mul(total, self.beta), self.alpha))


class Interaction(torch.nn.Module):
    """In the place of mace_modules.DensityInteraction, made of its parts."""

    def __init__(self, new: mace_modules.DensityInteraction) -> None:
        super().__init__()

        def single(problem: str, radial: modules.RadialFunctions) -> modules.Interaction:
            return modules.Interaction(new.layer, problem, radial.cutoffs, radial.basis, radial.network)

        self.message = single(new.problem, new.message)
        summed = single(new.density_problem, new.density)
        self.density = Density(summed, len(new.message.cutoffs), new.alpha, new.beta)

    def forward(self, x: Tensor, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> List[Tensor]:  # noqa: UP006
        return [self.message(x, edge_vec, types, graph), self.density(edge_vec, types, graph)]
