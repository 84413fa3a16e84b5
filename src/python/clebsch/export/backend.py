"""From the neutral description to the TorchScript file (docs/developers/map.md, "Model file"). Needs torch alone."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..errors import ClebschError, refusing_unknown
from ..irreps import Irreps
from ..library import ensure_ops
from . import allegro_modules, mace_modules, modules, problems
from .description import AllegroNetwork, Description, Layer, ProductLayer, ProductReadout, Radial

FORMAT = "clebsch-model"
FORMAT_VERSION = 1
DTYPES = {"float32": torch.float32, "float64": torch.float64}

#: Buffers that keep fp64 (or are integer); all others are converted to the run's dtype at load.
_KEPT = {"table_index", "cutoffs", "basis", "scale", "shift", "charges", "norm", "transform", "counts", "covariance"}


def build(description: Description, dtype: str) -> tuple[torch.jit.ScriptModule, dict[str, Any]]:
    """The scripted model, weights in `dtype`, and its metadata. Nothing is written."""
    if dtype not in DTYPES:
        raise ClebschError(f"dtype: expected float32 or float64, got {dtype!r}")
    ensure_ops()
    _check(description)
    submodules = parts(description, DTYPES[dtype])
    sources = _methods(description)

    # A class of its own for every model: TorchScript keeps the methods of a class, and their number differs.
    class Model(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            for name, module in submodules.items():
                setattr(self, name, module)
            for source in sources:
                self.define(source)

    return Model().eval(), metadata(description, dtype, submodules)


def parts(description: Description, dtype: torch.dtype) -> dict[str, torch.nn.Module]:
    """The submodules of a model file, not yet scripted; tests run them with reference ops."""
    d = description
    result: dict[str, torch.nn.Module]
    if d.family == "allegro":
        result = {
            "embedding": allegro_modules.TypeScale(d.scale.clone()),
            "layer0": _allegro_layer(d.layers[0], d.pair_cutoffs, dtype),
            "energy": allegro_modules.TypeShift(d.shift.clone()),
        }
    else:
        result = {"embedding": modules.Embedding(d.embedding.to(dtype))}
        for index, layer in enumerate(d.layers):
            if isinstance(layer, ProductLayer):
                by_type = d.embedding if index == 0 else None
                result[f"layer{index}"] = _product_layer(index, layer, d.pair_cutoffs, dtype, by_type)
            else:
                result[f"layer{index}"] = _layer(index, layer, d.pair_cutoffs, dtype)
        result["energy"] = _readout(d, dtype)
    if d.pair is not None:
        text = problems.pair_repulsion(d.pair)
        cutoffs = d.pair_cutoffs if d.pair.cutoffs is None else d.pair.cutoffs
        result["pair"] = modules.PairRepulsion(text, cutoffs.clone(), d.pair.charges.clone())
    if d.grade is not None:
        first, _ = features(d)
        tensors = (torch.from_numpy(v).to(torch.float64).contiguous()
                   for v in (d.grade.transform, d.grade.counts, d.grade.covariance))  # fmt: skip
        result["grade"] = modules.Grade(d.grade.grade, first, *tensors)
    return result


def features(d: Description) -> tuple[int, int]:
    """First and number of the columns of the last layer that the last readout reads as scalars: not the energy so far,
    which is the last column of a MACE layer. Of Allegro: columns of `layer_0_features`, whose first is the energy."""
    if d.family == "allegro":
        return 1, d.layers[0].readout[-1].shape[0]
    last = d.layers[-1]
    irreps = last.product.irreps_out if isinstance(last, ProductLayer) else last.gate.irreps_out
    if not isinstance(last, ProductLayer):
        return 0, irreps.dim
    place = next(k for k, block in enumerate(irreps) if block.irrep == (0, 1))
    first = sum(block.dim for block in irreps[:place])
    return first, min(irreps[place].mul, irreps.dim - 1 - first)


def _grade_metadata(d: Description) -> dict[str, Any]:
    """The keys of a file's features and, where it has one, of its grade."""
    first, count = features(d)
    keys: dict[str, Any] = {"features": {"first": first, "count": count}}
    if d.grade is not None:
        g = d.grade
        keys["extrapolation"] = {
            "grade": g.grade, "pooling": g.pooling, "counts": [int(n) for n in g.counts], "ridge": g.ridge,
            "median": g.median, "q99": g.q99, "q9999": g.q9999, "maximum": g.maximum,
        }  # fmt: skip
    return keys


def metadata(description: Description, dtype: str, submodules: dict[str, torch.nn.Module]) -> dict[str, Any]:
    d = description
    names = [f"{part}.{name}" for part, module in submodules.items() for name, _ in module.named_buffers()]
    kept = [name for name in names if name.rsplit(".", 1)[-1] in _KEPT]
    outputs = ["atomic_energy"] + ["extrapolation"] * (d.grade is not None)
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "family": d.family,
        "layers": len(d.layers),
        "dtype": dtype,
        "type_names": d.type_names,
        "atomic_numbers": d.atomic_numbers,
        "r_max": d.r_max,
        "pair_cutoffs": d.pair_cutoffs.tolist(),
        "units": {"energy": "eV", "length": "Angstrom"},
        "outputs": outputs,
        "output_kinds": dict.fromkeys(outputs, "atom"),
        **_grade_metadata(d),
        "parameters": {"compute": [n for n in names if n not in kept], "fp64": kept},
        "radial": [
            {
                "module": f"layer{i}.interaction" + (".message" if _has_density(layer) else ""),
                "problem": problems.interaction(layer),
            }
            for i, layer in enumerate(d.layers)
        ]
        + [
            {"module": f"layer{i}.interaction.density", "problem": problems.density(layer.density)}
            for i, layer in enumerate(d.layers)
            if _has_density(layer)
        ],
        "pair_energy": d.pair is not None,
        "upstream": {
            "package": d.provenance.package,
            "version": d.provenance.version,
            "source": d.provenance.source,
            "dtype": d.dtype,
            **d.provenance.extra,
        },
        "training_note": d.provenance.training_note,
        "exporter": f"clebsch {__version__}",
    }


def check_destination(out: str | os.PathLike[str], *sources: Any) -> None:
    """Refuses what no file can be written to, before the work; so it does a file that is one of the sources."""
    out = Path(out)
    for source in sources:
        if isinstance(source, (str, os.PathLike)) and out.exists() and os.path.exists(source):
            if os.path.samefile(source, out):
                raise ClebschError(f"expected another file to write than is read, got {str(out)!r} for both")
    if not out.parent.is_dir():
        raise ClebschError(f"expected an existing folder to write into, got {str(out.parent)!r}")
    if out.is_dir():
        raise ClebschError(f"expected the name of a file to write, got the folder {str(out)!r}")


def write(
    description: Description,
    out: str | os.PathLike[str],
    dtype: str,
    check: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Writes the model file and returns its metadata. `check` sees the finished file before it takes its name; if it,
    or anything else, raises, an existing `out` is as it was and nothing new is left."""
    out = Path(out)
    check_destination(out)
    with refusing_unknown():
        scripted, meta = build(description, dtype)
    handle, temporary = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)
    os.close(handle)
    try:
        Path(temporary).write_bytes(_archive(scripted, json.dumps(meta, indent=1)))
        # mkstemp makes the file private to its owner; a model is as readable as the user's other files.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        if check is not None:
            check(Path(temporary))
        os.replace(temporary, out)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return meta


def _archive(scripted: torch.jit.ScriptModule, text: str) -> bytes:
    """The archive without TorchScript's debug records: they hold the exporting machine's paths and nothing we need."""
    full = io.BytesIO()
    torch.jit.save(scripted, full, _extra_files={"clebsch.json": text})
    full.seek(0)
    reader = torch._C.PyTorchFileReader(full)
    stripped = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(stripped)
    for name in reader.get_all_records():
        # The writer adds its own version and id.
        if name.endswith(".debug_pkl") or name in ("version", ".data/version", ".data/serialization_id"):
            continue
        record = reader.get_record(name)
        writer.write_record(name, record, len(record))
    writer.write_end_of_file()
    return stripped.getvalue()


def _methods(d: Description) -> list[str]:
    layers, pair, grade = len(d.layers), d.pair is not None, d.grade is not None
    graph = "edge_vec: Tensor, types: Tensor, graph: List[Tensor]"
    sources = ["def embed(self, types: Tensor) -> Tensor:\n    return self.embedding(types)\n"]
    for k in range(layers):
        sources.append(
            f"def layer_{k}(self, x: Tensor, {graph}) -> Tensor:\n    return self.layer{k}(x, edge_vec, types, graph)\n"
        )
    if d.family == "allegro":
        sources.append(
            f"def layer_0_features(self, x: Tensor, {graph}) -> Tensor:\n"
            "    return self.layer0.features(x, edge_vec, types, graph)\n"
        )
    sources.append("def readout(self, x: Tensor, types: Tensor) -> Tensor:\n    return self.energy(x, types)\n")
    if pair:
        sources.append(f"def pair_energy(self, {graph}) -> Tensor:\n    return self.pair(edge_vec, types, graph)\n")
    if grade:
        sources.append(
            "def extrapolation(self, x: Tensor, types: Tensor) -> Tensor:\n    return self.grade(x, types)\n"
        )
    body = [f"def forward(self, {graph}) -> Dict[str, Tensor]:", "    x = self.embed(types)"]
    body += [f"    x = self.layer_{k}(x, edge_vec, types, graph)" for k in range(layers)]
    body.append("    energy = self.readout(x, types)")
    if pair:
        body.append("    energy = energy + self.pair_energy(edge_vec, types, graph)")
    body.append('    return {"atomic_energy": energy.narrow(0, 0, graph[0].size(0) - 1)}')
    return [*sources, "\n".join(body) + "\n"]


def _readout(d: Description, dtype: torch.dtype) -> torch.nn.Module:
    if isinstance(d.readout, ProductReadout):
        hidden = d.readout.hidden
        hidden = None if hidden is None else (hidden[0].to(dtype), hidden[1].to(dtype))
        return mace_modules.ProductReadout(d.readout.direct.to(dtype), hidden, d.scale.clone(), d.shift.clone())
    weights = [w.to(dtype) for w in d.readout]
    return modules.Readout(weights[:-1], weights[-1].flatten(), d.scale.clone(), d.shift.clone())


def _has_density(layer: Layer | ProductLayer | AllegroNetwork) -> bool:
    return isinstance(layer, ProductLayer) and layer.density is not None


def _radial(radial: Radial, cutoffs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Cutoffs, basis and network of a `radial` list."""
    return cutoffs.clone(), problems.radial_basis(radial), problems.radial_network(radial).to(dtype)


def _interaction(index: int, layer: Layer | ProductLayer, cutoffs: Tensor, dtype: torch.dtype) -> torch.nn.Module:
    text, radial = problems.convolution(layer), _radial(layer.radial, cutoffs, dtype)
    if not _has_density(layer):
        return modules.Interaction(index, text, *radial)
    density = layer.density
    return mace_modules.DensityInteraction(
        index,
        (text, modules.RadialFunctions(*radial)),
        (problems.density(density), modules.RadialFunctions(*_radial(density.radial, cutoffs, dtype))),
        density.alpha,
        density.beta,
    )


def _product_layer(
    index: int, layer: ProductLayer, cutoffs: Tensor, dtype: torch.dtype, by_type: Tensor | None
) -> mace_modules.ProductLayer:
    """by_type (T, d): x where it depends on the type alone; what senders have is then a table of the types, too."""

    def cast(pair: tuple[str, Tensor]) -> tuple[str, Tensor]:
        return pair[0], pair[1].to(dtype)

    linear_in: tuple[str, Tensor] | Tensor = cast(problems.linear(layer.linear_in))
    if by_type is not None:
        ((_, _, weight),) = layer.linear_in.blocks  # scalars to scalars
        linear_in = (by_type @ weight).to(dtype)
    gated = None
    if layer.gated is not None:
        gated = mace_modules.GatedMessage(
            index,
            cast(problems.linear(layer.gated.residual)),
            problems.gate(layer.gated.gate),
            cast(problems.linear(layer.gated.linear)),
        )
    return mace_modules.ProductLayer(
        index,
        _interaction(index, layer, cutoffs, dtype),
        linear_in=linear_in,
        linear_out=cast(problems.linear(layer.linear_out)),
        basis=(layer.basis_problem, layer.coefficients.to(dtype)),
        product=cast(problems.linear(layer.product)),
        gated=gated,
        self_connection=None if layer.self_connection is None else cast(problems.linear(layer.self_connection)),
    )


def _layer(index: int, layer: Layer, cutoffs: Tensor, dtype: torch.dtype) -> modules.Layer:
    interaction = _interaction(index, layer, cutoffs, dtype)

    def cast(pair: tuple[str, Tensor]) -> tuple[str, Tensor]:
        return pair[0], pair[1].to(dtype)

    return modules.Layer(
        index,
        interaction,
        linear_out=cast(problems.linear(layer.linear_out)),
        gate_problem=problems.gate(layer.gate),
        linear_in=None if layer.linear_in is None else cast(problems.linear(layer.linear_in)),
        sender_norm=None if layer.sender_norm is None else layer.sender_norm.to(dtype),
        self_connection=None if layer.self_connection is None else cast(problems.linear(layer.self_connection)),
    )


def _allegro_layer(network: AllegroNetwork, cutoffs: Tensor, dtype: torch.dtype) -> allegro_modules.Layer:
    def flat(weights: list[Tensor]) -> Tensor:
        return torch.cat([w.flatten() for w in weights]).to(dtype)

    return allegro_modules.Layer(
        allegro_modules.Network(
            problems.allegro(network),
            cutoffs.clone(),
            network.roots.clone(),
            flat([network.pair_weights, *network.shared_weights]),
            flat([w for mlp in [*network.latents, network.readout] for w in mlp]),
            flat(network.paths),
            network.norm.clone(),
        )
    )


def _check(d: Description) -> None:
    """Consistency that a front end must guarantee; a failure here is a mistake in it."""
    types = len(d.type_names)
    width = d.embedding.shape[1]
    assert d.pair_cutoffs.shape == (types, types) and d.scale.shape == d.shift.shape == (types,)
    assert float(d.pair_cutoffs.max()) <= d.r_max * (1 + 1e-12), (d.pair_cutoffs, d.r_max)
    if d.family == "allegro":
        return  # the op's problem ties every size to the others
    for layer in d.layers:
        columns = sum(layer.irreps_in[p.in1].mul for p in layer.paths)
        assert layer.radial.weights[-1].shape[1] == columns
        if isinstance(layer, ProductLayer):
            assert layer.linear_in.irreps_in.dim == width, (layer.linear_in.irreps_in, width)
            width = layer.product.irreps_out.dim
            continue
        assert layer.irreps_in.dim == width, (layer.irreps_in, width)
        for irreps in (layer.irreps_in, layer.irreps_mid, layer.linear_out.irreps_in):
            _assert_unique(irreps.simplify())
        assert layer.linear_out.irreps_in.dim == layer.irreps_mid.dim
        assert layer.linear_out.irreps_out.dim == layer.gate.irreps_in.dim
        width = layer.gate.irreps_out.dim
    if isinstance(d.readout, ProductReadout):
        assert d.readout.direct.shape == (width,)
    else:
        assert d.readout[0].shape[0] == width and d.readout[-1].shape[1] == 1


def _assert_unique(irreps: Irreps) -> None:
    assert len({b.irrep for b in irreps}) == len(irreps), f"irrep in two places: {irreps}"
