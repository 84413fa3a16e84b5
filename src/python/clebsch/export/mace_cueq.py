"""MACE models whose layers are cuEquivariance's: their weights in e3nn's layout, by mace-torch's own converter."""

from __future__ import annotations

import torch

from ..compare import Values, errors, upstream_mace
from ..errors import ExportRefused
from ..probe import structures_of_all

_PACKAGE = "cuequivariance_torch"
_BY_HAND = "convert the model where it was trained: python -m mace.cli.convert_cueq_e3nn IN --output_model OUT"
#: Relative errors of energies and forces that the converter's model may have against the one it came from.
_LIMITS = {torch.float64: 1e-8, torch.float32: 2e-4}


def as_e3nn(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself where none of its modules is cuEquivariance's; otherwise what mace-torch converts it to.

    The converter rebuilds the model from what it can read of its options and only logs weights that do not fit, so the
    two are compared. Raises ExportRefused where it cannot convert, or makes another model.
    """
    if not any(type(m).__module__.split(".")[0] == _PACKAGE for m in model.modules()):
        return model
    before = torch.get_default_dtype()
    try:
        from mace.cli.convert_cueq_e3nn import run

        converted = run(model, device="cpu", return_model=True).eval()
        worst = _difference(model, converted)
    except Exception as error:  # an option that its converter does not know shows in whatever way
        raise ExportRefused(
            _PACKAGE, f"mace-torch cannot convert it to e3nn here ({type(error).__name__}: {error}); {_BY_HAND}"
        ) from error
    finally:
        torch.set_default_dtype(before)  # the converter changes it
    limit = _LIMITS[next(model.parameters()).dtype]
    if not worst <= limit:
        raise ExportRefused(
            _PACKAGE,
            f"mace-torch's converter to e3nn makes another model of it: relative error {worst:.1e}, expected at most "
            f"{limit:g}; it knows not all options",
        )
    return converted


def _difference(model: torch.nn.Module, converted: torch.nn.Module) -> float:
    """The larger of the errors of energy and forces over structures of all elements, for every head."""
    numbers = [int(z) for z in model.atomic_numbers.tolist()]
    worst = 0.0
    for head in list(getattr(model, "heads", None) or [None]):
        for probe in structures_of_all(len(numbers), float(model.r_max), 2):
            pair: list[Values] = [upstream_mace(m, probe, numbers, head) for m in (converted, model)]
            found = errors(*pair)
            worst = max(worst, found["energy"], found["forces"])
    return worst
