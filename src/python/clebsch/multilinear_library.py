"""Loads libclebsch_multilinear.so, which lies beside libclebsch.so."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.autograd import forward_ad

from . import library
from .errors import ClebschError

_NAME = "libclebsch_multilinear.so"
_turn = threading.RLock()  # of the first call
_loaded: Path | None = None
_derivatives: dict[str, tuple[Callable, Callable]] = {}
_derived: set[str] = set()


def place() -> Path:
    """Where the library would be. Raises ClebschError when libclebsch.so is not there either."""
    chosen = os.environ.get("CLEBSCH_MULTILINEAR_LIBRARY")
    return Path(chosen) if chosen else library.require().parent / _NAME


def require() -> Path:
    """The loaded library. Raises ClebschError that says why there is none and what to do."""
    if _loaded is None:
        with _turn:
            _load()
    assert _loaded is not None
    return _loaded


def _load() -> None:
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


def add_derivatives(derivatives: dict[str, tuple[Callable, Callable]]) -> None:
    """Derivatives, (setup_context, backward) by an op's name, that :func:`begin_call` gives to the ops."""
    _derivatives.update(derivatives)


def begin_call(op: str) -> None:
    """As :func:`require`, in a call of the op; before its first use it gets its derivatives. ClebschError inside
    torch.func's transforms: torch would take the op for a constant there, and give zeros for derivatives.

    torch.compile runs it while it traces."""
    if len(_derived) < len(_derivatives):
        require()
        with _turn:
            for name, (setup, backward) in _derivatives.items():
                if name not in _derived:
                    torch.library.register_autograd(f"clebsch::{name}", backward, setup_context=setup)
                    _derived.add(name)
    if torch._C._are_functorch_transforms_active():
        raise ClebschError(
            f"{op}: expected a call outside of torch.func (grad, vjp, jvp, vmap), got one inside; torch.autograd.grad "
            f"and backward() have its derivatives, {op}_reference all others"
        )


# What torch.compiler.assume_constant_result does, which would import torch's compiler: that takes seconds.
begin_call._dynamo_marked_constant = True  # type: ignore[attr-defined]


def refuse_tangents(op: str, *tensors: torch.Tensor | None) -> None:
    """ClebschError where a tensor has a tangent, of which ops know nothing."""
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


def places(indices: torch.Tensor) -> torch.Tensor:
    """`indices` as a tensor. Raises ClebschError for what is none of numbers."""
    try:
        return torch.as_tensor(indices)
    except (TypeError, ValueError, RuntimeError):
        raise ClebschError(f"indices: expected a tensor of int64, got {type(indices).__name__}") from None


def apart(value: torch.Tensor, others: Iterable[torch.Tensor]) -> torch.Tensor:
    """The matrix, or a copy where one of the others lies in the same memory: a change of one is no change of two."""

    def memory(u: torch.Tensor) -> tuple[int, int]:
        numbers = u.values() if u.layout == torch.sparse_csr else u
        return numbers.data_ptr(), numbers.data_ptr() + numbers.numel() * numbers.element_size()

    begin, end = memory(value)
    shared = any(begin < other_end and other_begin < end for other_begin, other_end in map(memory, others))
    return value.clone() if shared else value


def signed(seed: int) -> int:
    """A seed of 64 bits as the signed number that torch passes on."""
    if not 0 <= seed < 2**64:
        raise ClebschError(f"seed: expected 0 to 2^64 - 1, got {seed}")
    return seed - 2**64 if seed >= 2**63 else seed
