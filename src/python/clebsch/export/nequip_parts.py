"""Reading the pieces of a nequip layer: e3nn linear maps, tensor product paths, self-connections, gates, MLPs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ExportRefused
from ..irreps import Block, Irreps
from .description import Gate, LinearMap, Path


def _fp64(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64).clone()


def linear_map(module: torch.nn.Module) -> LinearMap:
    """e3nn.o3.Linear: flat weights per instruction, row-major [in][out], times the instruction's path weight."""
    if any(instruction.i_in == -1 for instruction in module.instructions):
        raise ExportRefused("o3.Linear biases", "expected linear maps without biases")
    flat = _fp64(module.weight).flatten()
    blocks = []
    start = 0
    for instruction in module.instructions:
        rows, columns = instruction.path_shape
        weight = flat[start : start + rows * columns].reshape(rows, columns)
        blocks.append((instruction.i_in, instruction.i_out, weight * instruction.path_weight))
        start += rows * columns
    assert start == flat.numel()
    return LinearMap(Irreps.parse(str(module.irreps_in)), Irreps.parse(str(module.irreps_out)), blocks)


def self_connection(module: torch.nn.Module, attributes: Tensor) -> LinearMap:
    """e3nn.o3.FullyConnectedTensorProduct with per-type constants as second operand: one linear map a type.

    attributes (T, v). out[w] = sum_uv path_weight * w3j(l,0,l) x[u] attributes[v] W[u,v,w]; w3j(l,0,l) is the
    identity over sqrt(2l+1).
    """
    irreps_in = Irreps.parse(str(module.irreps_in1))
    irreps_out = Irreps.parse(str(module.irreps_out))
    second = Irreps.parse(str(module.irreps_in2))
    if any(block.irrep != (0, 1) for block in second):
        raise ExportRefused("self-connection", f"expected even scalars as node attributes, got {second}")
    flat = _fp64(module.weight).flatten()
    offsets = [sum(block.mul for block in second[:i]) for i in range(len(second))]
    blocks = []
    start = 0
    for ins in module.instructions:
        if ins.connection_mode != "uvw" or not ins.has_weight:
            raise ExportRefused("self-connection", f"expected uvw paths, got {ins.connection_mode}")
        u, v, w = ins.path_shape
        weight = flat[start : start + u * v * w].reshape(u, v, w)
        start += u * v * w
        factor = ins.path_weight / math.sqrt(2 * irreps_in[ins.i_in1].l + 1)
        values = attributes[:, offsets[ins.i_in2] : offsets[ins.i_in2] + v]
        blocks.append((ins.i_in1, ins.i_out, factor * torch.einsum("tv,uvw->tuw", values, weight)))
    assert start == flat.numel()
    return LinearMap(irreps_in, irreps_out, blocks)


def convolution_paths(scatter: torch.nn.Module) -> tuple[Irreps, list[Path]]:
    """Output irreps (not simplified) and paths of a TensorProductScatter, in the order of the weights' columns."""
    tp = scatter.tp
    paths = []
    for ins in tp.instructions:
        if ins.connection_mode != "uvu" or not ins.has_weight:
            raise ExportRefused("tensor product", f"expected weighted uvu paths, got {ins.connection_mode}")
        paths.append(Path(ins.i_in1, ins.i_in2, ins.i_out, float(ins.path_weight)))
    return Irreps.parse(str(tp.irreps_out)), paths


def gate_of(module: torch.nn.Module) -> Gate:
    """e3nn.nn.Gate with silu for even and tanh for odd scalars; the normalising constants are read from it."""
    kind = type(module).__name__
    if kind != "Gate":
        option = "convnet_nonlinearity_type" if kind == "NormActivation" else kind
        raise ExportRefused(option, f"expected gate, got {'norm' if kind == 'NormActivation' else kind}")
    scalars, gates, gated = (
        Irreps.parse(str(i)) for i in (module.irreps_scalars, module.irreps_gates, module.irreps_gated)
    )
    constants: dict[str, float] = {}
    for activation, option in (
        (module.act_scalars, "convnet_nonlinearity_scalars"),
        (module.act_gates, "convnet_nonlinearity_gates"),
    ):
        for block, act in zip(Irreps.parse(str(activation.irreps_in)), activation.acts, strict=True):
            name = "silu" if block.p == 1 else "tanh"
            constants[name] = _activation_constant(act, name, option)
    return Gate(scalars, gates, gated, constants.get("silu", 1.0), constants.get("tanh", 1.0))


def _activation_constant(act: torch.nn.Module, name: str, option: str) -> float:
    """e3nn's normalize2mom constant, after checking by value that the function inside is the one expected."""
    probe = torch.linspace(-4.0, 4.0, 17, dtype=torch.float64)
    expected = torch.nn.functional.silu(probe) if name == "silu" else torch.tanh(probe)
    if not torch.allclose(act.f(probe), expected, rtol=1e-12, atol=1e-12):
        raise ExportRefused(option, f"expected {name} for {'even' if name == 'silu' else 'odd'} scalars")
    return 1.0 if act._is_id else float(act.cst)


def split_to_gate_order(value: LinearMap, module: torch.nn.Module, gate: Gate) -> LinearMap:
    """Reorders the output channels from e3nn's sorted order (Gate.irreps_in) to scalars + gates + gated."""
    order = [index for part in module.sc.cut.instructions for index in part]
    sorted_irreps = Irreps.parse(str(module.sc.cut.irreps_in))
    target = gate.irreps_in
    assert len(order) == len(target)
    merged = sorted_irreps.simplify()
    assert merged == value.irreps_out.simplify(), (merged, value.irreps_out)
    # Sorting put equal irreps side by side, so a block is a range of channels of the one merged block of its irrep.
    place = {block.irrep: index for index, block in enumerate(value.irreps_out)}
    blocks = []
    for position, source in enumerate(order):
        block: Block = sorted_irreps[source]
        first = sum(b.mul for b in sorted_irreps[:source] if b.irrep == block.irrep)
        assert block == target[position]
        for a, b, weight in value.blocks:
            if b == place[block.irrep]:
                blocks.append((a, position, weight[..., first : first + block.mul]))
    return LinearMap(value.irreps_in, target, blocks)


def mlp_weights(module: torch.nn.Module, option: str) -> list[Tensor]:
    """Weights (in, out) of a ScalarMLPFunction with `alpha` folded in; silu between them, no biases.

    Without a nonlinearity the layers are multiplied out to one.
    """
    if type(module.mlp).__name__ == "DeepLinearMLP":
        return [_product([_fp64(w) for w in module.mlp.weights]) * _fp64(module.mlp.alpha)]
    weights = []
    activations = set()
    for layer in module.mlp:
        if not hasattr(layer, "alpha"):
            activations.add(type(layer).__name__)
            continue
        if layer.bias is not None:
            raise ExportRefused(f"{option} bias", "expected layers without biases")
        weights.append(_fp64(layer.weight) * _fp64(layer.alpha))
    if activations == {"Identity"}:
        return [_product(weights)]
    if not activations <= {"SiLU"}:
        raise ExportRefused(option, f"expected silu or none, got {', '.join(sorted(activations))}")
    return weights


def _product(weights: list[Tensor]) -> Tensor:
    result = weights[0]
    for weight in weights[1:]:
        result = result @ weight
    return result
