"""The TorchScript modules of an Allegro model file; see modules.py for what such code may hold."""

# No `from __future__ import annotations`: TorchScript reads the annotations of these classes as objects.
from typing import Final, List  # noqa: UP035

import torch
from torch import Tensor

from . import modules


class TypeScale(torch.nn.Module):
    """types (M,) -> the factor (M,) of each atom's sum over its edges, fp64."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, types: Tensor) -> Tensor:
        return self.scale.index_select(0, types)


class TypeShift(torch.nn.Module):
    """x (M,) in eV -> atomic energies (M,), fp64."""

    def __init__(self, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift)

    def forward(self, x: Tensor, types: Tensor) -> Tensor:
        return x + self.shift.index_select(0, types)


class Network(torch.nn.Module):
    """The whole network of edges: one op. Radial buffers as in modules.Interaction, but for one first matrix and one
    table for every ordered pair of types."""

    layer: Final[int]
    problem: Final[str]

    def __init__(
        self,
        problem: str,
        cutoffs: Tensor,
        basis: Tensor,
        network: Tensor,
        dense: Tensor,
        paths: Tensor,
        norm: Tensor,
    ) -> None:
        super().__init__()
        self.layer = 0
        self.problem = problem
        self.register_buffer("table", network.new_empty(0))
        self.register_buffer("table_index", torch.empty(0, dtype=torch.int32))
        self.register_buffer("cutoffs", cutoffs)
        self.register_buffer("basis", basis)
        self.register_buffer("network", network)
        self.register_buffer("dense", dense)
        self.register_buffer("paths", paths)
        self.register_buffer("norm", norm)

    def forward(self, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        radial = [self.table, self.table_index, self.cutoffs, self.basis, self.network]
        weights = [self.dense, self.paths, self.norm]
        return modules.ops.allegro_energy(edge_vec, graph, types, radial, weights, self.layer, self.problem)

    @torch.jit.export
    def features(self, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        """The same energies, and behind them what their last matrix multiplies: (M, 1 + d)."""
        radial = [self.table, self.table_index, self.cutoffs, self.basis, self.network]
        weights = [self.dense, self.paths, self.norm]
        return modules.ops.allegro_features(edge_vec, graph, types, radial, weights, self.layer, self.problem)


class Layer(torch.nn.Module):
    """Factor (M,) of each atom -> its scaled energy (M,); zero for rows that are not computed."""

    def __init__(self, interaction: Network) -> None:
        super().__init__()
        self.interaction = interaction

    def forward(self, x: Tensor, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        return x * self.interaction(edge_vec, types, graph)

    @torch.jit.export
    def features(self, x: Tensor, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        """Scaled energies and features, (M, 1 + d): an energy is its atom's features times one vector."""
        return x.unsqueeze(1) * self.interaction.features(edge_vec, types, graph)
