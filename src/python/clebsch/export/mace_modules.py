"""The TorchScript modules of a MACE model file; same rules as modules.py.

Every layer but the last adds a linear readout to the energy. Features therefore carry one more even scalar behind the
irreps, the energy so far: it travels through the linear maps that are there anyway, and no layer needs an output of its
own.
"""

# No `from __future__ import annotations`: TorchScript reads the annotations of these classes as objects.
from typing import Final, List  # noqa: UP035

import torch
from torch import Tensor

from .modules import Dense, Interaction, RadialFunctions

ops = torch.ops.clebsch


class DensityInteraction(torch.nn.Module):
    """Messages, and what they are to be multiplied by (M, 1): one over alpha + beta * density, where density is the
    sum of a radial function over the neighbours. One op for both: they share the edges' geometry."""

    layer: Final[int]
    problem: Final[str]
    density_problem: Final[str]
    alpha: Final[float]
    beta: Final[float]

    def __init__(
        self,
        layer: int,
        message: tuple[str, RadialFunctions],
        density: tuple[str, RadialFunctions],
        alpha: float,
        beta: float,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.problem, self.message = message
        self.density_problem, self.density = density
        self.alpha = alpha
        self.beta = beta

    def forward(self, x: Tensor, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> List[Tensor]:  # noqa: UP006
        sums = ops.interaction_density(
            x, edge_vec, graph, types, self.message(), self.density(), self.layer, self.problem, self.density_problem
        )
        return [sums[0], torch.reciprocal(torch.add(torch.mul(sums[1], self.beta), self.alpha))]


class GatedMessage(torch.nn.Module):
    """linear(gate(message + residual(x)))."""

    layer: Final[int]
    residual_problem: Final[str]
    gate_problem: Final[str]
    linear_problem: Final[str]

    def __init__(self, layer: int, residual: tuple[str, Tensor], gate: str, linear: tuple[str, Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.residual_problem, weight = residual
        self.register_buffer("residual", weight)
        self.gate_problem = gate
        self.linear_problem, weight = linear
        self.register_buffer("linear", weight)

    def forward(self, h: Tensor, x: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        h = h + ops.linear(x, self.residual, graph, self.layer, self.residual_problem)
        h = ops.gate(h, graph, self.layer, self.gate_problem)
        return ops.linear(h, self.linear, graph, self.layer, self.linear_problem)


class ProductLayer(torch.nn.Module):
    """One MACE layer, features (M, d_in) -> (M, d_out): convolution, symmetric contraction, linear maps. Rows at or
    beyond layer_rows[layer] are zero."""

    layer: Final[int]
    by_type: Final[bool]
    typed_out: Final[bool]
    has_density: Final[bool]
    has_gate: Final[bool]
    has_self_connection: Final[bool]
    typed_self_connection: Final[bool]
    linear_in_problem: Final[str]
    linear_out_problem: Final[str]
    basis_problem: Final[str]
    product_problem: Final[str]
    self_connection_problem: Final[str]

    def __init__(
        self,
        layer: int,
        interaction: Interaction | DensityInteraction,
        linear_in: tuple[str, Tensor] | Tensor,
        linear_out: tuple[str, Tensor],
        basis: tuple[str, Tensor],
        product: tuple[str, Tensor],
        self_connection: tuple[str, Tensor] | None,
        gated: GatedMessage | None,
    ) -> None:
        """linear_in: the map of x, or what it makes of x of every type (T, d) where x depends on the type alone."""
        super().__init__()
        self.layer = layer
        self.interaction = interaction
        self.by_type = isinstance(linear_in, Tensor)
        self.linear_in_problem, weight = ("", linear_in) if isinstance(linear_in, Tensor) else linear_in
        self.register_buffer("linear_in", weight)
        self.linear_out_problem, weight = linear_out
        self.register_buffer("linear_out", weight)
        self.typed_out = weight.dim() == 2
        self.basis_problem, weight = basis
        self.register_buffer("coefficients", weight)
        self.product_problem, weight = product
        self.register_buffer("product", weight)
        self.has_self_connection = self_connection is not None
        self.typed_self_connection = False
        self.self_connection_problem = ""
        if self_connection is not None:
            self.self_connection_problem, weight = self_connection
            self.register_buffer("self_connection", weight)
            self.typed_self_connection = weight.dim() == 2
        self.has_density = isinstance(interaction, DensityInteraction)
        self.has_gate = gated is not None
        if gated is not None:
            self.gated = gated

    def forward(self, x: Tensor, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        if self.by_type:
            h = self.linear_in.index_select(0, types)
        else:
            # Layer -1 (all rows): senders are ghosts too, whether an earlier layer or communication filled them.
            h = ops.linear(x, self.linear_in, graph, -1, self.linear_in_problem)
        if self.has_density:
            sums = self.interaction(h, edge_vec, types, graph)
            h = sums[0]
        else:
            h = self.interaction(h, edge_vec, types, graph)
        if self.typed_out:
            h = ops.species_linear(h, self.linear_out, types, graph, self.layer, self.linear_out_problem)
        else:
            h = ops.linear(h, self.linear_out, graph, self.layer, self.linear_out_problem)
        if self.has_density:
            h = torch.mul(h, sums[1])
        if self.has_gate:
            h = self.gated(h, x, graph)
        h = ops.symmetric_contraction(h, self.coefficients, types, graph, self.layer, self.basis_problem)
        h = ops.linear(h, self.product, graph, self.layer, self.product_problem)
        if self.has_self_connection:
            if self.typed_self_connection:
                h = h + ops.species_linear(
                    x, self.self_connection, types, graph, self.layer, self.self_connection_problem
                )
            else:
                h = h + ops.linear(x, self.self_connection, graph, self.layer, self.self_connection_problem)
        return h


class ProductReadout(torch.nn.Module):
    """Features (M, width) -> atomic energies (M,) in eV, fp64: a linear part, which picks the energy so far, and, if
    the last readout has one, a hidden layer with silu."""

    has_hidden: Final[bool]

    def __init__(self, direct: Tensor, hidden: tuple[Tensor, Tensor] | None, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("direct", direct)
        self.has_hidden = hidden is not None
        if hidden is not None:
            self.hidden = Dense(hidden[0])
            self.register_buffer("last", hidden[1])
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, x: Tensor, types: Tensor) -> Tensor:
        energy = ops.dense(x, self.direct)
        if self.has_hidden:
            energy = energy + ops.dense(torch.ops.aten.silu(self.hidden(x)), self.last)
        return self.shift.index_select(0, types) + self.scale.index_select(0, types) * energy
