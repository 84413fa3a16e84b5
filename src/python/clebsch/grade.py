"""The grade of extrapolation: from the features of a training set to the matrix that grades an atom
(docs/uncertainty.md).

Everything here is float64 and numpy. A row of features is an atom's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import ClebschError

Matrix = NDArray[np.float64]

GRADES = ("leverage", "maxvol", "squares")
POOLINGS = ("all", "element")
#: Of the largest eigenvalue of the covariance.
AUTO_RIDGE = 1e-8
#: Below this the directions that the training set lacks are rounding errors.
_LEAST_RIDGE = 1e-13
#: Swaps of rows end when none makes the volume larger by more than this factor.
_SWAP = 1.01
#: Training atoms for each of the 1 + 2 d features of squares from which on that is the grade, if none is asked for.
#: With fewer, other structures of the training set's kind are above its maximum (benchmarks/grade/held_out.py).
SQUARES_ATOMS = 400
#: Rows whose squares are made at a time.
_BLOCK = 1 << 16


@dataclass
class Grade:
    """What a model file holds of its training set: T types, d features, G = 1 matrices when all elements are pooled,
    else one a type.

    transform (G, d, k), of squares (1, 3 d + 1, k); counts (T,) atoms; covariance (G, d, d) = F^T F / n; ridge in the
    covariance's units, the largest of the matrices'; median, 99% and 99.99% quantile and maximum of the training atoms'
    grades.
    """

    grade: str
    pooling: str
    transform: Matrix
    counts: NDArray[np.int64]
    covariance: Matrix
    ridge: float
    median: float = 0.0
    q99: float = 0.0
    q9999: float = 0.0
    maximum: float = 0.0

    def of(self, features: Matrix, types: NDArray[np.integer]) -> Matrix:
        """Grades (N,) of features (N, d) of atoms of types (N,): the reference of clebsch::extrapolation."""
        result = np.full(len(features), np.inf)
        for t in np.flatnonzero(self.counts):
            matrix = self.transform[0 if self.pooling == "all" else t]
            for rows in _blocks(np.flatnonzero(types == t)):
                if self.grade == "squares":
                    d = features.shape[1]
                    y = lifted(features[rows] @ matrix[:d, :d]) @ matrix[d:]
                else:
                    y = features[rows] @ matrix
                result[rows] = np.abs(y).max(1, initial=0.0) if self.grade == "maxvol" else (y * y).sum(1)
        return result


@dataclass
class Spectrum:
    """A covariance C = vectors diag(values) vectors^T with its ridge; rank: the trace of C (C + ridge)^-1."""

    values: Matrix
    vectors: Matrix
    ridge: float

    @property
    def rank(self) -> float:
        return float((self.values / (self.values + self.ridge)).sum())

    def whitening(self, scale: float = 1.0) -> Matrix:
        """W (d, d) with W W^T = (C + ridge)^-1 / scale."""
        return self.vectors / np.sqrt(scale * (self.values + self.ridge))


def spectrum(covariance: Matrix, ridge: float | str = "auto") -> Spectrum:
    """The eigenvectors of a covariance (d, d). ridge: "auto", or a number, in units of the largest eigenvalue. Raises
    ClebschError where all features are zero and for a ridge that rounding would decide about."""
    if not np.isfinite(covariance).all():
        raise ClebschError("features: expected finite numbers, got a covariance with others")
    relative = AUTO_RIDGE if ridge == "auto" else float(ridge)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    if not values[-1] > 0:
        raise ClebschError("features: expected some that are not zero, got rank 0")
    if not _LEAST_RIDGE <= relative < np.inf:
        condition = values[-1] / max(values[0], np.finfo(float).tiny)
        raise ClebschError(
            f"ridge: expected at least {_LEAST_RIDGE:g} of the largest eigenvalue, got {relative:g}; the covariance's "
            f"condition number is {condition:.1e}. Use auto ({AUTO_RIDGE:g})"
        )
    return Spectrum(values, vectors, relative * float(values[-1]))


def maxvol_rows(rows: Matrix) -> NDArray[np.int64]:
    """k rows (N, k) whose square has a volume that no swap enlarges by more than 1%: MaxVol. N >= k, rank k.

    The first set is that of pivoted Gram-Schmidt; then the largest entry of rows @ square^-1 names the next swap
    (Goreinov et al., How to find a good submatrix, 2010). Raises ClebschError for fewer rows or a smaller rank.
    """
    count, width = rows.shape
    if count < width:
        raise ClebschError(f"maxvol: expected at least {width} rows, got {count}")
    rest = rows.copy()
    norms = (rest * rest).sum(1)
    floor = 1e-24 * norms.max(initial=0.0)
    chosen = np.empty(width, dtype=np.int64)
    for k in range(width):
        chosen[k] = norms.argmax()
        if not norms[chosen[k]] > floor:
            raise ClebschError(f"maxvol: expected rows of rank {width}, got {k}")
        direction = rest[chosen[k]] / np.sqrt(norms[chosen[k]])
        rest -= np.outer(rest @ direction, direction)
        norms = (rest * rest).sum(1)
        norms[chosen[: k + 1]] = 0.0
    table = np.linalg.solve(rows[chosen].T, rows.T).T  # rows @ square^-1
    for _ in range(20 * width):
        place = int(np.abs(table).argmax())
        row, column = divmod(place, width)
        pivot = table[row, column]
        if abs(pivot) <= _SWAP:
            break
        change = table[row].copy()
        change[column] -= 1.0
        table -= np.outer(table[:, column] / pivot, change)
        chosen[column] = row
    return chosen


def _blocks(rows: Matrix) -> Iterator[Matrix]:
    return (rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK))


def lifted(rows: Matrix) -> Matrix:
    """1, the columns, and their squares."""
    return np.concatenate([np.ones((len(rows), 1)), rows, rows**2], axis=1)


def _squares(features: Matrix, found: Spectrum, ridge: float | str) -> Matrix:
    """(3 d + 1, 2 d + 1): the whitening of the features, whose squares are features then, and that of all of them."""
    first = found.whitening(found.rank)
    width = 1 + 2 * features.shape[1]
    total = np.zeros((width, width))
    for block in _blocks(features):
        rows = lifted(block @ first)
        total += rows.T @ rows
    second = spectrum(total / len(features), ridge)
    return np.concatenate([np.pad(first, ((0, 0), (0, width - first.shape[1]))), second.whitening(second.rank)])


def _transform(features: Matrix, covariance: Matrix, grade: str, ridge: float | str) -> tuple[Matrix, float]:
    found = spectrum(covariance, ridge)
    if grade == "leverage":
        return found.whitening(found.rank), found.ridge
    if grade == "squares":
        return _squares(features, found, ridge), found.ridge
    kept = found.values > found.ridge
    basis = found.vectors[:, kept] / np.sqrt(found.values[kept])
    rows = features @ basis
    square = rows[maxvol_rows(rows)]
    return np.linalg.solve(square.T, basis.T).T, found.ridge  # basis @ square^-1


def fit(
    features: Matrix,
    types: NDArray[np.integer],
    type_count: int,
    grade: str = "auto",
    ridge: float | str = "auto",
    pooling: str = "all",
) -> Grade:
    """The grade that training features (N, d) of atoms of types (N,) give.

    leverage: f^T (F^T F / n + ridge)^-1 f / R with R = tr[C (C + ridge)^-1], so that the mean over the training set is
    1 exactly. maxvol: the largest magnitude of f A^-1, where the rows A are a MaxVol subset of the training atoms; at
    most 1.01 in the training set (as in Lysogorskiy et al., Phys. Rev. Materials 7, 043801, 2023). squares: the
    leverage of the whitened features, their squares and 1; pooling "all" alone. auto: squares with
    SQUARES_ATOMS atoms a feature or more, else leverage. With pooling "element" each element has its own. Memory: the
    features once or twice. Raises ClebschError for no
    atoms and as `spectrum`.
    """
    if grade not in ("auto", *GRADES) or pooling not in POOLINGS:
        raise ClebschError(
            f"expected a grade of {('auto', *GRADES)} and a pooling of {POOLINGS}, got {grade!r} and {pooling!r}"
        )
    if grade == "squares" and pooling != "all":
        raise ClebschError("extrapolation: expected pooling all with squares, got element")
    if len(features) == 0:
        raise ClebschError("extrapolation: expected training structures with atoms, got none")
    features = np.ascontiguousarray(features, dtype=np.float64)
    if not np.isfinite(features).all():
        raise ClebschError(f"extrapolation: expected finite features, got others for atom "
                           f"{int(np.flatnonzero(~np.isfinite(features).all(1))[0])}")  # fmt: skip
    if grade == "auto":
        enough = len(features) >= SQUARES_ATOMS * (1 + 2 * features.shape[1])
        grade = "squares" if enough and pooling == "all" else "leverage"
    counts = np.bincount(types, minlength=type_count).astype(np.int64)
    groups: Sequence[NDArray[np.bool_]]
    groups = [np.ones(len(types), dtype=bool)] if pooling == "all" else [types == t for t in range(type_count)]
    width = features.shape[1]
    covariances = np.zeros((len(groups), width, width))
    transforms, largest = [], 0.0
    for group, covariance in zip(groups, covariances, strict=True):
        rows = features if pooling == "all" else features[group]
        if len(rows) == 0:  # graded as infinite
            transforms.append(np.zeros((width, 1)))
            continue
        covariance[:] = rows.T @ rows / len(rows)
        transform, used = _transform(rows, covariance, grade, ridge)
        transforms.append(transform)
        largest = max(largest, used)
    columns = max(t.shape[1] for t in transforms)
    padded = np.stack([np.pad(t, ((0, 0), (0, columns - t.shape[1]))) for t in transforms])
    result = Grade(grade, pooling, padded, counts, covariances, largest)
    values = result.of(features, types)
    result.median, result.q99, result.q9999 = (float(v) for v in np.quantile(values, [0.5, 0.99, 0.9999]))
    result.maximum = float(values.max())
    return result
