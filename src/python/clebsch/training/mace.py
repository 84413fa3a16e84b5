"""MACE models that train on Clebsch's convolution and symmetric contraction (mace-torch 0.3.10 and later)."""

from __future__ import annotations

import inspect

import torch
from e3nn.util.codegen import CodeGenMixin
from torch import Tensor

from .. import library
from ..errors import ClebschError
from ..product_basis import ProductBasis
from ..tensor_product_conv import TensorProductConv
from .swapped import refuse_hooks


class ClebschConv(CodeGenMixin, torch.nn.Module):
    """In the place of an interaction block's ``conv_tp`` with ``conv_fusion`` set: gather, product and scatter.

    CodeGenMixin pickles the compiled submodules of the product that is replaced, which are kept for their buffers.
    """

    def __init__(self, old: torch.nn.Module) -> None:
        super().__init__()
        self.__dict__["__codegen__"] = list(getattr(old, "__codegen__", []))  # names of those submodules
        # The buffers of the product that is replaced, so that the state_dict stays as it was.
        self._buffers.update(old._buffers)
        self._non_persistent_buffers_set |= old._non_persistent_buffers_set
        self._modules.update(old._modules)
        for name in ("irreps_in1", "irreps_in2", "irreps_out", "instructions", "weight_numel", "shared_weights"):
            setattr(self, name, getattr(old, name))
        self.conv = TensorProductConv.from_e3nn(old)
        self.train(old.training)
        self.register_load_state_dict_post_hook(_renew_signs)

    def forward(self, node_feats: Tensor, edge_attrs: Tensor, tp_weights: Tensor, edge_index: Tensor) -> Tensor:
        # MACE's edge_index is (sender, receiver).
        return self.conv(node_feats, edge_attrs, tp_weights, edge_index[0], edge_index[1])


def _renew_signs(module: ClebschConv, _: object) -> None:
    """A state_dict of another release of e3nn may bring couplings of other signs."""
    module.conv = TensorProductConv.from_e3nn(module)


class ClebschSymmetricContraction(torch.nn.Module):
    """In the place of a product block's ``symmetric_contractions``: the same weights, state_dict and numbers.

    Like the fused contractions that MACE knows, it takes an atom's type from the place of the largest of its
    attributes, which are one-hot in MACE.
    """

    def __init__(self, old: torch.nn.Module) -> None:
        super().__init__()
        self.basis = ProductBasis.from_mace(old)  # first: it refuses what is no contraction of mace-torch
        self.contractions = old.contractions  # not called: their weights are read, their buffers stay in the state_dict
        self.irreps_in, self.irreps_out = old.irreps_in, old.irreps_out
        self._degrees = [2 * ir.l + 1 for _, ir in old.irreps_out]
        self.train(old.training)
        self.register_load_state_dict_post_hook(_renew_basis)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (N, C, D), y (N, Z) one-hot; returns (N, d_out) in e3nn's layout."""
        types = y.argmax(dim=-1).int()
        coefficients = self.basis.coefficients(ProductBasis.weights(self))
        graph = [types.new_empty(0)] * 7  # every row is computed
        rows = x.transpose(1, 2).reshape(x.shape[0], -1)
        out = torch.ops.clebsch.symmetric_contraction(rows, coefficients, types, graph, -1, self.basis.problem)
        parts = out.reshape(x.shape[0], -1, x.shape[1]).split(self._degrees, dim=1)
        return torch.cat([part.transpose(1, 2).flatten(1) for part in parts], dim=-1)


def _renew_basis(module: ClebschSymmetricContraction, _: object) -> None:
    """A state_dict may bring U in another basis of paths, with weights to match."""
    module.basis = ProductBasis.of_contractions(module)


def enable_clebsch(model: torch.nn.Module) -> torch.nn.Module:
    """Swaps convolutions and symmetric contractions of a MACE model for Clebsch's, in place; returns the model.

    Weights, state_dict and results (to rounding) stay the same. Raises ClebschError when libclebsch is missing, the
    model is not one of MACE, its blocks already use another library's operations, or what would be swapped has hooks;
    the model is then as it was.
    """
    library.require()
    blocks = list(getattr(model, "interactions", []))
    if not blocks:
        raise ClebschError("enable_clebsch: expected a MACE model, got one without interaction blocks")
    for k, block in enumerate(blocks):
        _check(k, block)
    products = []
    for k, block in enumerate(getattr(model, "products", [])):
        old = block.symmetric_contractions
        if isinstance(old, ClebschSymmetricContraction):
            continue
        refuse_hooks(f"product {k}", old)
        try:
            products.append((block, ClebschSymmetricContraction(old)))
        except ClebschError as error:
            raise ClebschError(f"enable_clebsch: product {k}: {error}") from None
    for block in blocks:
        if not isinstance(block.conv_tp, ClebschConv):
            block.conv_tp = ClebschConv(block.conv_tp)
            block.conv_fusion = True
    for block, product in products:
        block.symmetric_contractions = product
    return model


def _check(k: int, block: torch.nn.Module) -> None:
    name = type(block).__name__
    product = getattr(block, "conv_tp", None)
    if isinstance(product, ClebschConv):
        return
    if type(product).__name__ != "TensorProduct" or not hasattr(product, "instructions"):
        raise ClebschError(
            f"enable_clebsch: interaction {k} ({name}): expected e3nn's TensorProduct as conv_tp, got "
            f"{type(product).__name__}; convert the model to plain e3nn first"
        )
    refuse_hooks(f"interaction {k} ({name}), conv_tp", product)
    if "conv_fusion" not in inspect.getsource(type(block).forward):
        raise ClebschError(
            f"enable_clebsch: interaction {k} ({name}): this mace-torch has no conv_fusion hook; 0.3.16 has it"
        )
