"""Run by test_symmetric_contraction.py where mace-torch is: its SymmetricContraction beside Clebsch's; prints JSON."""

from __future__ import annotations

import json
import sys
import warnings

warnings.simplefilter("ignore")

import mace  # noqa: E402, F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
import torch  # noqa: E402
from e3nn import o3  # noqa: E402
from mace.modules.symmetric_contraction import SymmetricContraction  # noqa: E402

from clebsch.training.mace import ClebschSymmetricContraction  # noqa: E402

# name: irreps in, irreps out, correlation, elements
CASES = {
    "mace-M": ("7x0e+7x1o+7x2e+7x3o", "7x0e+7x1o", 3, 3),
    "mace-L": ("4x0e+4x1o+4x2e+4x3o", "4x0e+4x1o+4x2e", 3, 2),
    "89 elements": ("20x0e+20x1o+20x2e", "20x0e+20x1o", 2, 89),
    "linear": ("5x0e+5x1o", "5x0e+5x1o", 1, 2),
    "correlation 4": ("3x0e+3x1o+3x2e", "3x0e+3x1o", 4, 2),
    "use_so3": ("6x0e+6x1e+6x2e", "6x0e+6x1e", 3, 1),
    "nothing of 1e": ("4x0e+4x1o", "4x0e+4x1e", 2, 2),
}


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if theirs.abs().max() == 0:
        return float(ours.abs().max())
    return float((ours.double() - theirs.double()).abs().max() / theirs.abs().max())


def flat(gradients: list[torch.Tensor | None]) -> torch.Tensor:
    return torch.cat([g.reshape(-1) for g in gradients if g is not None])


def derivatives(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """Value, first derivatives by x and weights, and by x, weights and cotangent of a random sum of those."""
    generator = torch.Generator().manual_seed(seed)
    weights = [w for w in module.parameters() if w.requires_grad]
    x = x.clone().requires_grad_()
    out = module(x, y)
    cotangent = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(x).requires_grad_()
    wanted = [x, *weights]
    first = torch.autograd.grad(out, wanted, cotangent, create_graph=True, allow_unused=True)
    total = sum((g * torch.randn(g.shape, generator=generator, dtype=torch.float64).to(g)).sum() for g in first)
    second = torch.autograd.grad(total, [cotangent, *wanted], allow_unused=True, materialize_grads=True)
    return {
        "value": out.detach(),
        "grad_x": first[0].detach(),
        "grad_weights": flat(first[1:]).detach(),
        "second_cotangent": second[0],
        "second_x": second[1],
        "second_weights": flat(second[2:]),
    }


def compare(irreps_in: str, irreps_out: str, correlation: int, elements: int, seed: int) -> dict:
    torch.manual_seed(seed)
    module = SymmetricContraction(o3.Irreps(irreps_in), o3.Irreps(irreps_out), correlation, num_elements=elements)
    ours = ClebschSymmetricContraction(module)
    atoms = 37
    x = torch.randn(atoms, ours.basis.channels, ours.basis.components)
    y = torch.nn.functional.one_hot(torch.randint(0, elements, (atoms,)), elements).double()
    expected, got = derivatives(module, x, y, seed), derivatives(ours, x, y, seed)
    result = {"seed": seed, "monomials": sum(map(len, ours.basis.monomials))}
    result["errors"] = {name: relative(got[name], expected[name]) for name in expected}
    result["same_state_dict"] = list(ours.state_dict()) == list(module.state_dict())
    # A rotated and inverted input gives the rotated and inverted output.
    rotation = -o3.rand_matrix()
    one = o3.Irreps([(1, ir) for _, ir in o3.Irreps(irreps_in)]).D_from_matrix(rotation)
    turned = torch.einsum("ij,ncj->nci", one, x)
    result["equivariance"] = relative(
        ours(turned, y).detach(), expected["value"] @ o3.Irreps(irreps_out).D_from_matrix(rotation).T
    )
    single = ClebschSymmetricContraction(module.float())
    got = derivatives(single, x.float(), y.float(), seed)
    result["errors_float32"] = {name: relative(got[name], expected[name]) for name in expected}
    return result


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    seed = int(sys.argv[1])
    json.dump({name: compare(*case, seed) for name, case in CASES.items()}, sys.stdout)


if __name__ == "__main__":
    main()
