"""Front end for nequip-allegro 0.8: an upstream model (file or object) -> the neutral description.

As in from_nequip.py, every number is read from the module tree. What depends on the distance and the ordered pair of
types alone (basis, type embedding, two-body network, the linear maps behind it) is multiplied out to one network, whose
first matrix differs from pair to pair.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ExportRefused
from ..irreps import Irreps
from .chemistry import atomic_numbers
from .description import AllegroNetwork, Description
from .from_nequip import (
    dtype_name,
    energy_network,
    fp64,
    pair_cutoffs,
    per_type,
    provenance,
    select_model,
    zbl_term,
)
from .nequip_parts import mlp_weights

#: The modules of an Allegro model in their order: name -> class. Those in brackets may be absent.
_TREE = {
    "edge_norm": "EdgeLengthNormalizer",
    "radial_chemical_embed": ("SequentialGraphNetwork", "TwoBodySplineScalarEmbed"),
    "scalar_embed_mlp": "ScalarMLP",
    "tensor_embed": "TwoBodySphericalHarmonicTensorEmbed",
    "allegro": "Allegro_Module",
    "edge_readout": "ScalarMLP",
    "edge_eng_sum": "EdgewiseReduce",
    "per_type_energy_scale_shift": "PerTypeScaleShift",
    "[cutoff]": "AddRadialCutoffToData",
    "[pair_potential]": "ZBL",
    "total_energy_sum": "AtomwiseReduce",
}
#: Highest degree that the op has (src/core/problem/allegro_problem.cpp).
_LMAX = 4


def describe(model: torch.nn.Module, source: str = "", training_note: str = "") -> Description:
    """The neutral description of an in-memory model. Raises ExportRefused, naming the option, for what is not there."""
    graph_model = select_model(model)
    tree = _check_tree(energy_network(graph_model))
    energies = tree["per_type_energy_scale_shift"]
    type_names = [str(name) for name in energies.type_names]
    types = len(type_names)
    cutoffs = pair_cutoffs(tree["edge_norm"], types)
    reduce = tree["edge_eng_sum"]
    if reduce.reduce != "sum":
        raise ExportRefused("EdgewiseReduce", f"expected a sum of edge energies, got reduce={reduce.reduce!r}")
    zbl = zbl_term(tree["pair_potential"]) if "pair_potential" in tree else None
    numbers = atomic_numbers(type_names) if zbl is None else [int(z) for z in zbl.charges.tolist()]
    # An edge energy goes through two factors, its own and that of the type; both are one number a type.
    factor = per_type(reduce.norm_module.norm_const, types, 1.0) / math.sqrt(2.0)
    return Description(
        family="allegro",
        dtype=dtype_name(graph_model, attributes_dtype=tree["allegro"].tps[0].weights.dtype),
        type_names=type_names,
        atomic_numbers=numbers,
        r_max=float(cutoffs.max()),
        pair_cutoffs=cutoffs,
        embedding=torch.empty(types, 0, dtype=torch.float64),
        layers=[_network(tree, types)],
        readout=[],
        scale=factor * per_type(energies.scales if energies.has_scales else None, types, 1.0),
        shift=per_type(energies.shifts if energies.has_shifts else None, types, 0.0),
        pair=zbl,
        provenance=provenance(source, training_note, "nequip-allegro"),
    )


def _check_tree(network: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The modules by name. Refuses any that is unknown, missing or not in its place."""
    found = dict(network.named_children())
    expected = {name.strip("[]"): kind for name, kind in _TREE.items()}
    for name, module in found.items():
        kind = type(module).__name__
        if name not in expected or kind not in expected[name]:
            raise ExportRefused(kind, f"the module {name!r} of class {kind} is not supported")
    required = [name for name in expected if f"[{name}]" not in _TREE or name in found]
    if list(found) != required:
        raise ExportRefused("module order", f"expected {required}, got {list(found)}")
    total = found["total_energy_sum"]
    if total.reduce != "sum" or total.constant != 1.0:
        raise ExportRefused("AtomwiseReduce", f"expected a plain sum of energies, got reduce={total.reduce!r}")
    return found


def _network(tree: dict[str, torch.nn.Module], types: int) -> AllegroNetwork:
    module = tree["allegro"]
    lmax = _harmonics(tree["tensor_embed"])
    scalars, channels = int(module.num_scalar_features), int(module.num_tensor_features)
    weigher = module._env_weighter

    latents = []
    for index, latent in enumerate(module.latents):
        weights = mlp_weights(latent, "allegro_mlp_nonlinearity")
        if index + 1 < module.num_layers:
            own, environment = weights[-1][:, :scalars], weights[-1][:, scalars:]
            weights[-1] = torch.cat([own, _by_degree(environment, weigher, lmax)], dim=1)
        latents.append(weights)

    tensors = [Irreps.parse(str(tp.irreps_in1)) for tp in module.tps]
    tensors.append(Irreps.parse(str(module.tps[-1].irreps_out)))
    two_body = tree["tensor_embed"]
    first = _one_matrix(module.first_layer_env_embed_projection)
    heads = torch.cat(
        [
            first[:, :scalars],
            _by_degree(first[:, scalars:], weigher, lmax),
            _by_degree(_one_matrix(two_body.env_embed_linear), two_body._edge_weighter, lmax),
        ],
        dim=1,
    )
    embed = mlp_weights(tree["scalar_embed_mlp"].mlp_module, "scalar_embed_mlp_nonlinearity")
    basis, roots, per_pair = _two_body_basis(tree["radial_chemical_embed"], types)
    shared = [*embed[:-1], embed[-1] @ heads]
    return AllegroNetwork(
        scalars=scalars,
        channels=channels,
        lmax=lmax,
        tensors=tensors,
        basis=basis,
        roots=roots,
        pair_weights=per_pair @ shared[0],
        shared_weights=shared[1:],
        paths=[_path_weights(tp, channels, lmax) for tp in module.tps],
        latents=latents,
        readout=mlp_weights(tree["edge_readout"].mlp_module, "readout_mlp_nonlinearity"),
        norm=per_type(module.avg_num_neighbors_norm.norm_const, types, 1.0),
    )


def _harmonics(module: torch.nn.Module) -> int:
    irreps = Irreps.parse(str(module.sh.irreps_out))
    expected = Irreps.parse("+".join(f"{n}{'e' if n % 2 == 0 else 'o'}" for n in range(len(irreps))))
    if irreps != expected or len(irreps) > _LMAX + 1:
        raise ExportRefused("irreps_edge_sh", f"expected {expected} with l up to {_LMAX}, got {irreps}")
    if module.sh.normalization != "component" or not module.sh.normalize:
        raise ExportRefused("edge_sh_normalization", "expected normalised harmonics in 'component' normalisation")
    return len(irreps) - 1


def _by_degree(weight: Tensor, weigher: torch.nn.Module, lmax: int) -> Tensor:
    """Columns [channel][degree] (or [channel] for all degrees alike) of a MakeWeightedChannels -> [degree][channel]."""
    channels = weigher.multiplicity_out
    degrees = lmax + 1
    if weigher.weight_individual_irreps:
        weight = weight.reshape(-1, channels, degrees).transpose(1, 2)
    else:
        weight = weight.reshape(-1, 1, channels).expand(-1, degrees, -1)
    return weigher.alpha * weight.reshape(-1, degrees * channels)


def _one_matrix(module: torch.nn.Module) -> Tensor:
    weights = mlp_weights(module, "linear projection")
    assert len(weights) == 1
    return weights[0]


def _two_body_basis(module: torch.nn.Module, types: int) -> tuple[str, Tensor, Tensor]:
    """Text of the basis (src/core/problem/allegro_problem.h), its numbers, and the matrix of every ordered pair of
    types that follows it, (types * types, basis, embedding)."""
    if type(module).__name__ == "TwoBodySplineScalarEmbed":
        spline = module.spline
        width = fp64(spline.upper - spline.lower)
        if not torch.allclose(width, width[0].expand_as(width), rtol=1e-12, atol=0):
            raise ExportRefused("TwoBodySplineScalarEmbed", "expected spline functions of one width")
        weights = fp64(spline.class_embed.weight).reshape(types * types, spline.num_channels, spline.num_splines)
        return f"spline,{float(width[0]):.17g}", fp64(spline.lower).flatten(), weights.transpose(1, 2)
    parts = [(name, type(part).__name__) for name, part in module.named_children()]
    if parts != [("bessel_encode", "BesselEdgeLengthEncoding"), ("type_embed", "ProductTypeEmbedding")]:
        raise ExportRefused("radial_chemical_embed", f"expected TwoBodyBesselScalarEmbed, got {parts}")
    bessel, embed = module.bessel_encode, module.type_embed
    if type(bessel.cutoff).__name__ not in ("PolynomialCutoff", "RecursiveScriptModule"):
        raise ExportRefused("cutoff", f"expected PolynomialCutoff, got {type(bessel.cutoff).__name__}")
    centre, neighbour = fp64(embed.center_embed.weight), fp64(embed.neighbor_embed.weight)
    both = torch.cat([centre.repeat_interleave(types, 0), neighbour.repeat(types, 1)], dim=1)
    matrix = _one_matrix(embed.basis_linear)
    # sinc(b x) b = sin(pi b x) / (pi x): roots pi b, prefactor 1 / pi.
    text = f"bessel,{1.0 / math.pi:.17g},{float(bessel.cutoff.p):.17g}"
    return text, math.pi * fp64(bessel.bessel_weights).flatten(), matrix.unsqueeze(0) * both.unsqueeze(1)


def _path_weights(tp: torch.nn.Module, channels: int, lmax: int) -> Tensor:
    """(paths, channels) of a Contracter with the normalisation folded in, paths in the order of AllegroProduct."""
    if type(tp).__name__ != "Contracter":
        raise ExportRefused(
            type(tp).__name__, "export the model without the modifier that replaced its tensor products"
        )
    if tp.instructions is not None or tp.irrep_normalization != "component" or tp.scatter_factor is not None:
        raise ExportRefused("Contracter", "expected all paths in 'component' normalisation")
    degrees = []
    for _, l3, p3 in Irreps.parse(str(tp.irreps_out)):
        for _, l1, p1 in Irreps.parse(str(tp.irreps_in1)):
            for l2 in range(lmax + 1):
                if p1 * (-1) ** l2 == p3 and abs(l1 - l2) <= l3 <= l1 + l2:
                    degrees.append(l3)
    assert len(degrees) == tp.num_paths, (degrees, tp.num_paths)
    weights = fp64(tp.weights)
    if tp.path_channel_coupling:
        weights = weights.reshape(channels, len(degrees)).T
    else:
        weights = weights.reshape(len(degrees), 1).expand(-1, channels)
    return weights * torch.tensor([math.sqrt(2 * n + 1) for n in degrees], dtype=torch.float64).unsqueeze(1)
