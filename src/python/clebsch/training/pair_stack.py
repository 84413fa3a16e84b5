"""What :mod:`clebsch.training.openfold` and :mod:`clebsch.training.boltz` share: modules replaced by class name."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from .. import multilinear_library
from ..errors import ClebschError
from ..triangle import triangle_multiplicative_update
from ..triangle.module import eps_of, outgoing
from ..triangle.update import precision_name
from .swapped import refuse_hooks


class ClebschTriangle(torch.nn.Module):
    """In the place of a TriangleMultiplicationOutgoing or -Incoming: the same parameters under the same names."""

    #: The layers of both norms, by the names of a subclass's package.
    norms: ClassVar[tuple[str, str]]

    def __init__(self, old: torch.nn.Module, precision: str | None) -> None:
        super().__init__()
        self._modules.update(old._modules)
        self._parameters.update(old._parameters)
        self._buffers.update(old._buffers)
        self._non_persistent_buffers_set.update(old._non_persistent_buffers_set)
        self._outgoing = outgoing(old)
        self._eps = eps_of(old, *self.norms)
        self.precision = precision
        self.train(old.training)

    def weights(self) -> dict[str, Tensor | None]:
        """Arguments of triangle_multiplicative_update by name. A subclass knows the names of its package."""
        raise NotImplementedError

    def update(self, x: Tensor, mask: Tensor | None) -> Tensor:
        direction = "outgoing" if self._outgoing else "incoming"
        return triangle_multiplicative_update(
            x, direction, mask, **self.weights(), eps=self._eps, precision=self.precision
        )


def replace_all(
    model: torch.nn.Module,
    names: tuple[str, ...],
    parts: Callable[[torch.nn.Module], bool],
    made: type[ClebschTriangle],
    precision: str | None,
    what: str,
) -> torch.nn.Module:
    """Replaces modules whose class has one of the names by `made` of it, in place, and gives those that were replaced
    before the precision; returns the model, or what replaces it. Raises ClebschError when libclebsch_multilinear.so is
    missing, there is nothing to replace, or a module does more than the operator; the model is then as it was."""
    multilinear_library.require()
    precision_name(precision)
    done: dict[int, ClebschTriangle] = {}  # a module may stand in several places

    def replaced(module: torch.nn.Module, path: str) -> ClebschTriangle:
        if id(module) in done:
            return done[id(module)]
        place = f"{path or 'the model'} ({type(module).__name__})"
        if not parts(module):
            raise ClebschError(f"enable_clebsch: {place}: its parts are not those of {what}'s module of this name")
        refuse_hooks(place, module)
        try:
            done[id(module)] = made(module, precision)
            done[id(module)].weights()
        except ClebschError as error:
            raise ClebschError(f"enable_clebsch: {place}: {error}") from None
        return done[id(module)]

    if type(model).__name__ in names:
        return replaced(model, "")
    found = [
        (parent, name, replaced(child, f"{path}.{name}".lstrip(".")))
        for path, parent in model.named_modules()
        for name, child in parent._modules.items()
        if type(child).__name__ in names
    ]
    before = [module for module in model.modules() if isinstance(module, ClebschTriangle)]
    if not found and not before:
        raise ClebschError(f"enable_clebsch: expected a model of {what}, got one without {' or '.join(names[:2])}")
    for module in before:
        module.precision = precision
    for parent, name, module in found:
        setattr(parent, name, module)
    return model
