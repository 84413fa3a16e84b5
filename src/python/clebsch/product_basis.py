"""MACE's product basis as sorted monomials: the problem text and coefficients of ``clebsch::symmetric_contraction``.

MACE computes, per atom, channel c and output component w (Batatia et al. 2022, eq. 10 and 11; mace-torch's
``SymmetricContraction``),

    B[w] = sum over orders nu and paths p of  U_nu[w, i1, .., i_nu, p] W_nu[z, p, c] A[i1] .. A[i_nu]

Products do not depend on the order of their factors, so the sum over (i1, .., i_nu) is one over sorted monomials whose
coefficients add up the permutations. U is read from the model, never rebuilt: its shape depends on the machine that
built the model. C = sum over p of U W is an ordinary matrix product outside the op: once at load in molecular dynamics,
under autograd in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import ClebschError
from .irreps import Irreps

MAX_ORDER = 4  # of src/core/problem/symmetric_problem.h


class ProductBasis:
    """Sorted monomials of a symmetric contraction and how their coefficients follow from path weights.

    irreps_in, irreps_out: texts or e3nn ``Irreps``; every block of either has the same multiplicity C, and adjacent
        blocks differ in their irrep.
    tensors: for every block of irreps_out the U tensors of orders 1, 2, ..: ([2l+1,] D, .., D, paths), the first axis
        absent when l = 0, D the components of irreps_in.

    Attributes: ``problem`` (the op's text), ``channels`` (C), ``monomials`` (per output component a list of tuples),
    ``matrices`` (per block of irreps_out, fp64, (its monomials, its paths of orders 1, 2, .. one after the other)).
    Raises ClebschError naming what it cannot represent.
    """

    def __init__(self, irreps_in: Any, irreps_out: Any, tensors: Sequence[Sequence[Tensor]]) -> None:
        irreps_in, irreps_out = Irreps.parse(str(irreps_in)), Irreps.parse(str(irreps_out))
        self.channels = _channels(irreps_in, irreps_out)
        self.components = sum(2 * block.l + 1 for block in irreps_in)
        if len(tensors) != len(irreps_out):
            raise ClebschError(f"product basis: expected U of {len(irreps_out)} blocks, got {len(tensors)}")
        self.monomials: list[list[tuple[int, ...]]] = []
        self.matrices: list[Tensor] = []
        for block, orders in zip(irreps_out, tensors, strict=True):
            lists, matrix = _block_monomials(2 * block.l + 1, self.components, orders)
            self.monomials += lists
            self.matrices.append(matrix)
        terms = ";".join(",".join(".".join(map(str, m)) for m in component) for component in self.monomials)
        self.problem = f"symmetric in={irreps_in} out={irreps_out} terms={terms}"
        self._converted: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A pickle may be read to another device than its keys name.
        return {**self.__dict__, "_converted": {}}

    @classmethod
    def from_mace(cls, module: torch.nn.Module) -> ProductBasis:
        """Of mace-torch's ``SymmetricContraction``, that is ``model.products[k].symmetric_contractions``, or of what
        :mod:`clebsch.training.mace` put in its place."""
        basis = getattr(module, "basis", None)
        if isinstance(basis, ProductBasis):
            return basis
        _check_mace(module)
        return cls.of_contractions(module)

    @classmethod
    def of_contractions(cls, module: torch.nn.Module) -> ProductBasis:
        """Of the U tensors that a module's ``contractions`` have now."""
        tensors = [
            [getattr(part, f"U_matrix_{order}").detach() for order in range(1, part.correlation + 1)]
            for part in module.contractions
        ]
        return cls(module.irreps_in, module.irreps_out, tensors)

    @staticmethod
    def weights(module: torch.nn.Module) -> list[list[Tensor]]:
        """Path weights of mace-torch's ``SymmetricContraction``: per output irrep of orders 1, 2, .., (Z, paths, C)."""
        return [[*reversed(list(part.weights)), part.weights_max] for part in module.contractions]

    def coefficients(self, weights: Sequence[Sequence[Tensor]]) -> Tensor:
        """(Z, K, C) for the op, from weights as :meth:`weights` gives them; in their dtype, differentiable."""
        stacked = [torch.cat(list(orders), dim=1) for orders in weights]
        matrices = self._matrices_as(stacked[0].device, stacked[0].dtype)
        products = [torch.matmul(matrix, w) for matrix, w in zip(matrices, stacked, strict=True)]
        return torch.cat(products, dim=1)

    def _matrices_as(self, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
        """``matrices`` converted, once for each device and dtype. Tensors of a trace (torch.export) are not kept."""
        key = (device, dtype)
        if key in self._converted:
            return self._converted[key]
        if torch.compiler.is_compiling():
            return [matrix.to(*key) for matrix in self.matrices]
        with torch.inference_mode(False):  # inference tensors cannot be trained with later
            found = [matrix.to(*key) for matrix in self.matrices]
        if all(type(matrix) is Tensor for matrix in found):
            self._converted[key] = found
        return found


def _channels(irreps_in: Irreps, irreps_out: Irreps) -> int:
    multiplicities = {block.mul for block in irreps_in + irreps_out}
    if len(multiplicities) != 1:
        raise ClebschError(
            f"product basis: expected the same multiplicity of every irrep, got {irreps_in} and {irreps_out}"
        )
    for irreps in (irreps_in, irreps_out):
        if len(irreps.simplify()) != len(irreps):
            raise ClebschError(f"product basis: expected adjacent blocks to differ in their irrep, got {irreps}")
    return multiplicities.pop()


def _block_monomials(dim: int, components: int, orders: Sequence[Tensor]) -> tuple[list[list[tuple[int, ...]]], Tensor]:
    """Per output component the monomials by order, then lexicographic; and (monomials, paths of all orders)."""
    if not 1 <= len(orders) <= MAX_ORDER:
        raise ClebschError(f"product basis: expected correlation 1 to {MAX_ORDER}, got {len(orders)}")
    rows: list[tuple[int, int, tuple[int, ...], Tensor]] = []  # component, order, factors, coefficients of the paths
    for order, u in enumerate(orders, start=1):
        shape = ((dim,) if dim > 1 else ()) + (components,) * order
        if tuple(u.shape[:-1]) != shape:
            raise ClebschError(
                f"product basis: expected U of order {order} of shape {(*shape, 'paths')}, got {u.shape}"
            )
        keys, values = _symmetrised(u.reshape(dim, *(components,) * order, u.shape[-1]), order)
        rows += [(key[0], order, tuple(key[1:]), value) for key, value in zip(keys.tolist(), values, strict=True)]
    rows.sort(key=lambda row: row[:3])
    starts = [0]
    for u in orders:
        starts.append(starts[-1] + u.shape[-1])
    matrix = torch.zeros(len(rows), starts[-1], dtype=torch.float64)
    lists: list[list[tuple[int, ...]]] = [[] for _ in range(dim)]
    for k, (component, order, factors, value) in enumerate(rows):
        lists[component].append(factors)
        matrix[k, starts[order - 1] : starts[order]] = value
    return lists, matrix


def _symmetrised(u: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Non-zero entries with their permutations added up: (n, 1 + order) component and sorted factors, (n, paths)."""
    # Rounding in the upstream package leaves entries that are zero by symmetry; a monomial of such alone is dropped.
    noise = 64 * torch.finfo(u.dtype).eps * float(u.abs().max()) if u.numel() else 0.0
    u = u.cpu().double()
    place = (u != 0).any(-1).nonzero()
    keys = torch.cat([place[:, :1], place[:, 1:].sort(dim=1).values], dim=1)
    keys, inverse = torch.unique(keys, dim=0, return_inverse=True)
    values = torch.zeros(len(keys), u.shape[-1], dtype=torch.float64)
    values.index_add_(0, inverse, u[tuple(place.T)])
    kept = values.abs().amax(dim=1) > noise if len(keys) else torch.zeros(0, dtype=torch.bool)
    return keys[kept], values[kept]


def _check_mace(module: torch.nn.Module) -> None:
    if type(module).__name__ != "SymmetricContraction" or not hasattr(module, "contractions"):
        raise ClebschError(
            "product basis: expected mace-torch's SymmetricContraction, got "
            f"{type(module).__module__}.{type(module).__name__}; convert the model to plain e3nn first"
        )
