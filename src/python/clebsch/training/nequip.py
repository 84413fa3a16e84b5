"""NequIP models that train on Clebsch's convolution.

Importing this module gives every NequIP model the modifier ``enable_Clebsch``, next to ``enable_OpenEquivariance``:

.. code-block:: yaml

    model:
      _target_: nequip.model.modify
      modifiers: [{modifier: enable_Clebsch}]
      model: {_target_: nequip.model.NequIPGNNModel, ...}

With Clebsch installed, nequip imports it by itself (entry point ``nequip.extension``).
"""

from __future__ import annotations

import torch
from nequip.nn._tp_scatter_base import TensorProductScatter
from nequip.nn.model_modifier_utils import model_modifier, replace_submodules
from torch import Tensor

from .. import library
from ..errors import ClebschError
from ..tensor_product_conv import TensorProductConv
from .swapped import refuse_hooks


class ClebschTensorProductScatter(TensorProductScatter):
    """nequip's gather, tensor product and scatter as one op. Parameters and state_dict are those of the original."""

    def __init__(self, old: TensorProductScatter) -> None:
        torch.nn.Module.__init__(self)
        for name in ("feature_irreps_in", "irreps_edge_attr", "irreps_mid", "instructions", "model_dtype"):
            setattr(self, name, getattr(old, name))
        self.tp = old.tp  # not called; its buffers keep the state_dict as it was
        self.conv = TensorProductConv(self.feature_irreps_in, self.irreps_edge_attr, self.irreps_mid, self.instructions)
        self.train(old.training)

    def forward(self, x: Tensor, edge_attr: Tensor, edge_weight: Tensor, edge_dst: Tensor, edge_src: Tensor) -> Tensor:
        # Under autocast the operands may have come in another dtype.
        dtype = self.model_dtype
        return self.conv(x.to(dtype), edge_attr.to(dtype), edge_weight.to(dtype), edge_src, edge_dst)


def enable_clebsch(model: torch.nn.Module) -> torch.nn.Module:
    """Swaps every convolution of a NequIP model for Clebsch's, in place; returns the model.

    Weights, state_dict and results (to rounding) stay the same. Raises ClebschError when libclebsch is missing, the
    model has no convolution, or one does more than nequip's; the model is then as it was.
    """
    library.require()
    found = [(path, module) for path, module in model.named_modules() if isinstance(module, TensorProductScatter)]
    if not found:
        raise ClebschError("enable_clebsch: expected a NequIP model, got one without nequip's TensorProductScatter")
    for path, module in found:
        _check(path or "the model", module)
    if isinstance(model, TensorProductScatter):
        return ClebschTensorProductScatter(model)
    return replace_submodules(model, TensorProductScatter, ClebschTensorProductScatter)


def _check(path: str, module: TensorProductScatter) -> None:
    """Refuses what the kernel would leave out: hooks, adapters around the product, a forward pass of another's."""
    place = f"{path} ({type(module).__name__})"
    if type(module).__module__.split(".")[0] not in ("nequip", "clebsch"):
        raise ClebschError(f"enable_clebsch: {place}: expected a class of nequip, got one of {type(module).__module__}")
    if not hasattr(module.tp, "instructions"):
        raise ClebschError(
            f"enable_clebsch: {place}: expected e3nn's TensorProduct as tp, got {type(module.tp).__name__}"
        )
    refuse_hooks(place, module)


@classmethod  # nequip finds modifiers as class methods of a model's modules
def _enable_Clebsch(cls: type, model: torch.nn.Module) -> torch.nn.Module:
    """Use Clebsch's fused convolution for training and inference; forces and their gradients included."""
    return enable_clebsch(model)


def _register() -> None:
    if "enable_Clebsch" in vars(TensorProductScatter):
        return
    _enable_Clebsch.__func__.__name__ = "enable_Clebsch"
    # Non-persistent: an acceleration that leaves the model what it was, so a packaged model does not need Clebsch.
    modifier = model_modifier(persistent=False, private=False, supported_compile_modes=["torchscript"])
    TensorProductScatter.enable_Clebsch = modifier(_enable_Clebsch)


_register()
