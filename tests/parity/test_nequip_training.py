"""Training a NequIP model on Clebsch's convolution: the same losses as upstream, forces in the loss."""

from __future__ import annotations

import copy

import pytest
import torch
from nequip.model.modify_utils import get_all_modifiers, modify
from nequip.nn._tp_scatter_base import TensorProductScatter

import clebsch
import structures
import upstream
from cases import small
from clebsch import export
from clebsch.training.nequip import ClebschTensorProductScatter, enable_clebsch

pytestmark = pytest.mark.usefixtures("needs_library")

TYPES = ["O", "H", "C"]


def model_of(dtype: str = "float64") -> torch.nn.Module:
    return upstream.build(**small(l_max=2, parity=True, num_features=[6, 4, 3], model_dtype=dtype))


def converted(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [m for m in model.modules() if isinstance(m, ClebschTensorProductScatter)]


def losses(model: torch.nn.Module, steps: int = 4) -> list[float]:
    """Of Adam on energies and forces, so every step differentiates the forces by the weights."""
    model = model.train()
    atoms = [structures.open_cluster(TYPES), structures.triclinic(TYPES)]
    frames = [upstream.graph_of(a, TYPES, upstream.R_MAX) for a in atoms]
    generator = torch.Generator().manual_seed(3)
    targets = [torch.randn(len(f["pos"]), 3, dtype=torch.float64, generator=generator) for f in frames]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        for frame, target in zip(frames, targets, strict=True):
            out = model(dict(frame))
            loss = loss + (out["forces"] - target).square().mean() + 0.01 * out["total_energy"].square().sum()
        loss.backward()
        optimizer.step()
        values.append(float(loss))
    return values


def test_same_losses_as_upstream() -> None:
    model = model_of()
    ours = enable_clebsch(copy.deepcopy(model))
    assert len(converted(ours)) == 2
    expected = losses(model)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-3)
    assert losses(ours) == pytest.approx(expected, rel=1e-9)


def test_modifier_keeps_state_dict_and_forces() -> None:
    model = model_of()
    assert "enable_Clebsch" in get_all_modifiers(model)
    ours = modify(copy.deepcopy(model), [{"modifier": "enable_Clebsch"}])
    assert len(converted(ours)) == 2
    assert list(ours.state_dict()) == list(model.state_dict())
    ours.load_state_dict(model.state_dict())
    atoms = structures.periodic(TYPES)
    got, expected = upstream.evaluate(ours, atoms), upstream.evaluate(model, atoms)
    torch.testing.assert_close(got.forces, expected.forces, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(got.virial, expected.virial, rtol=1e-10, atol=1e-10)


def test_float32() -> None:
    model = model_of("float32")
    assert losses(enable_clebsch(copy.deepcopy(model)), 2) == pytest.approx(losses(model, 2), rel=1e-4)


class Scaled(torch.nn.Module):
    """As adapters stand around a product."""

    def __init__(self, product: torch.nn.Module) -> None:
        super().__init__()
        self.product = product

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return 1.5 * self.product(*operands)


def test_what_the_kernel_would_leave_out_is_refused() -> None:
    def scatters(model: torch.nn.Module) -> list[TensorProductScatter]:
        return [module for module in model.modules() if isinstance(module, TensorProductScatter)]

    hooked, adapted, other = model_of(), model_of(), model_of()
    scatters(hooked)[1].register_forward_hook(lambda *_: None)
    scatters(adapted)[1].tp = Scaled(scatters(adapted)[1].tp)
    scatters(other)[1].__class__ = type("Mine", (TensorProductScatter,), {"__module__": "mine"})
    for model, words in ((hooked, "no hooks"), (adapted, "as tp, got Scaled"), (other, "got one of mine")):
        with pytest.raises(clebsch.ClebschError, match=words):
            enable_clebsch(model)
        assert not converted(model)
    model = model_of().eval()
    assert not any(module.training for module in enable_clebsch(model).modules())


def test_export_in_any_mode(tmp_path) -> None:
    """As at the end of a validation: without gradients, and some parts in evaluation."""
    model = model_of().train()
    next(iter(model.children())).eval()
    training = [module.training for module in model.modules()]
    with torch.no_grad():
        export.nequip(model, tmp_path / "one.pt")
        with torch.inference_mode():
            export.nequip(model, tmp_path / "two.pt")
    assert [module.training for module in model.modules()] == training


def test_refuses_other_models() -> None:
    with pytest.raises(clebsch.ClebschError, match="TensorProductScatter"):
        enable_clebsch(torch.nn.Linear(2, 2))
