"""Choosing rows. selection.py chooses what adds most to a training set (docs/uncertainty.md), in numpy.

Leverage sampling of Khatri-Rao products: rows of ``U_1 (.) ... (.) U_N`` drawn without forming the product.

>>> sampler = KhatriRaoSampler([u1, u2, u3])          # float64 matrices (rows_k, columns), on the CPU or one GPU
>>> drawn = sampler.draw(5000, exclude=1, seed=7)     # indices, rows, weights, rank
>>> leverages = sampler.scores(drawn.indices, exclude=1)

The trees are in libclebsch_multilinear.so, which is loaded when the first sampler is made. docs/sampling.md is the page
for users.
"""

from __future__ import annotations

from .cp_als import CpTensor, cp_als
from .khatri_rao import Draw, KhatriRaoSampler
from .product_law import ProductLawSampler
from .row_sampler import RowSampler
from .selection import leverage_scores, select

__all__ = [
    "CpTensor",
    "Draw",
    "KhatriRaoSampler",
    "ProductLawSampler",
    "RowSampler",
    "cp_als",
    "leverage_scores",
    "select",
]
