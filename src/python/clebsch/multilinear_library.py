"""Loads libclebsch_multilinear.so, which lies beside libclebsch.so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.autograd import forward_ad

from . import library
from .errors import ClebschError

_NAME = "libclebsch_multilinear.so"
_loaded: Path | None = None
_derived: set[str] = set()


def place() -> Path:
    """Where the library would be. Raises ClebschError when libclebsch.so is not there either."""
    chosen = os.environ.get("CLEBSCH_MULTILINEAR_LIBRARY")
    return Path(chosen) if chosen else library.require().parent / _NAME


def require() -> Path:
    """The loaded library. Raises ClebschError that says why there is none and what to do."""
    global _loaded
    if _loaded is None:
        path = place()
        if not path.is_file():
            raise ClebschError(
                f"{_NAME} was not found; looked for {path}. The wheel of clebsch has it; a build of your own makes it "
                "with `cmake -DCLEBSCH_MULTILINEAR=ON`, as scripts/test does. CLEBSCH_MULTILINEAR_LIBRARY names another"
            )
        library.require()
        try:
            torch.ops.load_library(str(path))
        except (OSError, RuntimeError) as error:
            raise ClebschError(f"{path} could not be loaded: {error}") from error
        _loaded = path
    return _loaded


def require_with(derivatives: dict[str, tuple[Callable, Callable]]) -> None:
    """As :func:`require`; before their first use the ops get derivatives: (setup_context, backward) by an op's name."""
    require()
    for name, (setup, backward) in derivatives.items():
        if name not in _derived:
            torch.library.register_autograd(f"clebsch::{name}", backward, setup_context=setup)
            _derived.add(name)


def refuse_transforms(op: str, *tensors: torch.Tensor | None) -> None:
    """ClebschError inside torch.func's transforms, and where a tensor has a tangent: torch would take the ops for
    constants there, and give zeros for derivatives."""
    if torch._C._are_functorch_transforms_active():
        raise ClebschError(
            f"{op}: expected a call outside of torch.func (grad, vjp, jvp, vmap), got one inside; torch.autograd.grad "
            f"and backward() have its derivatives, {op}_reference all others"
        )
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise ClebschError(
                f"{op}: expected tensors without tangents, got one with: forward-mode derivatives are not implemented; "
                f"{op}_reference has them"
            )


@contextmanager
def plain_errors() -> Iterator[None]:
    """What the library throws, as ClebschError without torch's stack; torch's own error where memory ran out."""
    try:
        yield
    except (ClebschError, torch.OutOfMemoryError):
        raise
    except RuntimeError as error:
        raise ClebschError(str(error).split("\nException raised from", 1)[0]) from None


def matrix(value: torch.Tensor, name: str) -> torch.Tensor:
    """`value` as a float64 matrix that the library reads: itself where it is one already."""
    if not isinstance(value, torch.Tensor):
        value = torch.as_tensor(value)
    if value.dim() != 2:
        raise ClebschError(f"{name}: expected a matrix, got {value.dim()} dimensions")
    value = value.detach().to(torch.float64)
    return value if value.layout == torch.sparse_csr else value.contiguous()


def signed(seed: int) -> int:
    """A seed of 64 bits as the signed number that torch passes on."""
    if not 0 <= seed < 2**64:
        raise ClebschError(f"seed: expected 0 to 2^64 - 1, got {seed}")
    return seed - 2**64 if seed >= 2**63 else seed
