"""The text form of a convolution (src/core/problem/problem.h) from the arguments of e3nn's ``TensorProduct``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .errors import ClebschError
from .irreps import Irreps

_MODES = ("uvu", "uvw")
_MOST_L = 7  # of coupling_signs.txt and src/core/math


class Path(NamedTuple):
    """One instruction: blocks of the operands, connection mode, weighted or not, and e3nn's normalised coefficient."""

    in1: int
    in2: int
    out: int
    mode: str
    weighted: bool
    coefficient: float


def read_instructions(instructions: Sequence[Sequence[Any]]) -> list[tuple[int, int, int, str, bool, float]]:
    """Instructions ``(i_1, i_2, i_out, mode, has_weight[, path_weight])``, the last one filled in."""
    result = []
    for k, instruction in enumerate(instructions):
        values = tuple(instruction)
        if len(values) not in (5, 6):
            raise ClebschError(
                f"instruction {k}: expected (i_1, i_2, i_out, mode, has_weight[, path_weight]), got {values!r}"
            )
        in1, in2, out, mode, weighted = values[:5]
        weight = float(values[5]) if len(values) == 6 else 1.0
        result.append((int(in1), int(in2), int(out), str(mode), bool(weighted), weight))
    return result


def normalised_paths(
    irreps_in1: Irreps,
    irreps_in2: Irreps,
    irreps_out: Irreps,
    instructions: Sequence[Sequence[Any]],
    irrep_normalization: str = "component",
    path_normalization: str = "element",
    in1_var: Sequence[float] | None = None,
    in2_var: Sequence[float] | None = None,
    out_var: Sequence[float] | None = None,
) -> list[Path]:
    """Checked paths with the coefficients that e3nn 0.4 to 0.6 gives them (``e3nn.o3.TensorProduct.__init__``).

    Raises ClebschError naming the instruction and what is not supported.
    """
    if irrep_normalization not in ("component", "norm", "none"):
        raise ClebschError(f"irrep_normalization: expected component, norm or none, got {irrep_normalization!r}")
    if path_normalization not in ("element", "path", "none"):
        raise ClebschError(f"path_normalization: expected element, path or none, got {path_normalization!r}")
    variances = [
        _variances(name, values, irreps)
        for name, values, irreps in (
            ("in1_var", in1_var, irreps_in1),
            ("in2_var", in2_var, irreps_in2),
            ("out_var", out_var, irreps_out),
        )
    ]
    read = read_instructions(instructions)
    for k, instruction in enumerate(read):
        _check(k, instruction, irreps_in1, irreps_in2, irreps_out)

    def variance(path: tuple[int, int, int, str, bool, float]) -> float:
        """Of one output channel's sum over this path, for unit weights: the number of elements times variances."""
        elements = irreps_in2[path[1]].mul * (irreps_in1[path[0]].mul if path[3] == "uvw" else 1)
        return variances[0][path[0]] * variances[1][path[1]] * elements

    result = []
    for k, path in enumerate(read):
        in1, in2, out, mode, weighted, path_weight = path
        alpha = 1.0
        if irrep_normalization == "component":
            alpha = 2.0 * irreps_out[out].l + 1
        elif irrep_normalization == "norm":
            alpha = (2.0 * irreps_in1[in1].l + 1) * (2 * irreps_in2[in2].l + 1)
        siblings = [other for other in read if other[2] == out]
        total = 1.0
        if path_normalization == "element":
            total = sum(map(variance, siblings))
        elif path_normalization == "path":
            total = variance(path) * len(siblings)
        if total > 0:
            alpha /= total
        alpha *= variances[2][out] * path_weight
        if not (alpha >= 0 and math.isfinite(alpha)):
            raise ClebschError(f"instruction {k}: expected a finite path_weight of at least 0, got {path_weight}")
        result.append(Path(in1, in2, out, mode, weighted, math.sqrt(alpha)))
    return result


def problem_text(irreps_in1: Irreps, irreps_in2: Irreps, irreps_out: Irreps, paths: Sequence[Path]) -> str:
    """The problem; '' when no path has a channel. Blocks without channels are left out: they have no values."""
    place1, place2, place3 = map(_places, (irreps_in1, irreps_in2, irreps_out))
    texts = [
        f"{p.mode}{'' if p.weighted else '0'}:{place1[p.in1]},{place2[p.in2]},{place3[p.out]},{p.coefficient:.17g}"
        for p in paths
        if p.in1 in place1 and p.in2 in place2 and p.out in place3
    ]
    if not texts:
        return ""
    operands = [Irreps(b for b in irreps if b.mul > 0) for irreps in (irreps_in1, irreps_in2, irreps_out)]
    return f"conv in1={operands[0]} in2={operands[1]} out={operands[2]} paths={';'.join(texts)}"


def weight_count(irreps_in1: Irreps, irreps_out: Irreps, paths: Sequence[Path]) -> int:
    """Columns of W: u of a weighted uvu path, u times w of a uvw path, in the order of the paths."""
    return sum(irreps_in1[p.in1].mul * (irreps_out[p.out].mul if p.mode == "uvw" else 1) for p in paths if p.weighted)


def _places(irreps: Irreps) -> dict[int, int]:
    kept = [i for i, block in enumerate(irreps) if block.mul > 0]
    return {block: place for place, block in enumerate(kept)}


def _variances(name: str, values: Sequence[float] | None, irreps: Irreps) -> list[float]:
    result = [1.0] * len(irreps) if values is None else [float(v) for v in values]
    if len(result) != len(irreps):
        raise ClebschError(f"{name}: expected {len(irreps)} values, one a block of {irreps}, got {len(result)}")
    return result


def _check(
    k: int, path: tuple[int, int, int, str, bool, float], irreps_in1: Irreps, irreps_in2: Irreps, irreps_out: Irreps
) -> None:
    in1, in2, out, mode, weighted, _ = path
    counts = (len(irreps_in1), len(irreps_in2), len(irreps_out))
    if not all(0 <= i < count for i, count in zip((in1, in2, out), counts, strict=True)):
        raise ClebschError(f"instruction {k}: expected blocks below {counts}, got {(in1, in2, out)}")
    if mode not in _MODES:
        raise ClebschError(f"instruction {k}: expected mode uvu or uvw, got {mode!r}, which Clebsch does not have")
    if mode == "uvw" and not weighted:
        raise ClebschError(f"instruction {k}: expected a weighted uvw path: without weights nothing maps u to w")
    a, b, c = irreps_in1[in1], irreps_in2[in2], irreps_out[out]
    if b.mul != 1:
        raise ClebschError(
            f"instruction {k}: expected multiplicity 1 of the second operand ({mode} with mul2 = 1), got {b}"
        )
    if mode == "uvu" and c.mul != a.mul:
        raise ClebschError(f"instruction {k}: expected output multiplicity {a.mul} (uvu), got {c}")
    if max(a.l, b.l, c.l) > _MOST_L:
        raise ClebschError(f"instruction {k}: expected degrees l of at most {_MOST_L}, got {a} x {b} -> {c}")
    if c.p != a.p * b.p or not abs(a.l - b.l) <= c.l <= a.l + b.l:
        raise ClebschError(f"instruction {k}: {a} and {b} do not couple to {c}")
