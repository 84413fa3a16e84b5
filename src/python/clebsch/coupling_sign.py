"""The sign of real Wigner 3j tensors, which differs between releases of e3nn.

A coupling is fixed by its symmetry up to a sign. e3nn 0.6 and src/core/math/coupling.cpp take that of the formula
below; e3nn 0.4.4 permutes tables of sorted degrees and has the other sign when l1 + l2 + l3 is odd and two degrees are
equal. Whoever takes over a product of e3nn compares the tensor that it computes with.
"""

from __future__ import annotations

from functools import cache
from math import factorial, sqrt

import torch
from torch import Tensor


def sign_of(tensor: Tensor) -> float:
    """+1 or -1: `tensor` (2 l1 + 1, 2 l2 + 1, 2 l3 + 1) is this times the coupling that Clebsch uses.

    Raises ValueError when it is neither.
    """
    degrees = [(n - 1) // 2 for n in tensor.shape]
    reference = wigner_3j(*degrees)
    product = float((tensor.double() * reference).sum())
    if abs(abs(product) - 1.0) > 1e-6:
        raise ValueError(f"expected the Wigner 3j tensor of degrees {degrees} or its negative, got overlap {product}")
    return 1.0 if product > 0 else -1.0


def of_product(product: torch.nn.Module, l1: int, l2: int, l3: int) -> float:
    """sign_of the coupling that an ``e3nn.o3.TensorProduct`` computes with."""
    return sign_of(_tensor_of(product, l1, l2, l3))


def _tensor_of(product: torch.nn.Module, l1: int, l2: int, l3: int) -> Tensor:
    """A buffer of the product's compiled code, which travels with a saved model, or what this e3nn would make."""
    for name, buffer in product.named_buffers():
        if name.rsplit(".", 1)[-1] == f"_w3j_{l1}_{l2}_{l3}" and not buffer.is_meta:
            return buffer.detach().to("cpu", torch.float64)
    from e3nn import o3

    return o3.wigner_3j(l1, l2, l3).to("cpu", torch.float64)


@cache
def wigner_3j(l1: int, l2: int, l3: int) -> Tensor:
    """Real Wigner 3j tensor, sum of squares 1, with the sign of e3nn 0.6 (e3nn.o3._wigner._so3_clebsch_gordan)."""
    complex_coupling = torch.zeros(2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1, dtype=torch.complex128)
    for m1 in range(-l1, l1 + 1):
        for m2 in range(-l2, l2 + 1):
            if abs(m1 + m2) <= l3:
                complex_coupling[l1 + m1, l2 + m2, l3 + m1 + m2] = _clebsch_gordan(l1, m1, l2, m2, l3, m1 + m2)
    q1, q2, q3 = (_real_to_complex(degree) for degree in (l1, l2, l3))
    real = torch.einsum("ij,kl,mn,ikn->jlm", q1, q2, q3.conj().T, complex_coupling).real
    return real / real.norm()


def _real_to_complex(degree: int) -> Tensor:
    """e3nn.o3._wigner.change_basis_real_to_complex, with its factor (-i)^l that makes the real tensor real."""
    q = torch.zeros(2 * degree + 1, 2 * degree + 1, dtype=torch.complex128)
    half = 1.0 / sqrt(2.0)
    for m in range(-degree, 0):
        q[degree + m, degree - m] = half
        q[degree + m, degree + m] = -1j * half
    q[degree, degree] = 1.0
    for m in range(1, degree + 1):
        q[degree + m, degree + m] = (-1) ** m * half
        q[degree + m, degree - m] = 1j * (-1) ** m * half
    return (-1j) ** degree * q


def _clebsch_gordan(l1: int, m1: int, l2: int, m2: int, l3: int, m3: int) -> float:
    """<l1 m1 l2 m2 | l3 m3> by Racah's formula."""
    f = factorial
    delta = f(l3 + l1 - l2) * f(l3 - l1 + l2) * f(l1 + l2 - l3) / f(l1 + l2 + l3 + 1)
    states = f(l3 + m3) * f(l3 - m3) * f(l1 - m1) * f(l1 + m1) * f(l2 - m2) * f(l2 + m2)
    total = 0.0
    for k in range(max(0, l2 - l3 - m1, l1 - l3 + m2), min(l1 + l2 - l3, l1 - m1, l2 + m2) + 1):
        bottom = f(k) * f(l1 + l2 - l3 - k) * f(l1 - m1 - k) * f(l2 + m2 - k)
        total += (-1) ** k / (bottom * f(l3 - l2 + m1 + k) * f(l3 - l1 - m2 + k))
    return sqrt((2 * l3 + 1) * delta * states) * total
