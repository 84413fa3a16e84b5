"""Choosing what adds most to a training set: rows of features, or groups of rows (docs/uncertainty.md).

Rows are whitened by what is known, u = K^-1/2 f with K = n (C + ridge), so that the known is the identity and a set S
of rows gains log det(I + U_S U_S^T). With P = (I + sum of chosen u u^T)^-1 the score of a row is u^T P u, which only
falls as more is chosen. An old score is therefore a bound, and one pass over all rows serves many choices.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ClebschError
from ..grade import Matrix, maxvol_rows, spectrum
from ..progress import Progress, silent

Indices = NDArray[np.int64]

METHODS = ("leverage", "volume", "doptimal", "maxvol", "fps")
#: Rows whose scores are kept exact between two passes over all rows.
_POOL = 4000
#: Rows that a pass takes at a time, so that its temporaries stay in cache.
_BLOCK = 8192
#: The same of a tensor, on whichever device.
_DEVICE_BLOCK = 1 << 20


def leverage_scores(
    features: Matrix, ridge: float | str = "auto", *, known: tuple[Matrix, float] | None = None
) -> Matrix:
    """Ridge leverage scores (N,) of features (N, d): f^T (F^T F + N ridge)^-1 f, which sum up to the effective rank.

    ridge: "auto", 1e-8, or a number, in units of the largest eigenvalue of F^T F / N. known: covariance (d, d) and
    number of atoms of another set, whose leverage is meant then: grade of extrapolation = score * n / rank. Raises
    ClebschError for features that are not finite, or all zero.
    """
    features = _checked(features)
    covariance, count = known if known is not None else (_covariance(features), len(features))
    return _Rows(features, spectrum(covariance, ridge).whitening(count)).scores(np.eye(features.shape[1]))


def select(
    features: Matrix,
    count: int,
    method: str = "doptimal",
    *,
    groups: NDArray[np.integer] | None = None,
    known: tuple[Matrix, float] | None = None,
    ridge: float | str = "auto",
    per_atom: bool = False,
    seed: int = 0,
    progress: Progress = silent,
) -> Indices:
    """Indices (count,) of rows of features (N, d) in the order of choice or, with groups, of groups.

    method: doptimal, each choice the largest gain of log det; volume, the same drawn at random in proportion to the
    volume that a choice adds; leverage, drawn in proportion to the score by the known alone; maxvol, rows that span the
    largest volume by themselves, at most as many as the rank; fps, each the farthest from those chosen (the first has
    the largest score), groups by their mean.
    features: numpy's or torch's, float32 or float64; with a tensor of a GPU passes over all rows are made there, in
    float64. groups: (N,) the structure of each row, 0 .. S-1 ascending. A structure's score is log det(I + U P U^T);
    with per_atom, over its number of rows. known: covariance (d, d) and number of atoms of what is trained on already,
    None: the rows themselves. ridge: as of leverage_scores. The same seed gives the same choice. Raises ClebschError
    for a count that is not there, another method, or features that are not finite.
    """
    features = _checked(features)
    starts = None if groups is None else _starts(groups, len(features))
    things = len(features) if starts is None else len(starts) - 1
    if method not in METHODS:
        raise ClebschError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    if not 1 <= count <= things:
        raise ClebschError(f"count: expected 1 to {things}, got {count}")
    covariance, atoms = known if known is not None else (_covariance(features), len(features))
    if covariance.shape != (features.shape[1],) * 2 or not atoms > 0:
        raise ClebschError(
            f"known: expected a covariance of {features.shape[1]} features and a number of atoms, got "
            f"{covariance.shape} and {atoms}"
        )
    rows = _Rows(features, spectrum(covariance, ridge).whitening(atoms))
    random = np.random.default_rng(seed)
    if method == "maxvol":
        return _maxvol(features, covariance, ridge, count, starts)
    if method == "fps":
        first = rows.scores(np.eye(rows.width))
        if starts is None:
            return _farthest(rows[:], int(first.argmax()), count, progress)
        means = _sums(rows[:], starts) / np.maximum(np.diff(starts), 1)[:, None]
        return _farthest(means, int(_sums(first[:, None], starts)[:, 0].argmax()), count, progress)
    if starts is not None:
        return _choose_groups(rows, starts, count, method, per_atom, random, progress)
    if method == "leverage":
        return _drawn(rows.scores(np.eye(rows.width)), count, random)
    return (_drawn_rows if method == "volume" else _best_rows)(rows, count, random, progress)


def _checked(features: Matrix) -> Matrix:
    if _is_tensor(features):
        if features.dim() != 2 or features.numel() == 0 or not features.is_floating_point():
            raise ClebschError(f"features: expected rows of atoms, got shape {tuple(features.shape)}")
        if not bool((finite := features.isfinite().all(1)).all()):
            raise ClebschError(f"features: expected finite numbers, got others in row {int(finite.int().argmin())}")
        return features
    features = np.asarray(features)
    if features.dtype not in (np.float32, np.float64):
        features = features.astype(np.float64)
    if features.ndim != 2 or features.size == 0:
        raise ClebschError(f"features: expected rows of atoms, got shape {features.shape}")
    for part in _parts(len(features)):
        # Sums of numbers that are finite may still overflow: those are looked at one by one.
        if not np.isfinite(features[part].sum()) and not (finite := np.isfinite(features[part]).all(1)).all():
            raise ClebschError(f"features: expected finite numbers, got others in row {part.start + finite.argmin()}")
    return features


def _is_tensor(features: Any) -> bool:
    """Whether these are torch's, without importing it."""
    return hasattr(features, "is_cuda")


def _parts(rows: int) -> Iterator[slice]:
    return (slice(first, min(first + _BLOCK, rows)) for first in range(0, rows, _BLOCK))


def _covariance(features: Matrix) -> Matrix:
    """F^T F / N in float64, whatever the features are kept in."""
    if _is_tensor(features):
        blocks = (block.double() for block in features.split(_DEVICE_BLOCK))
        return (sum(block.T @ block for block in blocks) / len(features)).cpu().numpy()
    total = np.zeros((features.shape[1],) * 2)
    for part in _parts(len(features)):
        block = features[part].astype(np.float64, copy=False)
        total += block.T @ block
    return total / max(len(features), 1)


@dataclass(frozen=True)
class _Rows:
    """Rows of features (N, d), whitened when they are looked at: of a large pool there is no second array."""

    features: Matrix
    whitening: Matrix

    def __len__(self) -> int:
        return len(self.features)

    @property
    def width(self) -> int:
        return self.whitening.shape[1]

    def __getitem__(self, index: Any) -> Matrix:
        if _is_tensor(self.features):
            return self.features[index].double().cpu().numpy() @ self.whitening
        return self.features[index].astype(np.float64, copy=False) @ self.whitening

    def scores(self, p: Matrix) -> Matrix:
        """u^T P u (N,) of every row u."""
        factor = self.whitening @ np.linalg.cholesky(p)
        result = np.empty(len(self))
        if _is_tensor(self.features):
            there = self.features[:1].double().new_tensor(factor)
            for first in range(0, len(self), _DEVICE_BLOCK):
                y = self.features[first : first + _DEVICE_BLOCK].double() @ there
                result[first : first + _DEVICE_BLOCK] = y.square_().sum(1).cpu().numpy()
            return result
        for part in _parts(len(self)):
            y = self.features[part].astype(np.float64, copy=False) @ factor
            result[part] = np.einsum("ij,ij->i", y, y)
        return result


def _starts(groups: NDArray[np.integer], rows: int) -> Indices:
    """(S + 1) first row of every group."""
    groups = np.asarray(groups)
    if groups.shape != (rows,) or groups[0] < 0 or (np.diff(groups) < 0).any():
        raise ClebschError("groups: expected the structure of each row, 0 .. S-1 ascending")
    return np.searchsorted(groups, np.arange(int(groups[-1]) + 2)).astype(np.int64)


def _sums(rows: Matrix, starts: Indices) -> Matrix:
    total = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
    return total[starts[1:]] - total[starts[:-1]]


def _drawn(scores: Matrix, count: int, random: np.random.Generator) -> Indices:
    """Draws without replacement in proportion to the scores: the largest of log score + Gumbel noise."""
    keys = np.log(np.maximum(scores, np.finfo(float).tiny)) + random.gumbel(size=len(scores))
    best = np.argpartition(-keys, count - 1)[:count]
    return best[np.argsort(-keys[best])]


def _best_rows(rows: _Rows, count: int, random: np.random.Generator, progress: Progress) -> Indices:
    """Each time the row with the largest score. Exact: a row outside of the pool has at most its old score."""
    p = np.eye(rows.width)
    chosen: list[int] = []
    while len(chosen) < count:
        bounds = rows.scores(p)
        bounds[chosen] = -1.0
        size = min(_POOL, len(rows))
        pool = np.argpartition(-bounds, size - 1)[:size]
        outside = np.delete(bounds, pool).max(initial=-1.0) if size < len(rows) else -1.0
        near, scores = rows[pool], bounds[pool]
        while len(chosen) < count:
            best = int(scores.argmax())
            if scores[best] < outside:
                break
            step = p @ near[best]
            gain = 1.0 + scores[best]
            chosen.append(int(pool[best]))
            scores -= (near @ step) ** 2 / gain
            scores[best] = -1.0
            p -= np.outer(step, step) / gain
            progress("chosen", len(chosen), count)
    return np.array(chosen)


def _drawn_rows(rows: _Rows, count: int, random: np.random.Generator, progress: Progress) -> Indices:
    """Each drawn in proportion to its score. Exact: proposals by old scores are taken with probability new / old."""
    p = np.eye(rows.width)
    chosen: list[int] = []
    taken = np.zeros(len(rows), dtype=bool)
    while len(chosen) < count:
        bounds = rows.scores(p)
        bounds[taken] = 0.0
        law = np.cumsum(bounds)
        if not law[-1] > 0:
            raise ClebschError(f"volume: expected {count} rows that add something, got {len(chosen)}")
        missed = 0
        while len(chosen) < count and missed < 50:
            at = min(int(np.searchsorted(law, random.random() * law[-1], side="right")), len(rows) - 1)
            row = rows[at]
            step = p @ row
            score = float(row @ step)
            if taken[at] or random.random() * bounds[at] > score:
                missed += 1
                continue
            taken[at] = True
            chosen.append(at)
            p -= np.outer(step, step) / (1.0 + score)
            progress("chosen", len(chosen), count)
    return np.array(chosen)


def _farthest(rows: Matrix, first: int, count: int, progress: Progress) -> Indices:
    """Each time the row farthest from all that were chosen; distances only fall, so that a pool serves here, too."""
    chosen = [first]
    distance, seen = np.full(len(rows), np.inf), 0
    while len(chosen) < count:
        for at in chosen[seen:]:  # a pass over all rows for what was chosen since the last one
            for begin in range(0, len(rows), _BLOCK):
                part = slice(begin, begin + _BLOCK)
                gap = rows[part] - rows[at]
                np.minimum(distance[part], np.einsum("ij,ij->i", gap, gap), out=distance[part])
        seen = len(chosen)
        distance[chosen] = -1.0
        size = min(_POOL, len(rows))
        pool = np.argpartition(-distance, size - 1)[:size]
        outside = np.delete(distance, pool).max(initial=-1.0) if size < len(rows) else -1.0
        near, gaps = rows[pool], distance[pool]
        while len(chosen) < count and gaps.max() >= outside:
            best = int(gaps.argmax())
            chosen.append(int(pool[best]))
            gaps = np.minimum(gaps, ((near - near[best]) ** 2).sum(1))
            gaps[best] = -1.0
            progress("chosen", len(chosen), count)
    return np.array(chosen)


def _group_gain(rows: Matrix, p: Matrix, per_atom: bool) -> float:
    if len(rows) == 0:
        return 0.0
    inner = (
        rows @ p @ rows.T
        if len(rows) < rows.shape[1]
        else np.linalg.cholesky(p).T @ (rows.T @ rows) @ np.linalg.cholesky(p)
    )
    gain = float(np.linalg.slogdet(np.eye(len(inner)) + inner)[1])
    return gain / len(rows) if per_atom else gain


def _add_group(rows: Matrix, p: Matrix) -> Matrix:
    """(P^-1 + U^T U)^-1."""
    step = rows @ p
    if len(rows) <= rows.shape[1]:
        return p - step.T @ np.linalg.solve(np.eye(len(rows)) + step @ rows.T, step)
    return np.linalg.inv(np.linalg.inv(p) + rows.T @ rows)


def _choose_groups(
    rows: _Rows,
    starts: Indices,
    count: int,
    method: str,
    per_atom: bool,
    random: np.random.Generator,
    progress: Progress,
) -> Indices:
    p = np.eye(rows.width)
    group: Callable[[int], Matrix] = lambda s: rows[starts[s] : starts[s + 1]]  # noqa: E731
    gains = np.empty(len(starts) - 1)
    for s in range(len(gains)):
        gains[s] = _group_gain(group(s), p, per_atom)
        progress("gains", s + 1, len(gains))
    if method == "leverage":
        return _drawn(gains, count, random)
    chosen: list[int] = []
    if method == "doptimal":
        # A gain only falls as more is chosen (log det is submodular), so an old one is a bound.
        queue = [(-gain, s, 0) for s, gain in enumerate(gains)]
        heapq.heapify(queue)
        while len(chosen) < count:
            _, s, seen = heapq.heappop(queue)
            if seen < len(chosen):
                heapq.heappush(queue, (-_group_gain(group(s), p, per_atom), s, len(chosen)))
                continue
            chosen.append(s)
            p = _add_group(group(s), p)
            progress("chosen", len(chosen), count)
        return np.array(chosen)
    bounds = gains.copy()
    while len(chosen) < count:
        if not bounds.sum() > 0:
            raise ClebschError(f"volume: expected {count} structures that add something, got {len(chosen)}")
        s = int(random.choice(len(bounds), p=bounds / bounds.sum()))
        gain, bound = _group_gain(group(s), p, per_atom), bounds[s]
        bounds[s] = gain  # a sharper bound for the next draw; this one is judged by the old
        if random.random() * bound > gain:
            continue
        bounds[s] = 0.0
        chosen.append(s)
        p = _add_group(group(s), p)
        progress("chosen", len(chosen), count)
    return np.array(chosen)


def _maxvol(features: Matrix, covariance: Matrix, ridge: float | str, count: int, starts: Indices | None) -> Indices:
    """In the `count` directions of the known's largest eigenvalues that the rows can span; of groups, those of the rows
    in the order in which they turn up."""
    found = spectrum(covariance, ridge)
    if _is_tensor(features):
        features = features.double().cpu().numpy()
    kept = np.flatnonzero(found.values > found.ridge)[::-1]
    width = min(len(kept), len(features))
    if starts is None and count > width:
        raise ClebschError(f"maxvol: expected a count of at most the rank, {width}, got {count}; doptimal chooses more")
    columns = kept[: count if starts is None else width]
    picked = maxvol_rows(features @ (found.vectors[:, columns] / np.sqrt(found.values[columns])))
    if starts is None:
        return picked
    owners = np.searchsorted(starts, picked, side="right") - 1
    structures = owners[np.sort(np.unique(owners, return_index=True)[1])]
    if len(structures) < count:
        raise ClebschError(
            f"maxvol: expected {count} structures, but the {width} atoms that span the largest volume are in "
            f"{len(structures)}; doptimal chooses more"
        )
    return structures[:count]
