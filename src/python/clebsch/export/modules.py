"""The TorchScript modules of a model file. Their code is what the file's allow-list admits: clebsch ops, a short list
of aten ops, no branches at run time, no loops, no dtype or device literals.

Buffers only, no parameters: the weights of a model file never require gradients.
"""

# No `from __future__ import annotations`: TorchScript reads the annotations of these classes as objects.
from typing import Final, List  # noqa: UP035

import torch
from torch import Tensor

ops = torch.ops.clebsch


class Embedding(torch.nn.Module):
    """types (M,) -> features of the first convolution (M, channels)."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, types: Tensor) -> Tensor:
        return self.weight.index_select(0, types)


class RadialFunctions(torch.nn.Module):
    """The ``radial`` list of an op (src/torch/ops.schema).

    ``table`` and ``table_index`` are empty in the file; the runtime fills them, or leaves them empty for the
    exact path.
    """

    def __init__(self, cutoffs: Tensor, basis: Tensor, network: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", network.new_empty(0))
        self.register_buffer("table_index", torch.empty(0, dtype=torch.int32))
        self.register_buffer("cutoffs", cutoffs)
        self.register_buffer("basis", basis)
        self.register_buffer("network", network)

    def forward(self) -> List[Tensor]:  # noqa: UP006
        return [self.table, self.table_index, self.cutoffs, self.basis, self.network]


class Interaction(torch.nn.Module):
    """Radial functions, harmonics, tensor product and sum over neighbours: one op. Buffers as of RadialFunctions."""

    layer: Final[int]
    problem: Final[str]

    def __init__(self, layer: int, problem: str, cutoffs: Tensor, basis: Tensor, network: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.problem = problem
        self.register_buffer("table", network.new_empty(0))
        self.register_buffer("table_index", torch.empty(0, dtype=torch.int32))
        self.register_buffer("cutoffs", cutoffs)
        self.register_buffer("basis", basis)
        self.register_buffer("network", network)

    def forward(self, x: Tensor, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        radial = [self.table, self.table_index, self.cutoffs, self.basis, self.network]
        return ops.interaction(x, edge_vec, graph, types, radial, self.layer, self.problem)


class Layer(torch.nn.Module):
    """One message passing layer, features (M, d_in) -> (M, d_out); rows at or beyond layer_rows[layer] are zero.

    The ``Final`` flags are resolved when the module is scripted: the file holds straight-line code.
    """

    layer: Final[int]
    has_linear_in: Final[bool]
    has_sender_norm: Final[bool]
    has_self_connection: Final[bool]
    linear_in_problem: Final[str]
    linear_out_problem: Final[str]
    self_connection_problem: Final[str]
    gate_problem: Final[str]

    def __init__(
        self,
        layer: int,
        interaction: Interaction,
        linear_out: tuple[str, Tensor],
        gate_problem: str,
        linear_in: tuple[str, Tensor] | None,
        sender_norm: Tensor | None,
        self_connection: tuple[str, Tensor] | None,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.interaction = interaction
        self.linear_out_problem, weight = linear_out
        self.register_buffer("linear_out", weight)
        self.gate_problem = gate_problem
        self.has_linear_in = linear_in is not None
        self.linear_in_problem = ""
        if linear_in is not None:
            self.linear_in_problem, weight = linear_in
            self.register_buffer("linear_in", weight)
        self.has_sender_norm = sender_norm is not None
        if sender_norm is not None:
            self.register_buffer("sender_norm", sender_norm)
        self.has_self_connection = self_connection is not None
        self.self_connection_problem = ""
        if self_connection is not None:
            self.self_connection_problem, weight = self_connection
            self.register_buffer("self_connection", weight)

    def forward(self, x: Tensor, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        h = x
        # Layer -1 (all rows): senders are ghosts too, whether an earlier layer or communication filled them.
        if self.has_linear_in:
            h = ops.linear(h, self.linear_in, graph, -1, self.linear_in_problem)
        if self.has_sender_norm:
            h = h * self.sender_norm.index_select(0, types)
        h = self.interaction(h, edge_vec, types, graph)
        h = ops.linear(h, self.linear_out, graph, self.layer, self.linear_out_problem)
        if self.has_self_connection:
            h = h + ops.species_linear(x, self.self_connection, types, graph, self.layer, self.self_connection_problem)
        return ops.gate(h, graph, self.layer, self.gate_problem)


class Dense(torch.nn.Module):
    """A bias-free layer of the readout: (M, in) -> (M, out)."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return ops.dense(x, self.weight)


class Readout(torch.nn.Module):
    """Features (M, channels) -> atomic energies (M,) in eV, fp64: scale and shift are fp64 and promote the product."""

    def __init__(self, hidden: list[Tensor], last: Tensor, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.hidden = torch.nn.ModuleList([Dense(w) for w in hidden])
        self.register_buffer("last", last)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, x: Tensor, types: Tensor) -> Tensor:
        # The list of modules is unrolled when scripted.
        for dense in self.hidden:
            x = torch.ops.aten.silu(dense(x))
        energy = ops.dense(x, self.last)
        return self.shift.index_select(0, types) + self.scale.index_select(0, types) * energy


class Grade(torch.nn.Module):
    """Grades of extrapolation (M,), fp64, of the last layer's features; the covariance is for `clebsch select`."""

    grade: Final[str]
    first: Final[int]

    def __init__(self, grade: str, first: int, transform: Tensor, counts: Tensor, covariance: Tensor) -> None:
        super().__init__()
        self.grade = grade
        self.first = first
        self.register_buffer("transform", transform)
        self.register_buffer("counts", counts)
        self.register_buffer("covariance", covariance)

    def forward(self, x: Tensor, types: Tensor) -> Tensor:
        return ops.extrapolation(x, types, self.transform, self.counts, self.first, self.grade)


class PairRepulsion(torch.nn.Module):
    """Pair energies (M,) in eV, fp64; zero for rows that are not computed."""

    problem: Final[str]

    def __init__(self, problem: str, cutoffs: Tensor, charges: Tensor) -> None:
        super().__init__()
        self.problem = problem
        self.register_buffer("cutoffs", cutoffs)
        self.register_buffer("charges", charges)

    def forward(self, edge_vec: Tensor, types: Tensor, graph: List[Tensor]) -> Tensor:  # noqa: UP006
        return ops.pair_repulsion(edge_vec, graph, types, [self.cutoffs, self.charges], self.problem)
