"""clebsch.triangle's module, its loaders, what enable_clebsch swaps, torch.compile, torch.export and torch's own check
of an op."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest
import torch

from clebsch import ClebschError
from clebsch.triangle import TriangleMultiplicativeUpdate, triangle_multiplicative_update
from test_triangle import BUILT, F64, a_mask, error, pairs, weights

pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")


def test_compile():
    x, mask = pairs(1, 9, 9, 16, dtype=torch.float32).requires_grad_(), a_mask("number", 1, 9, 9, dtype=torch.float32)
    w = {name: value.requires_grad_() for name, value in weights(16, 16, 16, "after", dtype=torch.float32).items()}

    def loss(x, *values):
        return triangle_multiplicative_update(x * 2, "incoming", mask, **dict(zip(w, values, strict=True))).sin().sum()

    tensors = [x, *w.values()]
    expected = torch.autograd.grad(loss(*tensors), tensors)
    found = torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(*tensors), tensors)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(loss, backend="aot_eager", fullgraph=True)(*tensors), loss(*tensors))


def test_export():
    """With a size that stays open."""
    module = TriangleMultiplicativeUpdate(16, dtype=F64)
    module.load_state_dict(
        TriangleMultiplicativeUpdate.from_cuequivariance(**weights(16, 16, 16, "after", bias=False)).state_dict()
    )
    n = torch.export.Dim("n", min=2, max=512)
    given = pairs(2, 7, 7, 16), a_mask("bool", 2, 7, 7)
    program = torch.export.export(module, given, dynamic_shapes=({1: n, 2: n}, {1: n, 2: n})).module()
    for size in (7, 9):
        x, mask = pairs(2, size, size, 16), a_mask("bool", 2, size, size)
        assert torch.equal(program(x, mask), module(x, mask))


def test_torch_knows_the_op():
    """torch's own checks: schema, autograd, fake tensors, ahead-of-time autograd. N = 8: there is no padding, which has
    any numbers."""
    triangle_multiplicative_update(pairs(1, 1, 1, 16), **weights(16, 16, 16, "after"))  # registers autograd
    w = weights(16, 16, 16, "before", bias=False)
    matrices = [w[f"{name}_weight"].requires_grad_() for name in ("p_in", "g_in", "p_out", "g_out")]
    given = 1 << 2 | 1 << 4 | 1 << 8 | 1 << 10
    x, mask = pairs(1, 8, 8, 16).requires_grad_(), a_mask("number", 1, 8, 8).requires_grad_()
    arguments = (x, mask, matrices, given, True, True, 1e-5, "ieee", True)
    torch.library.opcheck(torch.ops.clebsch.triangle_multiplicative_update, arguments)


class OpenFold(torch.nn.Module):
    """Parameters and formula of OpenFold's TriangleMultiplicationOutgoing and -Incoming."""

    def __init__(self, c_z=16, c_hidden=16, _outgoing=True):
        super().__init__()
        self._outgoing = _outgoing
        for name in ("linear_a_p", "linear_a_g", "linear_b_p", "linear_b_g"):
            setattr(self, name, torch.nn.Linear(c_z, c_hidden))
        self.linear_g, self.linear_z = torch.nn.Linear(c_z, c_z), torch.nn.Linear(c_hidden, c_z)
        self.layer_norm_in, self.layer_norm_out = torch.nn.LayerNorm(c_z), torch.nn.LayerNorm(c_hidden)

    def forward(self, z, mask=None, inplace_safe=False, _add_with_inplace=False):
        y = self.layer_norm_in(z)
        a = self.linear_a_p(y) * self.linear_a_g(y).sigmoid() * mask[..., None]
        b = self.linear_b_p(y) * self.linear_b_g(y).sigmoid() * mask[..., None]
        o = torch.einsum("bikh,bjkh->bijh" if self._outgoing else "bkih,bkjh->bijh", a, b)
        return self.linear_z(self.layer_norm_out(o)) * self.linear_g(y).sigmoid()


class Boltz(torch.nn.Module):
    """Parameters and formula of Boltz's TriangleMultiplicationOutgoing and -Incoming."""

    def __init__(self, dim=16):
        super().__init__()
        self.norm_in, self.norm_out = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.p_in, self.g_in = (torch.nn.Linear(dim, 2 * dim, bias=False) for _ in range(2))
        self.p_out, self.g_out = (torch.nn.Linear(dim, dim, bias=False) for _ in range(2))

    def forward(self, x, mask, use_kernels=False):
        y = self.norm_in(x)
        a, b = (self.p_in(y) * self.g_in(y).sigmoid() * mask[..., None]).chunk(2, -1)
        formula = "bikd,bjkd->bijd" if "Outgoing" in type(self).__name__ else "bkid,bkjd->bijd"
        return self.p_out(self.norm_out(torch.einsum(formula, a, b))) * self.g_out(y).sigmoid()


def upstream(kind: str, outgoing: bool) -> torch.nn.Module:
    torch.manual_seed(7)
    name = f"TriangleMultiplication{'Outgoing' if outgoing else 'Incoming'}"
    made = type(name, (OpenFold,), {})(_outgoing=outgoing) if kind == "openfold" else type(name, (Boltz,), {})()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.double()


@pytest.mark.parametrize("outgoing", [True, False])
@pytest.mark.parametrize("kind", ["openfold", "boltz"])
def test_enable_clebsch(kind, outgoing):
    from clebsch.training import boltz, openfold

    enable = {"openfold": openfold, "boltz": boltz}[kind].enable_clebsch
    x, mask = pairs(2, 9, 9, 16), a_mask("number", 2, 9, 9)
    block = torch.nn.ModuleDict({"first": upstream(kind, outgoing), "other": torch.nn.Linear(2, 2)})
    expected = block["first"](x, mask)
    state, parameters = list(block.state_dict()), [id(p) for p in block.parameters()]
    of_old = torch.autograd.grad(expected.sin().sum(), list(block["first"].parameters()))
    loader = (
        TriangleMultiplicativeUpdate.from_openfold if kind == "openfold" else TriangleMultiplicativeUpdate.from_boltz
    )
    assert error(loader(block["first"])(x, mask), expected) < 1e-13
    assert enable(block) is block
    assert list(block.state_dict()) == state and [id(p) for p in block.parameters()] == parameters
    found = block["first"](x, mask)
    assert error(found, expected) < 1e-13
    for a, b in zip(torch.autograd.grad(found.sin().sum(), list(block["first"].parameters())), of_old, strict=True):
        assert error(a, b) < 1e-12
    enable(block)  # twice changes nothing
    assert error(enable(upstream(kind, outgoing))(x, mask), expected) < 1e-13
    if kind == "openfold":
        with torch.no_grad():
            z = x.clone()
            assert block["first"](z, mask, inplace_safe=True, _add_with_inplace=True) is z
            assert error(z, x + expected) < 1e-13
    with pytest.raises(ClebschError, match="got one without TriangleMultiplicationOutgoing"):
        enable(torch.nn.Linear(2, 2))
    with pytest.raises(ClebschError, match="its parts are not those of"):
        enable(type("TriangleMultiplicationOutgoing", (torch.nn.Linear,), {})(2, 2))


class Adapted(torch.nn.Module):
    """As adapters are: its weight is that of the layer within."""

    def __init__(self, base: torch.nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.more = torch.nn.Linear(base.in_features, base.out_features, dtype=F64)

    @property
    def weight(self) -> torch.Tensor:
        return self.base.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.more(x)


@pytest.mark.parametrize("kind", ["openfold", "boltz"])
def test_what_kernels_would_leave_out_is_refused(kind):
    """Adapters, hooks and two eps; before and after the swap. The model is as it was."""
    from clebsch.training import boltz, openfold

    enable = {"openfold": openfold, "boltz": boltz}[kind].enable_clebsch
    layer, norm = ("linear_z", "layer_norm_out") if kind == "openfold" else ("p_out", "norm_out")

    def block() -> torch.nn.ModuleDict:
        return torch.nn.ModuleDict({"a": upstream(kind, True), "b": upstream(kind, False)})

    def refused(made: torch.nn.ModuleDict, what: str) -> None:
        before = dict(made.named_children())
        with pytest.raises(ClebschError, match=rf"enable_clebsch: b \(TriangleMultiplicationIncoming\).*{what}"):
            enable(made)
        assert dict(made.named_children()) == before

    adapted, hooked, other_eps, whole = block(), block(), block(), block()
    setattr(adapted["b"], layer, Adapted(getattr(adapted["b"], layer)))
    refused(adapted, f"{layer}: expected a layer whose weight is a parameter, got a Adapted")
    getattr(hooked["b"], layer).register_forward_hook(lambda *_: None)
    refused(hooked, f"expected no hooks, got some of {layer}")
    getattr(other_eps["b"], norm).eps = 0.1
    refused(other_eps, "expected one eps of both norms, got 1e-05 and 0.1")
    whole["b"].register_forward_hook(lambda *_: None)
    refused(whole, "expected no hooks, got some of it")
    with pytest.raises(ClebschError, match="precision: expected .*, got 'bfloat16'"):
        enable(block(), precision="bfloat16")

    made = enable(block())
    setattr(made["b"], layer, Adapted(getattr(made["b"], layer)))
    with pytest.raises(ClebschError, match=f"{layer}: expected a layer whose weight is a parameter"):
        made["b"](pairs(1, 5, 5, 16), a_mask("bool", 1, 5, 5))


def test_parametrized_weights_are_those_of_the_layer():
    made = upstream("boltz", True)
    torch.nn.utils.parametrizations.weight_norm(made.p_in)
    x, mask = pairs(1, 7, 7, 16), a_mask("bool", 1, 7, 7)
    assert error(TriangleMultiplicativeUpdate.from_boltz(made)(x, mask), made(x, mask.double())) < 1e-13


def test_enable_clebsch_once_more_and_shared_modules():
    from clebsch.training.boltz import enable_clebsch

    one = upstream("boltz", True)
    one.register_buffer("extra", torch.ones(2))
    model = torch.nn.ModuleDict({"a": one, "b": one})
    state = list(model.state_dict())
    enable_clebsch(model)
    assert model["a"] is model["b"] and type(model["a"]).__name__ == "ClebschBoltzTriangle"
    assert list(model.state_dict()) == state
    enable_clebsch(model, precision="tf32")
    assert model["a"].precision == "tf32"


@pytest.mark.parametrize("name", ["TriangleMultiplicationOutgoing", "TriangleMultiplicationIncoming"])
def test_boltz_itself(name):
    """The class of the package, with its own first weights and with any: outputs and gradients. It sums in float32
    whatever x is."""
    modules = pytest.importorskip("boltz.model.layers.triangular_mult", reason="Boltz is not installed")
    from clebsch.training.boltz import enable_clebsch

    torch.manual_seed(7)
    for any_weights in (False, True):
        block = torch.nn.Sequential(getattr(modules, name)(32))
        if any_weights:
            for parameter in block.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        x = pairs(2, 9, 9, 32, dtype=torch.float32).requires_grad_()
        mask = a_mask("number", 2, 9, 9, dtype=torch.float32)
        expected = block[0](x, mask)
        state, tensors = list(block.state_dict()), [x, *block.parameters()]
        of_old = torch.autograd.grad(expected.sin().sum(), tensors)
        enable_clebsch(block)
        assert list(block.state_dict()) == state
        found = block[0](x, mask, use_kernels=True)
        assert error(found, expected) < 3e-6
        for a, b in zip(torch.autograd.grad(found.sin().sum(), tensors), of_old, strict=True):
            assert error(a, b) < 1e-5


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("direction", ["Outgoing", "Incoming"])
def test_openfold_itself(direction, fused, monkeypatch):
    """The classes of the package, with their own first weights and with any: outputs, gradients and the pass in
    place."""
    if importlib.util.find_spec("openfold") is None:
        pytest.skip("OpenFold is not installed")
    if importlib.util.find_spec("attn_core_inplace_cuda") is None:  # its attention's kernel, not used here
        monkeypatch.setitem(sys.modules, "attn_core_inplace_cuda", types.ModuleType("attn_core_inplace_cuda"))
    modules = importlib.import_module("openfold.model.triangular_multiplicative_update")
    from clebsch.training.openfold import enable_clebsch

    kind = getattr(modules, f"{'Fused' if fused else ''}TriangleMultiplication{direction}")
    torch.manual_seed(7)
    for any_weights in (False, True):
        block = torch.nn.Sequential(kind(32, 24))
        if any_weights:
            for parameter in block.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        x = pairs(2, 9, 9, 32, dtype=torch.float32).requires_grad_()
        mask = a_mask("number", 2, 9, 9, dtype=torch.float32)
        expected = block[0](x, mask)
        state, tensors = list(block.state_dict()), [x, *block.parameters()]
        of_old = torch.autograd.grad(expected.sin().sum(), tensors)
        with torch.no_grad():
            in_place = block[0](x.clone(), mask, inplace_safe=True, _add_with_inplace=True)
        enable_clebsch(block)
        assert list(block.state_dict()) == state
        found = block[0](x, mask, _inplace_chunk_size=4)
        assert error(found, expected) < 3e-6
        for a, b in zip(torch.autograd.grad(found.sin().sum(), tensors), of_old, strict=True):
            assert error(a, b) < 1e-5
        with torch.no_grad():
            assert error(block[0](x.clone(), mask, inplace_safe=True, _add_with_inplace=True), in_place) < 3e-6


def test_module():
    module = TriangleMultiplicativeUpdate(24, 16, "incoming", bias=True, out=40, dtype=F64)
    x = pairs(1, 7, 7, 24)
    assert (module(x) == 0).all()  # as AlphaFold starts
    w = weights(24, 16, 40, "after")
    loaded = TriangleMultiplicativeUpdate.from_cuequivariance("incoming", **w)
    module.load_state_dict(loaded.state_dict())
    expected = triangle_multiplicative_update(x, "incoming", **w)
    assert torch.equal(module(x), expected) and torch.equal(loaded(x), expected)
    before = weights(24, 16, 40, "before", bias=False)
    loaded = TriangleMultiplicativeUpdate.from_cuequivariance(gate="before", **before)
    assert torch.equal(loaded(x), triangle_multiplicative_update(x, gate="before", **before))
    with pytest.raises(ClebschError, match=r"g_in_weight: expected \(32, 24\), got \(24, 24\)"):
        TriangleMultiplicativeUpdate.from_cuequivariance(**w | {"g_in_weight": torch.zeros(24, 24)})
    with pytest.raises(ClebschError, match="p_out_weight is missing"):
        TriangleMultiplicativeUpdate.from_cuequivariance(**w | {"p_out_weight": None})
    with pytest.raises(ClebschError, match="direction: expected outgoing or incoming, got 'left'"):
        TriangleMultiplicativeUpdate(16, direction="left")
