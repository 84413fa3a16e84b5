"""The triangle multiplicative update of structure prediction, forward and backward.

>>> out = triangle_multiplicative_update(x, "outgoing", mask, p_in_weight=..., g_in_weight=..., ...)  # x's dtype

The library libclebsch_multilinear.so is loaded at the first call. docs/triangle.md is the page for users.
"""

from .module import TriangleMultiplicativeUpdate
from .reference import triangle_multiplicative_update_reference
from .update import triangle_multiplicative_update

__all__ = [
    "TriangleMultiplicativeUpdate",
    "triangle_multiplicative_update",
    "triangle_multiplicative_update_reference",
]
