"""What every enable_clebsch looks at before it swaps a module."""

from __future__ import annotations

import torch

from ..errors import ClebschError


def refuse_hooks(place: str, module: torch.nn.Module) -> None:
    """ClebschError where the module or a part of it has hooks: what stands in its place does not call them."""
    for name, part in module.named_modules():
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            raise ClebschError(
                f"enable_clebsch: {place}: expected no hooks, got some of {name or 'it'}, which would not be called"
            )
