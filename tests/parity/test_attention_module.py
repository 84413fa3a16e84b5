"""clebsch.attention.SphericalAttention against the formula, and examples/gene_network with few genes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from clebsch import ClebschError, library, multilinear_library
from clebsch.attention import SphericalAttention, spherical_attention_reference

BUILT = library.load().path is not None and multilinear_library.place().is_file()
pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/gene_network/gene_network.py"


def made(**options) -> SphericalAttention:
    torch.manual_seed(3)
    module = SphericalAttention(12, 4, 2, **options).double()
    if module.value is not None:
        torch.nn.init.normal_(module.value)
    return module


@pytest.mark.parametrize("values", ["free", "shared"])
@pytest.mark.parametrize("residual", [False, True])
def test_values_and_gradients(values, residual):
    module = made(values=values, residual=residual)
    x, m = torch.randn(2, 7, 12, dtype=torch.float64), torch.rand(2, 7, dtype=torch.float64)

    def expected():
        n = x * (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float64).eps).rsqrt()
        q = (n @ module.to_q.weight.T).view(2, 7, 4, 3).transpose(1, 2)
        k = (n @ module.to_k.weight.T).view(2, 7, 2, 3).transpose(1, 2)
        if values == "free":
            v = (n @ module.to_v.weight.T).view(2, 7, 2, 3).transpose(1, 2)
        else:
            v = module.value.expand(2, 2, 7, 3)
        out, _ = spherical_attention_reference(q, k, v, m, eps=1e-6)
        y = out.transpose(1, 2).reshape(2, 7, 12) @ module.to_out.weight.T
        return x + y if residual else y

    found = module(x, m)
    torch.testing.assert_close(found, expected(), rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(found)
    parameters = [p for p in module.parameters() if p is not module.norm.weight]
    for a, b in zip(
        torch.autograd.grad(found, parameters, weight), torch.autograd.grad(expected(), parameters, weight), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_weights_are_those_of_the_output():
    module = made()
    x, m = torch.randn(2, 7, 12, dtype=torch.float64), torch.rand(2, 7, dtype=torch.float64)
    weights = module.weights(x, m)
    v = module.to_v(module.norm(x)).unflatten(-1, (2, 3)).transpose(1, 2).repeat_interleave(2, 1)
    torch.testing.assert_close((weights @ v).transpose(1, 2).flatten(2), module.attend(x, m))
    torch.testing.assert_close(weights.square().sum(-1), torch.ones(2, 4, 7, dtype=torch.float64), rtol=1e-3, atol=0)


def test_sequences_of_different_lengths():
    module, x = made(), torch.randn(1, 9, 12, dtype=torch.float64)
    offsets = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    found = module(x, offsets=offsets)
    torch.testing.assert_close(found, torch.cat((module(x[:, :4]), module(x[:, 4:])), 1))


@pytest.mark.parametrize("values", ["free", "shared"])
def test_autocast(values):
    """Multiplicities in 32 bits beside projections in 16."""
    module, x, m = made(values=values).float(), torch.randn(2, 7, 12), torch.rand(2, 7)
    expected = module(x, m)
    with torch.autocast("cpu", torch.bfloat16):
        found = module(x, m)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.03 * expected.abs().max().item())


def test_errors():
    for arguments, options, words in (
        ((12, 4, 3), {}, "key_heads: expected a divisor of the 4 heads, got 3"),
        ((13, 4), {}, "features: expected a multiple of the 4 heads, got 13"),
        ((12, 4), {"values": "same"}, "values: expected one of free, shared, got 'same'"),
    ):
        with pytest.raises(ClebschError, match=words):
            SphericalAttention(*arguments, **options)


def test_signs_of_a_small_network():
    """Spherical attention finds activation and repression; softmax, whose weights are positive, one of the two."""
    spec = importlib.util.spec_from_file_location("gene_network", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example
    spec.loader.exec_module(example)
    _, found = example.run(genes=16, steps=120, cells=32, seed=1, names=("spherical", "softmax"))
    assert found["spherical"]["signs"] >= 0.9 and found["spherical"]["error"] < 0.6
    assert found["softmax"]["activating"] * found["softmax"]["repressing"] == 0
