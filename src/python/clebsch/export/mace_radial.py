"""Reading what depends on distances in a MACE model: basis, transforms, radial networks, densities, ZBL."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ExportRefused
from .description import Density, PairRepulsion, Radial, Transform
from .mace_parts import fp64, mlp_weights


@dataclass
class Basis:
    """What all layers' radial functions have in common: the fields of Radial but the network."""

    kind: str
    roots: Tensor
    prefactor: float
    cutoff_p: float
    transform: Transform | None
    cutoff_last: bool

    def radial(self, weights: list[Tensor], density: bool = False) -> Radial:
        return Radial(
            self.roots,
            self.prefactor,
            self.cutoff_p,
            weights,
            basis=self.kind,
            transform=self.transform,
            cutoff_last=self.cutoff_last,
            density=density,
        )


def radial_basis(module: torch.nn.Module, cutoff: float, numbers: list[int]) -> Basis:
    """RadialEmbeddingBlock, in x = r / rc; numbers: of the elements that are kept.

    Raises ExportRefused for bases and transforms that are not here.
    """
    if float(module.cutoff_fn.r_max) != cutoff:
        raise ExportRefused("r_max", f"the radial basis ends at {float(module.cutoff_fn.r_max)}, the model at {cutoff}")
    function = module.bessel_fn
    name = type(function).__name__
    if name == "BesselBasis":
        # prefactor sin(w r) / r
        kind, roots, prefactor = "bessel", fp64(function.bessel_weights) * cutoff, float(function.prefactor) / cutoff
    elif name == "GaussianBasis":
        # exp(coeff (r - g)^2)
        kind, roots = "gaussian", fp64(function.gaussian_weights) / cutoff
        prefactor = float(function.coeff) * cutoff**2
    elif name == "ChebychevBasis":
        raise ExportRefused(
            "radial_type", "chebyshev: mace-torch does not differentiate this basis, so its forces are not those of "
            "its energy; expected bessel or gaussian"
        )  # fmt: skip
    else:
        raise ExportRefused("radial_type", f"expected bessel or gaussian, got {name}")
    transform = _transform(getattr(module, "distance_transform", None), numbers)
    late = not getattr(module, "apply_cutoff", True)
    return Basis(kind, roots, prefactor, float(module.cutoff_fn.p), transform, late)


def _transform(module: torch.nn.Module | None, numbers: list[int]) -> Transform | None:
    if module is None:
        return None
    name = type(module).__name__
    if name == "AgnesiTransform":
        kind, parameters = "agnesi", [float(module.q), float(module.p), float(module.a)]
    elif name == "SoftTransform":
        kind, parameters = "soft", [float(module.alpha)]
    else:
        raise ExportRefused("distance_transform", f"expected Agnesi or Soft, got {name}")
    return Transform(kind, parameters, fp64(module.covalent_radii)[numbers])


def radial_of(network: torch.nn.Module, basis: Basis) -> Radial:
    """The radial functions that an e3nn FullyConnectedNet makes of the basis."""
    return basis.radial(mlp_weights(network))


def density_of(interaction: torch.nn.Module, basis: Basis) -> Density | None:
    """message / (1 + density) of the density blocks; None for blocks that divide by avg_num_neighbors."""
    if not hasattr(interaction, "density_fn"):
        return None
    return Density(basis.radial(mlp_weights(interaction.density_fn), density=True), alpha=1.0, beta=1.0)


def pair_repulsion(model: torch.nn.Module, numbers: list[int], scale: float) -> PairRepulsion | None:
    """ZBLBasis, whose cutoffs are sums of covalent radii; scale: ScaleShiftMACE scales it with the rest."""
    module = getattr(model, "pair_repulsion_fn", None)
    if module is None:
        return None
    if type(module).__name__ != "ZBLBasis":
        raise ExportRefused("pair_repulsion", f"expected ZBLBasis, got {type(module).__name__}")
    radii = fp64(module.covalent_radii)[numbers]
    rates = (3.2, 0.9423, 0.4028, 0.2016)  # literals of its forward, like 0.529 and 14.3996
    screening = [float(module.a_exp), float(module.a_prefactor) * 0.529]
    for weight, rate in zip(fp64(module.c).tolist(), rates, strict=True):
        screening += [weight, rate]
    return PairRepulsion(
        charges=torch.tensor(numbers, dtype=torch.float64),
        scale=0.5 * 14.3996 * scale,
        cutoff_p=float(module.p),
        cutoffs=radii[:, None] + radii[None, :],
        screening=screening,
    )
