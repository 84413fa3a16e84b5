"""What :mod:`clebsch.training.openfold` and :mod:`clebsch.training.boltz` share: modules replaced by class name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import multilinear_library
from ..errors import ClebschError
from ..triangle import triangle_multiplicative_update
from ..triangle.module import outgoing


class ClebschTriangle(torch.nn.Module):
    """In the place of a TriangleMultiplicationOutgoing or -Incoming: the same parameters under the same names."""

    def __init__(self, old: torch.nn.Module, norm: str, precision: str | None) -> None:
        super().__init__()
        self._modules.update(old._modules)
        self._outgoing = outgoing(old)
        self._norm = norm
        self.precision = precision
        self.train(old.training)

    def weights(self) -> dict[str, Tensor | None]:
        """Arguments of triangle_multiplicative_update by name. A subclass knows the names of its package."""
        raise NotImplementedError

    def update(self, x: Tensor, mask: Tensor | None) -> Tensor:
        norm = getattr(self, self._norm)
        eps = getattr(norm, "eps", 1e-5)
        direction = "outgoing" if self._outgoing else "incoming"
        return triangle_multiplicative_update(x, direction, mask, **self.weights(), eps=eps, precision=self.precision)


def replace_all(
    model: torch.nn.Module, names: tuple[str, ...], parts: Callable[[torch.nn.Module], bool], made: Callable, what: str
) -> torch.nn.Module:
    """Replaces modules whose class has one of the names by made(module), in place; returns the model, or what replaces
    it. Raises ClebschError when libclebsch_multilinear.so is missing or there is nothing to replace; the model is then
    as it was."""
    multilinear_library.require()

    def replaced(module: torch.nn.Module, path: str) -> torch.nn.Module:
        if not parts(module):
            raise ClebschError(
                f"enable_clebsch: {path or 'the model'} ({type(module).__name__}): its parts are not those of {what}'s "
                "module of this name"
            )
        return made(module)

    if type(model).__name__ in names:
        return replaced(model, "")
    found = [
        (parent, name, replaced(child, f"{path}.{name}".lstrip(".")))
        for path, parent in model.named_modules()
        for name, child in parent.named_children()
        if type(child).__name__ in names
    ]
    if not found and not any(isinstance(module, ClebschTriangle) for module in model.modules()):
        raise ClebschError(f"enable_clebsch: expected a model of {what}, got one without {' or '.join(names[:2])}")
    for parent, name, module in found:
        setattr(parent, name, module)
    return model
