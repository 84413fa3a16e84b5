"""ASE calculators for the files a water model comes in."""

from __future__ import annotations

from pathlib import Path

from ase.calculators.calculator import Calculator


def calculator(model: Path, device: str = "cpu") -> Calculator:
    """The calculator of a model file.

    `.ckpt` and `.nequip.zip` run in upstream nequip, `.pt` (what `clebsch export` writes) in
    Clebsch.
    """
    if model.suffix == ".pt":
        from clebsch.ase import ClebschCalculator

        return ClebschCalculator(str(model), device=device)
    from nequip.integrations.ase import NequIPCalculator

    # Upstream's public entry takes compiled files only
    return NequIPCalculator._from_saved_model(model, device=device)
