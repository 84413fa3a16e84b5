"""Front end for nequip 0.19: an upstream model (file or object) -> the neutral description.

Every number is read from the module tree, never from a configuration: what was trained is what is exported. Modules
are recognised by the name of their class, because the classes inside a nequip package are copies.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from ..errors import ClebschError, ExportRefused
from ..irreps import Irreps
from ..model_file import not_read
from .chemistry import atomic_numbers
from .description import Description, Layer, PairRepulsion, Provenance, Radial
from .nequip_parts import (
    convolution_paths,
    gate_of,
    linear_map,
    mlp_weights,
    self_connection,
    split_to_gate_order,
)

_PREFIX = [
    "NodeTypeEmbed",
    "SphericalHarmonicEdgeAttrs",
    "EdgeLengthNormalizer",
    "BesselEdgeLengthEncoding",
    "ApplyFactor",
]
_SUFFIX = ["ScalarMLP", "PerTypeScaleShift"]


def load(path: str | Path) -> torch.nn.Module:
    """The eager model of a checkpoint (.ckpt, averaged weights if it has them) or a package (.nequip.zip).

    Both formats are pickles: loading one runs code from it. Raises ClebschError where nequip is not installed or the
    file is not one of its own.
    """
    path = Path(path)
    if not path.is_file():
        raise ClebschError(f"expected a nequip checkpoint or package, got {str(path)!r}: no such file")
    try:
        from nequip.model.saved_models.load_utils import load_saved_model
        from nequip.utils.global_state import global_state_initialized, set_global_state
    except ImportError as error:
        raise ClebschError(
            f"reading {path.name} needs the nequip package, which this Python cannot import ({error}). Run the export "
            "in nequip's own environment: clebsch export nequip IN OUT.pt --python /path/to/its/bin/python"
        ) from error
    if not global_state_initialized():
        set_global_state(allow_tf32=False)
    try:
        return load_saved_model(str(path), model_key=None)
    except Exception as error:  # whatever a file that is not upstream's makes its unpickling raise
        raise ClebschError(
            not_read(path, "nequip", "a checkpoint (.ckpt) or a package (.nequip.zip) of nequip", error)
        ) from error


def describe(model: torch.nn.Module, source: str = "", training_note: str = "") -> Description:
    """The neutral description of an in-memory model. Raises ExportRefused, naming the option, for what is not there."""
    graph_model = select_model(model)
    network = energy_network(graph_model)
    tree = list(network.named_children())
    kinds = [type(module).__name__ for _, module in tree]
    convolutions = [i for i, kind in enumerate(kinds) if kind == "ConvNetLayer"]
    pair = _check_tree(tree, kinds, len(convolutions))
    embed, harmonics, lengths, bessel, factor = (module for _, module in tree[: len(_PREFIX)])
    readout, energies = (module for _, module in tree[len(_PREFIX) + len(convolutions) :][:2])

    type_names = [str(name) for name in energies.type_names]
    types = len(type_names)
    if embed.do_categorical_graph_field_embed:
        raise ExportRefused("categorical_graph_field_embed", "embeddings of whole-structure fields are not supported")
    attributes = fp64(embed.embed_module.weight)
    cutoffs = pair_cutoffs(lengths, types)
    roots, prefactor, cutoff_p = _radial_basis(bessel, factor)
    irreps_harmonics = _harmonics(harmonics)

    layers = []
    embedding = attributes
    for index, position in enumerate(convolutions):
        layer = _layer(index, tree[position][1], attributes, irreps_harmonics, (roots, prefactor, cutoff_p))
        if index == 0:
            embedding = _fold_embedding(attributes, layer)
        layers.append(layer)

    numbers = atomic_numbers(type_names)
    zbl = None
    if pair is not None:
        zbl = zbl_term(pair)
        numbers = [int(z) for z in zbl.charges.tolist()]
    return Description(
        family="nequip",
        dtype=dtype_name(graph_model, attributes_dtype=embed.embed_module.weight.dtype),
        type_names=type_names,
        atomic_numbers=numbers,
        r_max=float(cutoffs.max()),
        pair_cutoffs=cutoffs,
        embedding=embedding,
        layers=layers,
        readout=mlp_weights(readout.mlp_module, "readout_mlp_nonlinearity"),
        scale=per_type(energies.scales if energies.has_scales else None, types, 1.0),
        shift=per_type(energies.shifts if energies.has_shifts else None, types, 0.0),
        pair=zbl,
        provenance=provenance(source, training_note),
    )


def select_model(model: torch.nn.Module) -> torch.nn.Module:
    """The one GraphModel inside whatever the caller has: a Lightning module, a ModuleDict, or the model itself."""
    if hasattr(model, "evaluation_model"):
        model = model.evaluation_model
    if isinstance(model, torch.nn.ModuleDict):
        if len(model) != 1:
            raise ExportRefused("several models", f"expected one model in the file, got {list(model)}")
        model = next(iter(model.values()))
    return model


def energy_network(model: torch.nn.Module) -> torch.nn.Module:
    """The SequentialGraphNetwork below GraphModel and ForceStressOutput."""
    seen = []
    current = model
    while type(current).__name__ != "SequentialGraphNetwork":
        seen.append(type(current).__name__)
        inner = getattr(current, "model", None)
        inner = inner if isinstance(inner, torch.nn.Module) else getattr(current, "func", None)
        if type(current).__name__ not in ("GraphModel", "CompileGraphModel", "ForceStressOutput") or inner is None:
            raise ExportRefused(
                type(current).__name__,
                f"expected GraphModel > ForceStressOutput > SequentialGraphNetwork, got {' > '.join(seen)}",
            )
        current = inner
    return current


def fp64(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64).clone()


def _check_tree(tree: list[tuple[str, torch.nn.Module]], kinds: list[str], layers: int) -> torch.nn.Module | None:
    """Refuses any module that is not in its place, by name; returns the pair term, if there is one."""
    expected = _PREFIX + ["ConvNetLayer"] * max(layers, 1) + _SUFFIX
    tail = kinds[len(expected) :]
    known = {*expected, "ZBL", "AtomwiseReduce"}
    for (name, _), kind in zip(tree, kinds, strict=True):
        if kind not in known:
            raise ExportRefused(kind, f"the module {name!r} of class {kind} is not supported")
    if kinds[: len(expected)] != expected or tail not in (["AtomwiseReduce"], ["ZBL", "AtomwiseReduce"]):
        raise ExportRefused("module order", f"expected {expected + ['[ZBL]', 'AtomwiseReduce']}, got {kinds}")
    total = tree[-1][1]
    if total.reduce != "sum" or total.constant != 1.0:
        raise ExportRefused("AtomwiseReduce", f"expected a plain sum of energies, got reduce={total.reduce!r}")
    return tree[-2][1] if tail[0] == "ZBL" else None


def pair_cutoffs(lengths: torch.nn.Module, types: int) -> Tensor:
    """(T, T) [centre][neighbour] in Angstrom, from the reciprocals that the model multiplies with."""
    reciprocal = fp64(lengths._rmax_recip)
    if reciprocal.numel() not in (1, types * types):
        raise ExportRefused("per_edge_type_cutoff", f"expected 1 or {types * types} cutoffs, got {reciprocal.numel()}")
    cutoffs = [_undo_reciprocal(value) for value in reciprocal.flatten().tolist()]
    return torch.tensor(cutoffs, dtype=torch.float64).expand(types * types).reshape(types, types).clone()


def _undo_reciprocal(value: float) -> float:
    """1 / value as the number a person wrote, where that number has the same reciprocal."""
    written = float(f"{1.0 / value:.12g}")
    return written if 1.0 / written == value else 1.0 / value


def _radial_basis(bessel: torch.nn.Module, factor: torch.nn.Module) -> tuple[Tensor, float, float]:
    """sinc(b x) b = sin(pi b x) / (pi x): roots pi b, prefactor factor / pi."""
    if type(bessel.cutoff).__name__ not in ("PolynomialCutoff", "RecursiveScriptModule"):
        raise ExportRefused("cutoff", f"expected PolynomialCutoff, got {type(bessel.cutoff).__name__}")
    if bessel.edge_invariant_field != factor.in_field or factor.in_field != factor.out_field:
        raise ExportRefused("ApplyFactor", f"expected a factor on the edge embedding, got one on {factor.in_field!r}")
    roots = math.pi * fp64(bessel.bessel_weights).flatten()
    return roots, float(factor.factor) / math.pi, float(bessel.cutoff.p)


def _harmonics(module: torch.nn.Module) -> Irreps:
    irreps = Irreps.parse(str(module.irreps_edge_sh))
    expected = Irreps.parse("+".join(f"{n}{'e' if n % 2 == 0 else 'o'}" for n in range(len(irreps))))
    if irreps != expected:
        raise ExportRefused("irreps_edge_sh", f"expected {expected}, got {irreps}")
    if module.sh.normalization != "component" or not module.sh.normalize:
        raise ExportRefused("edge_sh_normalization", "expected normalised harmonics in 'component' normalisation")
    return irreps


def _layer(
    index: int, module: torch.nn.Module, attributes: Tensor, harmonics: Irreps, basis: tuple[Tensor, float, float]
) -> Layer:
    if module.resnet:
        raise ExportRefused("convnet_resnet", f"layer {index} adds its input to its output")
    conv = module.conv
    if type(conv).__name__ != "InteractionBlock":
        raise ExportRefused(type(conv).__name__, f"layer {index}: expected InteractionBlock")
    if type(conv.ghost_exchange).__name__ != "NoOpGhostExchangeModule":
        raise ExportRefused(type(conv.ghost_exchange).__name__, "export the model without communication modifiers")
    if index == 0 and conv.sc is not None:
        raise ExportRefused("learnable_shift", "a self-connection in the first layer is not supported")
    gate = gate_of(module.equivariant_nonlin)
    irreps_mid, paths = convolution_paths(conv.tp_scatter)
    norm = fp64(conv.avg_num_neighbors_norm.norm_const).flatten()
    linear_in = linear_map(conv.linear_1)
    if norm.numel() == 1:
        # One number for all types: a factor of the linear map before the convolution.
        linear_in.blocks = [(a, b, w * norm) for a, b, w in linear_in.blocks]
    roots, prefactor, cutoff_p = basis
    return Layer(
        irreps_in=Irreps.parse(str(conv.tp_scatter.feature_irreps_in)),
        irreps_harmonics=harmonics,
        irreps_mid=irreps_mid,
        paths=paths,
        radial=Radial(roots, prefactor, cutoff_p, mlp_weights(conv.edge_mlp, "radial_mlp")),
        linear_in=linear_in,
        sender_norm=norm.reshape(-1, 1) if norm.numel() > 1 else None,
        linear_out=split_to_gate_order(linear_map(conv.linear_2), module.equivariant_nonlin, gate),
        self_connection=None
        if conv.sc is None
        else split_to_gate_order(self_connection(conv.sc, attributes), module.equivariant_nonlin, gate),
        gate=gate,
    )


def _fold_embedding(attributes: Tensor, layer: Layer) -> Tensor:
    """Type embedding, first linear map and sender normalisation are one table of the types."""
    assert layer.linear_in is not None
    weights = [weight for _, _, weight in layer.linear_in.blocks]
    if len(weights) != 1 or layer.irreps_in[0].irrep != (0, 1):
        raise ExportRefused("type_embed", f"expected even scalars as first features, got {layer.irreps_in}")
    table = attributes @ weights[0]
    if layer.sender_norm is not None:
        table = table * layer.sender_norm
    layer.linear_in = None
    layer.sender_norm = None
    return table


def per_type(values: Tensor | None, types: int, default: float) -> Tensor:
    if values is None:
        return torch.full((types,), default, dtype=torch.float64)
    return fp64(values).flatten().expand(types).clone()


def zbl_term(module: torch.nn.Module) -> PairRepulsion:
    half_coulomb = float(module._qqr2exesquare)
    # LAMMPS' metal constant; the other choice upstream offers is kcal/mol, which would make the whole model kcal/mol.
    if not math.isclose(half_coulomb, 0.5 * 14.399645, rel_tol=1e-6):
        raise ExportRefused("ZBL units", f"expected units: metal (eV, 7.1998225), got a prefactor of {half_coulomb}")
    return PairRepulsion(fp64(module.atomic_numbers), half_coulomb, float(module.cutoff.p))


def dtype_name(model: torch.nn.Module, attributes_dtype: torch.dtype) -> str:
    dtype = getattr(model, "model_dtype", attributes_dtype)
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ExportRefused("model_dtype", f"expected float32 or float64, got {name}")
    return name


def provenance(source: str, note: str, package: str = "nequip") -> Provenance:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in {package, "nequip", "e3nn", "torch"}:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    extra = {"e3nn": versions["e3nn"], "torch": versions["torch"]}
    if package != "nequip":
        extra["nequip"] = versions["nequip"]
    return Provenance(package, versions[package], source, note, extra)
