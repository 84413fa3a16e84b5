"""What a grade is worth: areas under ROC curves, ranks, and variants of the grade that are not in the library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clebsch.grade import fit

Array = NDArray[np.float64]


def ranks(values: Array) -> Array:
    """1 .. N, ties sharing their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - 0.5 * (counts - 1))[inverse]


def auc(scores: Array, bad: NDArray[np.bool_]) -> float:
    """The probability that a bad one scores higher than one that is not; not a number where all are alike."""
    positive, negative = int(bad.sum()), int((~bad).sum())
    if positive == 0 or negative == 0:
        return float("nan")
    return float((ranks(scores)[bad].sum() - positive * (positive + 1) / 2) / (positive * negative))


def spearman(a: Array, b: Array) -> float:
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


@dataclass(frozen=True)
class Variant:
    """How features become a grade, f^T (C + ridge)^-1 f / R, that is 1 on average over the training set.

    centred: features from their mean; constant: with one more that is 1; per_element: mean and C of the atom's element
    (else, when centred, the mean of the element and C of all); ridge: of C's largest eigenvalue; unit: features are
    divided by their standard deviation first; squares: features are whitened, and their squares and a constant are
    features as well; maxvol: the largest coordinate in a MaxVol subset, as the library's --grade maxvol.
    """

    name: str
    centred: bool = False
    constant: bool = False
    per_element: bool = False
    ridge: float = 1e-8
    unit: bool = False
    squares: bool = False
    maxvol: bool = False


class Fitted:
    """A variant with its training set: features (N, d) and types (N,)."""

    def __init__(self, variant: Variant, features: Array, types: NDArray[np.int64]) -> None:
        self.variant = variant
        self.kinds = sorted(set(types.tolist()))
        if variant.maxvol:
            pooling = "element" if variant.per_element else "all"
            self.library = fit(features, types, max(self.kinds) + 1, "maxvol", variant.ridge, pooling)
            return
        if variant.squares:
            self.first = Fitted(Variant("", per_element=variant.per_element, ridge=variant.ridge), features, types)
        self.scale = np.maximum(features.std(0), 1e-12) if variant.unit else np.ones(features.shape[1])
        self.means, self.whitenings = {}, {}
        for t in self.kinds:
            mine = features[types == t] / self.scale
            self.means[t] = mine.mean(0) if variant.centred else np.zeros(features.shape[1])
        rows = self._rows(features, types)
        for t in self.kinds:
            part = rows[types == t] if variant.per_element else rows
            values, vectors = np.linalg.eigh(part.T @ part / len(part))
            values = np.maximum(values, 0.0)
            ridge = variant.ridge * values[-1]
            rank = (values / (values + ridge)).sum()
            self.whitenings[t] = vectors / np.sqrt(rank * (values + ridge))

    def _rows(self, features: Array, types: NDArray[np.int64]) -> Array:
        if self.variant.squares:
            whitened = self.first.whitened(features, types)
            return np.concatenate([np.ones((len(types), 1)), whitened, whitened**2], axis=1)
        rows = features / self.scale
        for t in self.kinds:
            rows[types == t] -= self.means[t]
        if self.variant.constant:
            rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
        return rows

    def whitened(self, features: Array, types: NDArray[np.int64]) -> Array:
        """Rows whose squared length is the grade."""
        rows = self._rows(features, types)
        result = np.empty(rows.shape)
        for t in self.kinds:
            result[types == t] = rows[types == t] @ self.whitenings[t]
        return result

    def __call__(self, features: Array, types: NDArray[np.int64]) -> Array:
        """Grades (N,)."""
        if self.variant.maxvol:
            return self.library.of(features, types)
        y = self.whitened(features, types)
        return np.einsum("ij,ij->i", y, y)


VARIANTS = (
    Variant("pooled"),
    Variant("an element each", per_element=True),
    Variant("pooled, ridge 1e-4", ridge=1e-4),
    Variant("pooled, ridge 1e-6", ridge=1e-6),
    Variant("pooled, ridge 1e-11", ridge=1e-11),
    Variant("pooled, unit deviation", unit=True),
    Variant("pooled, constant column", constant=True),
    Variant("pooled, centred by element", centred=True),
    Variant("an element each, centred", centred=True, per_element=True),
    Variant("an element each, constant column", constant=True, per_element=True),
    Variant("an element each, centred, ridge 1e-4", centred=True, per_element=True, ridge=1e-4),
    Variant("an element each, centred, ridge 1e-6", centred=True, per_element=True, ridge=1e-6),
    Variant("an element each, centred, ridge 1e-11", centred=True, per_element=True, ridge=1e-11),
    Variant("pooled, squares too", squares=True),
    Variant("an element each, squares too", squares=True, per_element=True),
    Variant("pooled, maxvol", maxvol=True),
    Variant("an element each, maxvol", maxvol=True, per_element=True),
)
