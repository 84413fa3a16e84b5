"""Equivariant convolution for PyTorch code: gather, tensor product and sum in one differentiable op.

.. code-block:: python

    conv = clebsch.TensorProductConv("64x0e+64x1o", "1x0e+1x1o", "64x0e+64x1o", instructions)
    out = conv(x, Y, W, senders, receivers)  # what e3nn's TensorProduct and a scatter give, without edge messages
"""

# No "from __future__ import annotations": TorchScript reads the types of attributes at run time.
from collections.abc import Sequence
from typing import Any, List, Optional, Tuple  # noqa: UP035 - TorchScript reads these names

import torch
from torch import Tensor

from . import coupling_sign, library
from .conv_problem import normalised_paths, problem_text, weight_count
from .errors import ClebschError
from .irreps import Irreps

_LAYOUTS = ("mul_ir", "ir_mul")

library.load()  # here and not in __init__, which a module that was pickled does not go through


class TensorProductConv(torch.nn.Module):
    """``out[i] = sum over edges e with receivers[e] = i of  TP(x[senders[e]], Y[e]; W[e])``.

    irreps_in1, irreps_in2, irreps_out: texts such as ``"64x0e+64x1o"`` or e3nn ``Irreps``.
    instructions: e3nn's ``(i_1, i_2, i_out, mode, has_weight[, path_weight])`` with mode ``uvu`` or ``uvw`` and
        multiplicity 1 of the second operand.
    shared_weights: W has shape (w,), the same for every edge, instead of (E, w).
    deterministic: sums in a fixed order, the same bits in every run; otherwise atomics may be used on a GPU.
    layout: ``"mul_ir"``, e3nn's ``[channel][component]`` within a block, or ``"ir_mul"``, channel fastest (adjacent
        blocks of one irrep share one array ``[component][channel]``), which is the kernels' own: nothing is transposed.
    irrep_normalization, path_normalization, in1_var, in2_var, out_var: as in ``e3nn.o3.TensorProduct``.

    Weights are ordered as in e3nn: path by path, ``[u]`` (uvu) or ``[u][w]`` (uvw). Differentiable to any order by x,
    Y and W. Works in ``torch.compile``, ``torch.export`` and ``torch.jit.script``. e3nn need not be installed; signs of
    couplings are those of e3nn 0.5 and later, an older product is taken over by :meth:`from_e3nn`.

    Raises ClebschError for instructions that are not supported.
    """

    # (channels, components) of the blocks to transpose.
    _blocks_in1: List[Tuple[int, int]]  # noqa: UP006
    _blocks_in2: List[Tuple[int, int]]  # noqa: UP006
    _blocks_out: List[Tuple[int, int]]  # noqa: UP006

    def __init__(
        self,
        irreps_in1: Any,
        irreps_in2: Any,
        irreps_out: Any,
        instructions: Sequence[Sequence[Any]],
        shared_weights: bool = False,
        deterministic: bool = True,
        *,
        layout: str = "mul_ir",
        irrep_normalization: str = "component",
        path_normalization: str = "element",
        in1_var: Sequence[float] | None = None,
        in2_var: Sequence[float] | None = None,
        out_var: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if layout not in _LAYOUTS:
            raise ClebschError(f"layout: expected mul_ir or ir_mul, got {layout!r}")
        in1, in2, out = (Irreps.parse(str(irreps)) for irreps in (irreps_in1, irreps_in2, irreps_out))
        paths = normalised_paths(
            in1, in2, out, instructions, irrep_normalization, path_normalization, in1_var, in2_var, out_var
        )
        self.irreps_in1, self.irreps_in2, self.irreps_out = str(in1), str(in2), str(out)
        self.shared_weights = bool(shared_weights)
        self.deterministic = bool(deterministic)
        self.layout = layout
        self.weight_numel = weight_count(in1, out, paths)
        self.problem = problem_text(in1, in2, out, paths)
        self.in1_dim, self.in2_dim, self.out_dim = in1.dim, in2.dim, out.dim
        self._blocks_in1 = _transposed_blocks(in1, layout)
        self._blocks_in2 = _transposed_blocks(in2, layout)
        self._blocks_out = _swapped(_transposed_blocks(out, layout))

    @classmethod
    def from_e3nn(cls, tensor_product: Any, deterministic: bool = True, layout: str = "mul_ir") -> "TensorProductConv":
        """The convolution with the paths, weights and coefficients of an ``e3nn.o3.TensorProduct`` (0.4 to 0.6), and
        the signs of its couplings, which are others in 0.4 (coupling_sign.py)."""
        # There path_weight is the finished coefficient, square root taken.
        instructions = [
            (i.i_in1, i.i_in2, i.i_out, i.connection_mode, i.has_weight, float(i.path_weight) ** 2)
            for i in tensor_product.instructions
        ]
        conv = cls(
            tensor_product.irreps_in1,
            tensor_product.irreps_in2,
            tensor_product.irreps_out,
            instructions,
            shared_weights=bool(tensor_product.shared_weights),
            deterministic=deterministic,
            layout=layout,
            irrep_normalization="none",
            path_normalization="none",
        )
        # An instruction has no place for a sign: its weight is a square.
        in1, in2, out = (Irreps.parse(irreps) for irreps in (conv.irreps_in1, conv.irreps_in2, conv.irreps_out))
        paths = []
        for path in normalised_paths(in1, in2, out, instructions, "none", "none"):
            sign = coupling_sign.of_product(tensor_product, in1[path.in1].l, in2[path.in2].l, out[path.out].l)
            paths.append(path._replace(coefficient=sign * path.coefficient))
        conv.problem = problem_text(in1, in2, out, paths)
        return conv

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if "in1_dim" not in self.__dict__:  # of a version that did not check shapes
            self.in1_dim, self.in2_dim = (Irreps.parse(text).dim for text in (self.irreps_in1, self.irreps_in2))

    def forward(
        self,
        x: Tensor,
        Y: Tensor,
        W: Tensor,
        senders: Tensor,
        receivers: Tensor,
        num_receivers: Optional[int] = None,  # noqa: UP045 - TorchScript
        graph: Optional[List[Tensor]] = None,  # noqa: UP006, UP045
    ) -> Tensor:
        """x (N, d1), Y (E, d2), W (E, w) or (w,), all float32 or all float64; senders, receivers (E,) int64 or int32
        in any order, 0 <= senders < N, 0 <= receivers < num_receivers (default N). Returns (num_receivers, d_out).

        ``graph``: what :func:`edge_graph` made of these edges, to save making it again for every layer.
        """
        rows = x.shape[0] if num_receivers is None else num_receivers
        if len(self.problem) == 0:
            return x.new_zeros([rows, self.out_dim])
        edges = senders.shape[0]
        if x.dim() != 2 or x.shape[1] != self.in1_dim:
            raise ValueError(f"TensorProductConv: expected x of shape (N, {self.in1_dim}), got {list(x.shape)}")
        if Y.dim() != 2 or Y.shape[0] != edges or Y.shape[1] != self.in2_dim:
            raise ValueError(
                f"TensorProductConv: expected Y of shape (E, {self.in2_dim}) with E = {edges}, got {list(Y.shape)}"
            )
        if W.dim() != (1 if self.shared_weights else 2):
            raise ValueError("TensorProductConv: expected W of shape (w,) with shared weights, else (E, w)")
        if W.shape[W.dim() - 1] != self.weight_numel or (not self.shared_weights and W.shape[0] != edges):
            raise ValueError(
                f"TensorProductConv: expected W with {self.weight_numel} weights, and as many rows as edges, {edges}, "
                f"unless shared, got {list(W.shape)}"
            )
        nodes = max(x.shape[0], rows)
        if graph is not None and graph[3].shape[0] > nodes + 1:
            nodes = graph[3].shape[0] - 1  # it was made for more
        if graph is None:
            graph = edge_graph(senders, receivers, nodes, rows, self.deterministic or not x.is_cuda)
        order = graph[7]
        if order.shape[0] > 0:
            Y = Y.index_select(0, order)
            if not self.shared_weights:
                W = W.index_select(0, order)
        x = _transpose(x, self._blocks_in1)
        if nodes > x.shape[0]:
            x = torch.nn.functional.pad(x, [0, 0, 0, nodes - x.shape[0]])
        Y = _transpose(Y, self._blocks_in2)
        out = torch.ops.clebsch.tensor_product_conv(
            x.contiguous(), Y.contiguous(), W.contiguous(), graph[:7], -1, self.problem
        )
        if nodes > rows:
            out = out[:rows]
        return _transpose(out, self._blocks_out)

    def extra_repr(self) -> str:
        return (
            f"{self.irreps_in1} x {self.irreps_in2} -> {self.irreps_out} | {self.weight_numel} weights"
            f"{', shared' if self.shared_weights else ''}"
        )


def edge_graph(
    senders: Tensor, receivers: Tensor, num_nodes: int, num_receivers: int, transpose: bool = True
) -> List[Tensor]:  # noqa: UP006 - TorchScript
    """Edges in any order as the convolution reads them: compressed rows by receiver, and the transpose by sender.

    num_nodes: at least the rows of x and num_receivers. Without the transpose, gradients of x use atomics on a GPU.
    Raises RuntimeError naming an index out of range (on the CPU; on a GPU indices are trusted, unless the
    environment has CLEBSCH_CUDA_CHECK=1).
    """
    row_ptr, from_nodes, to_nodes, col_ptr, col_edge, count, order = torch.ops.clebsch.edge_graph(
        senders, receivers, num_nodes, num_receivers, transpose
    )
    # Edges that stand in order already need not be moved. Looking costs little next to moving Y and W.
    if torch.jit.is_scripting():
        if bool((receivers[1:] >= receivers[:-1]).all()):
            order = order[:0]
    elif _may_look(receivers) and bool((receivers[1:] >= receivers[:-1]).all()):
        order = order[:0]
    return [row_ptr, from_nodes, to_nodes, col_ptr, col_edge, count, count, order]


def _may_look(values: Tensor) -> bool:
    """Are values real numbers now, rather than a trace or a capture of a program?"""
    if torch.compiler.is_compiling() or type(values) is not Tensor or torch._C._len_torch_dispatch_stack() > 0:
        return False
    return not (values.is_cuda and torch.cuda.is_current_stream_capturing())


def _transposed_blocks(irreps: Irreps, layout: str) -> list[tuple[int, int]]:
    """(channels, components) of the merged blocks; empty when both layouts are the same."""
    blocks = [(b.mul, 2 * b.l + 1) for b in irreps.simplify()]
    return blocks if layout == "mul_ir" and any(m > 1 and d > 1 for m, d in blocks) else []


def _swapped(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(columns, rows) for rows, columns in blocks]


def _transpose(x: Tensor, blocks: List[Tuple[int, int]]) -> Tensor:  # noqa: UP006 - TorchScript
    """Every block of (rows, columns) numbers of x (N, sum) with its two axes exchanged."""
    if len(blocks) == 0:
        return x
    parts: List[Tensor] = []  # noqa: UP006
    start = 0
    for rows, columns in blocks:
        part = x.narrow(1, start, rows * columns)
        parts.append(part.reshape(x.shape[0], rows, columns).transpose(1, 2).flatten(1))
        start += rows * columns
    return torch.cat(parts, 1)
