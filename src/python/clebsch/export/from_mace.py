"""Front end for mace-torch 0.3.16: a `.model` file or an in-memory MACE -> the neutral description.

Every number is read from the module tree, never from a configuration. Runs where mace-torch is installed (it pins
another e3nn than nequip); the result needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..errors import ClebschError, ExportRefused
from ..irreps import Block, Irreps
from ..model_file import not_read
from ..product_basis import ProductBasis
from .chemistry import SYMBOLS
from .description import Description, LinearMap, ProductLayer, ProductReadout, Provenance
from .mace_cueq import as_e3nn
from .mace_nonlinear import gated_message, nonlinear_density, nonlinear_radial, split_columns
from .mace_parts import fp64, linear_map, paths_of, readout_vector, self_connection, silu_constant
from .mace_radial import Basis, density_of, pair_repulsion, radial_basis, radial_of

#: What is read here; everything else is refused by its class's name.
_MODELS = ("MACE", "ScaleShiftMACE")
_AGNOSTIC = ("RealAgnosticInteractionBlock", "RealAgnosticDensityInteractionBlock")
_NONLINEAR = "RealAgnosticResidualNonLinearInteractionBlock"
_INTERACTIONS = (
    *_AGNOSTIC,
    "RealAgnosticResidualInteractionBlock",
    "RealAgnosticDensityResidualInteractionBlock",
    _NONLINEAR,
)
_ENERGY = Irreps([Block(1, 0, 1)])
#: Why a model of another class is refused.
_OTHERS = {
    "MACELES": "its energy has a long-range part (latent Ewald summation), which a model file cannot hold",
    "PolarMACE": "its energy has a long-range part and depends on the total charge and field",
    "AtomicDipolesMACE": "it gives dipoles, no energy",
    "AtomicDielectricMACE": "it gives dipoles and polarizabilities, no energy",
    "EnergyDipolesMACE": "it gives dipoles beside the energy, which no output of a model file holds",
}
#: Packages that a `.model` file may need to be read, beside mace-torch.
_KERNELS = ("cuequivariance", "cuequivariance_torch", "openequivariance", "les")


def load(path: str | Path) -> torch.nn.Module:
    """The model of a `.model` file, on the CPU. The file is a pickle: loading it runs code from it.

    Raises ClebschError where mace-torch is not installed or the file does not hold a model.
    """
    path = Path(path)
    if not path.is_file():
        raise ClebschError(f"expected a MACE .model file, got {str(path)!r}: no such file")
    try:
        import mace  # noqa: F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
    except ImportError as error:
        raise ClebschError(
            f"reading {path.name} needs the mace-torch package, which this Python cannot import ({error}). Run the "
            "export in mace's own environment: clebsch export mace IN OUT.pt --python /path/to/its/bin/python"
        ) from error
    try:
        model = torch.load(path, map_location="cpu", weights_only=False)
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in _KERNELS:
            raise ClebschError(f"mace-torch could not read {path}: {error}") from error
        raise ExportRefused(
            package,
            f"{path} was saved with modules of {package}, which this Python cannot import: export where it can, or "
            "save the model as plain e3nn there (python -m mace.cli.convert_cueq_e3nn or convert_oeq_e3nn)",
        ) from error
    except Exception as error:  # whatever a file that is not upstream's makes its unpickling raise
        raise ClebschError(not_read(path, "mace-torch", "a model that mace-torch has saved (.model)", error)) from error
    if isinstance(model, torch.jit.ScriptModule):  # which torch.load reads as well
        expected = "a model that mace-torch has saved (.model)"
        raise ClebschError(not_read(path, "mace-torch", expected, TypeError("it is a TorchScript file")))
    if not isinstance(model, torch.nn.Module):
        raise ClebschError(f"{path}: expected a pickled model, got {type(model).__name__}")
    return model


def describe(
    model: torch.nn.Module,
    source: str = "",
    training_note: str = "",
    head: str | None = None,
    elements: Sequence[str] | None = None,
) -> Description:
    """The neutral description. head: of a model with several, by name; elements: those to keep, in the model's order.

    Raises ExportRefused, naming the option, for what Clebsch does not have.
    """
    _check_class(model)
    model = as_e3nn(model)
    _check_modules(model)
    numbers = [int(z) for z in model.atomic_numbers.tolist()]
    kept = _kept(numbers, elements)
    heads = list(getattr(model, "heads", ["Default"]))
    index = _head(heads, head)
    cutoff = float(model.r_max)
    harmonics = Irreps.parse(str(model.spherical_harmonics.irreps_out)).simplify()
    basis = radial_basis(model.radial_embedding, cutoff, [numbers[k] for k in kept])

    embedding = linear_map(model.node_embedding.linear)
    features = embedding.irreps_out.simplify()
    table = embedding.blocks[0][2][kept]
    layers = []
    count = len(model.interactions)
    readouts: list[torch.nn.Module | None] = [None] * (count - len(model.readouts)) + list(model.readouts)
    for k, (interaction, product) in enumerate(zip(model.interactions, model.products, strict=True)):
        layer = _layer(k, interaction, product, readouts[k], features, harmonics, basis, (len(numbers), kept), index)
        layers.append(layer)
        features = layer.product.irreps_out
    scale, shift = _scale_shift(model, index)
    energies = fp64(torch.atleast_2d(model.atomic_energies_fn.atomic_energies))[index][kept]
    return Description(
        family="mace",
        dtype=_dtype_name(model),
        type_names=[SYMBOLS[numbers[k]] for k in kept],
        atomic_numbers=[numbers[k] for k in kept],
        r_max=cutoff,
        pair_cutoffs=torch.full((len(kept), len(kept)), cutoff, dtype=torch.float64),
        embedding=table,
        layers=layers,
        readout=_readout(readouts[-1], features, len(heads), index),
        scale=torch.full((len(kept),), scale, dtype=torch.float64),
        shift=energies + shift,
        pair=pair_repulsion(model, [numbers[k] for k in kept], scale),
        provenance=_provenance(source, training_note, heads[index] if len(heads) > 1 else ""),
    )


def _check_class(model: torch.nn.Module) -> None:
    """Refuses models that are no MACE of energies, with the reason."""
    kind = type(model).__name__
    if kind not in _MODELS:
        reason = f"; {_OTHERS[kind]}" if kind in _OTHERS else ""
        raise ExportRefused(kind, f"expected {' or '.join(_MODELS)}, got {kind}{reason}")
    if hasattr(model, "joint_embedding"):
        names = ", ".join(getattr(model, "embedding_specs", None) or [])
        raise ExportRefused(
            "embedding_specs", f"its energy depends on more than the atoms ({names}): no input has that"
        )


def _check_modules(model: torch.nn.Module) -> None:
    """Refuses modules that are not here, by the name a user knows them by."""
    for k, interaction in enumerate(model.interactions):
        name = type(interaction).__name__
        if name not in _INTERACTIONS:
            reason = (
                "its weights depend on the features of both atoms, not on the distance alone; " if "Att" in name else ""
            )
            raise ExportRefused(name, f"interaction {k}: {reason}expected {' or '.join(_INTERACTIONS)}")
    for k, readout in enumerate(list(model.readouts)[:-1]):
        name = type(readout).__name__
        if name != "LinearReadoutBlock":
            raise ExportRefused(name, f"readout {k}: expected LinearReadoutBlock in every layer but the last")
    for name, module in model.named_modules():
        package = type(module).__module__.split(".")[0]
        if package in ("cuequivariance_torch", "openequivariance"):
            raise ExportRefused(
                package,
                f"{name} is a module of {package}: convert the model to plain e3nn first (python -m "
                "mace.cli.convert_cueq_e3nn or convert_oeq_e3nn)",
            )
        if "lora" in type(module).__name__.lower():
            raise ExportRefused("LoRA", f"{name}: merge the low-rank updates into the model first")


def check_elements(elements: Iterable[str]) -> list[str]:
    """The symbols as a list. Raises ClebschError for what are none."""
    if isinstance(elements, str):  # a sequence of its letters
        raise ClebschError(f"elements: expected a list of symbols, got the text {elements!r}")
    elements = list(elements)
    for element in elements:
        if not isinstance(element, str):
            raise ClebschError(f"elements: expected symbols such as 'O', got {element!r}")
    return elements


def _kept(numbers: list[int], elements: Sequence[str] | None) -> list[int]:
    if elements is None:
        return list(range(len(numbers)))
    names = [SYMBOLS[z] for z in numbers]
    unknown = [e for e in elements if e not in names]
    if unknown or not elements:
        raise ClebschError(f"elements: expected some of {' '.join(names)}, got {' '.join(elements) or 'none'}")
    return [k for k, name in enumerate(names) if name in elements]


def _head(heads: list[str], head: str | None) -> int:
    if head is None:
        if len(heads) > 1:
            raise ClebschError(f"head: the model has {len(heads)}, expected one of {', '.join(heads)}")
        return 0
    if head not in heads:
        raise ClebschError(f"head: expected one of {', '.join(heads)}, got {head!r}")
    return heads.index(head)


def _layer(
    index: int,
    interaction: torch.nn.Module,
    product: torch.nn.Module,
    readout: torch.nn.Module | None,
    features: Irreps,
    harmonics: Irreps,
    basis: Basis,
    species: tuple[int, list[int]],
    head: int,
) -> ProductLayer:
    """features: of x, with the energy so far behind them in every layer but the first."""
    total, kept = species
    one_hot = torch.eye(total, dtype=torch.float64)[kept]
    irreps_mid, paths = paths_of(interaction.conv_tp)
    name = type(interaction).__name__
    linear_in, gated, connection = linear_map(interaction.linear_up), None, None
    if name == _NONLINEAR:
        radial, density = nonlinear_radial(interaction, basis, kept), nonlinear_density(interaction, basis, kept)
        linear_out = linear_map(interaction.linear_1)
        gated = gated_message(interaction, linear_in, features)
        linear_out = LinearMap(linear_out.irreps_in, gated.gate.irreps_in, split_columns(linear_out, gated.gate))
    else:
        radial, density = radial_of(interaction.conv_tp_weights, basis), density_of(interaction, basis)
        linear_out = linear_map(interaction.linear)
        if density is None:
            linear_out.blocks = [(a, b, w / float(interaction.avg_num_neighbors)) for a, b, w in linear_out.blocks]
    if name in _AGNOSTIC:
        linear_out = _chained(linear_out, self_connection(interaction.skip_tp, one_hot))
    contraction = product.symmetric_contractions
    expansion = ProductBasis.from_mace(contraction)
    coefficients = expansion.coefficients([[fp64(w) for w in part] for part in ProductBasis.weights(contraction)])
    if coefficients.shape[0] == 1:  # use_agnostic_product
        coefficients = coefficients.expand(len(kept), -1, -1).clone()
    else:
        coefficients = coefficients[kept]
    update = linear_map(product.linear)
    if product.use_sc and name == _NONLINEAR:
        connection = linear_map(interaction.skip_tp)
    elif product.use_sc and name not in _AGNOSTIC:
        connection = self_connection(interaction.skip_tp, one_hot)
    reader = None if readout is None else readout_vector(readout, update.irreps_out, head)
    return ProductLayer(
        irreps_in=Irreps.parse(str(interaction.conv_tp.irreps_in1)),
        irreps_harmonics=harmonics,
        irreps_mid=irreps_mid,
        paths=paths,
        radial=radial,
        linear_in=_padded(linear_in, features),
        linear_out=linear_out,
        basis_problem=expansion.problem,
        coefficients=coefficients,
        product=_with_energy(update, reader),
        self_connection=_carried(connection, reader, features, update.irreps_out, index > 0, len(kept)),
        density=density,
        gated=gated,
    )


def _chained(first: LinearMap, second: LinearMap) -> LinearMap:
    """second after first, per type."""
    blocks = [
        (a, c, torch.einsum("uv,tvw->tuw", weight, typed))
        for a, b, weight in first.blocks
        for b2, c, typed in second.blocks
        if b == b2
    ]
    return LinearMap(first.irreps_in, second.irreps_out, blocks)


def _padded(value: LinearMap, features: Irreps) -> LinearMap:
    """The same map of features that go on behind its own input."""
    assert features[: len(value.irreps_in)] == tuple(value.irreps_in), (features, value.irreps_in)
    return LinearMap(features, value.irreps_out, value.blocks)


def _with_energy(value: LinearMap, reader: Tensor | None) -> LinearMap:
    """The map with the energy that a linear readout finds in its result as one more output."""
    last = len(value.irreps_out)
    blocks = list(value.blocks)
    if reader is not None:
        scalar = _scalar_block(value.irreps_out)
        blocks += [(a, last, weight @ reader) for a, b, weight in value.blocks if b == scalar]
    return LinearMap(value.irreps_in, value.irreps_out + _ENERGY, blocks)


def _carried(
    connection: LinearMap | None,
    reader: Tensor | None,
    features: Irreps,
    irreps_out: Irreps,
    has_energy: bool,
    types: int,
) -> LinearMap | None:
    """The self-connection, with the energy so far carried on and what the readout finds in its result added."""
    if connection is None and not has_energy:
        return None
    blocks = [] if connection is None else list(connection.blocks)
    last = len(irreps_out)
    if reader is not None and connection is not None:
        scalar = _scalar_block(irreps_out)
        blocks += [(a, last, weight @ reader) for a, b, weight in connection.blocks if b == scalar]
    if has_energy:
        typed = connection is None or any(w.dim() == 3 for _, _, w in connection.blocks)
        shape = (types, 1, 1) if typed else (1, 1)
        blocks.append((len(features) - 1, last, torch.ones(*shape, dtype=torch.float64)))
    return LinearMap(features, irreps_out + _ENERGY, blocks)


def _scalar_block(irreps: Irreps) -> int:
    return next(k for k, block in enumerate(irreps) if block.irrep == (0, 1))


def _scale_shift(model: torch.nn.Module, head: int) -> tuple[float, float]:
    if not hasattr(model, "scale_shift"):
        return 1.0, 0.0
    block = model.scale_shift
    return float(torch.atleast_1d(block.scale)[head]), float(torch.atleast_1d(block.shift)[head])


def _readout(module: torch.nn.Module | None, features: Irreps, heads: int, head: int) -> ProductReadout:
    """What is left for the end: the energy so far, and the hidden layer of the last readout."""
    width = features.dim
    direct = torch.zeros(width, dtype=torch.float64)
    direct[-1] = 1.0
    if module is None:
        raise ExportRefused("use_last_readout_only", "a model of one interaction without a readout has no energy")
    if type(module).__name__ == "LinearReadoutBlock":
        return ProductReadout(direct, None)
    if type(module).__name__ != "NonLinearReadoutBlock":
        raise ExportRefused(type(module).__name__, "expected LinearReadoutBlock or NonLinearReadoutBlock")
    first, last = linear_map(module.linear_1), linear_map(module.linear_2)
    if len(first.irreps_out.simplify()) != 1 or len(last.blocks) != 1:
        raise ExportRefused("MLP_irreps", f"expected scalars in the last readout, got {first.irreps_out}")
    constant = silu_constant(module.non_linearity)
    each = first.irreps_out.dim // heads
    mine = slice(head * each, (head + 1) * each)  # upstream masks the hidden channels of the other heads
    hidden = torch.zeros(width, each, dtype=torch.float64)
    scalar = _scalar_block(first.irreps_in)
    start = first.irreps_in[:scalar]
    offset = sum(block.dim for block in start)
    weight = sum(w for a, _, w in first.blocks if a == scalar)
    hidden[offset : offset + weight.shape[0]] = weight[:, mine]
    return ProductReadout(direct, (hidden, constant * last.blocks[0][2][mine, head]))


def _dtype_name(model: torch.nn.Module) -> str:
    name = str(next(model.parameters()).dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ExportRefused("dtype", f"expected float32 or float64, got {name}")
    return name


def _provenance(source: str, note: str, head: str) -> Provenance:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in ("mace-torch", "e3nn", "torch"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    extra = {"e3nn": versions["e3nn"], "torch": versions["torch"]}
    if head:
        extra["head"] = head
    return Provenance("mace-torch", versions["mace-torch"], os.path.basename(source), note, extra)
