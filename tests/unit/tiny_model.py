"""Writes a small random model file in the exporter's form, for the tests: tiny_model.py OUT.pt [option=value ...].

Options: seed, dtype (float32, float64), lmax, layers, parity, zbl, uniform (0, 1). Two types, r_max 4.0; by default
the cutoffs of O-O, O-H, H-O and H-H differ, so that every part of the cutoff table is seen. Weights are random.
outputs (1, 2, 3): further named outputs, `features` (rows, 8) of each atom, `moment` (8) and `square` () of the
system: sums over rows of energy x features and of energy x energy. Their kinds are declared (1), left out as in older
files (2), or wrong (3). outputs=4: one that is of neither kind. grade: as of random training features, by leverage with
all elements pooled (1), or by MaxVol with a matrix for each (2).
"""

from __future__ import annotations

import dataclasses
import sys
from contextlib import nullcontext
from math import sqrt
from pathlib import Path
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "python"))

from clebsch import grade as grades  # noqa: E402
from clebsch.export import backend  # noqa: E402
from clebsch.export import description as D  # noqa: E402
from clebsch.irreps import Block, Irreps  # noqa: E402

SILU, TANH = 1.6791767923989418, 1.5937334
CUTOFFS = [[4.0, 3.6], [3.5, 3.2]]


def describe(
    seed: int = 1,
    dtype: str = "float32",
    lmax: int = 2,
    layers: int = 2,
    parity: int = 0,
    zbl: int = 0,
    uniform: int = 0,
):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    muls = [8, 6, 4, 3, 2]
    harmonics = Irreps([Block(1, m, (-1) ** m if parity else 1) for m in range(lmax + 1)])
    parities = [1, -1] if parity else [1]
    hidden = [Block(muls[m], m, p) for m in range(lmax + 1) for p in parities]
    irreps = Irreps([Block(8, 0, 1)])
    result = []
    for k in range(layers):
        final = k == layers - 1
        wanted = [Block(8, 0, 1)] if final else hidden
        paths, mid = convolution(irreps, harmonics, {b.irrep for b in wanted})
        available = {b.irrep for b in mid}
        scalars = Irreps([b for b in wanted if b.l == 0 and b.irrep in available])
        gated = Irreps([b for b in wanted if b.l > 0 and b.irrep in available])
        gates = Irreps([Block(sum(b.mul for b in gated), 0, 1)] if gated else [])
        gate = D.Gate(scalars, gates, gated, SILU, TANH)
        columns = sum(irreps[p.in1].mul for p in paths)
        radial = D.Radial(
            torch.arange(1, 7, dtype=torch.float64) * torch.pi,
            0.4,
            6.0,
            [normal(6, 10) / 2, normal(10, columns) / sqrt(10)],
        )
        result.append(
            D.Layer(
                irreps,
                harmonics,
                mid,
                paths,
                radial,
                linear_in=None if k == 0 else diagonal(irreps, irreps, normal),
                sender_norm=None if k == 0 else torch.tensor([[0.4], [0.5]], dtype=torch.float64),
                linear_out=diagonal(mid.simplify(), gate.irreps_in, normal),
                self_connection=None if k == 0 else diagonal(irreps, gate.irreps_in, normal, types=2),
                gate=gate,
            )
        )
        irreps = gate.irreps_out
    return D.Description(
        family="nequip",
        dtype=dtype,
        type_names=["O", "H"],
        atomic_numbers=[8, 1],
        r_max=4.0,
        pair_cutoffs=torch.tensor([[4.0] * 2] * 2 if uniform else CUTOFFS, dtype=torch.float64),
        embedding=normal(2, 8),
        layers=result,
        readout=[normal(8, 5) / sqrt(8), normal(5, 1) / sqrt(5)],
        scale=torch.tensor([0.9, 1.1], dtype=torch.float64),
        shift=torch.tensor([-2.0, -0.5], dtype=torch.float64),
        pair=D.PairRepulsion(torch.tensor([8.0, 1.0], dtype=torch.float64), 7.1998225, 6.0) if zbl else None,
        provenance=D.Provenance("none", "0", training_note="random weights"),
    )


def convolution(features: Irreps, harmonics: Irreps, wanted: set[tuple[int, int]]) -> tuple[list[D.Path], Irreps]:
    """All uvu paths into `wanted`; outputs sorted by (l, parity), a block for each path."""
    found = []
    for a, x in enumerate(features):
        for b, y in enumerate(harmonics):
            for degree in range(abs(x.l - y.l), x.l + y.l + 1):
                if (degree, x.p * y.p) in wanted:
                    found.append((a, b, Block(x.mul, degree, x.p * y.p)))
    order = sorted(range(len(found)), key=lambda k: (found[k][2].l, found[k][2].p))
    place = {k: position for position, k in enumerate(order)}
    paths = [D.Path(a, b, place[k], sqrt(2 * out.l + 1)) for k, (a, b, out) in enumerate(found)]
    return paths, Irreps([found[k][2] for k in order])


def diagonal(irreps_in: Irreps, irreps_out: Irreps, normal, types: int | None = None) -> D.LinearMap:
    """A random map between all blocks of equal irrep."""
    prefix = () if types is None else (types,)
    blocks = [
        (a, b, normal(*prefix, x.mul, y.mul) / sqrt(x.mul))
        for a, x in enumerate(irreps_in)
        for b, y in enumerate(irreps_out)
        if x.irrep == y.irrep
    ]
    return D.LinearMap(irreps_in, irreps_out, blocks)


def with_outputs(kind: int):
    """The exporter with further outputs, which no upstream model has so far."""
    methods, metadata = backend._methods, backend.metadata

    def more_methods(*arguments):
        *others, forward = methods(*arguments)
        lines = forward.splitlines()[:-1]
        lines += [
            "    rows = graph[0].size(0) - 1",
            "    energy = energy.narrow(0, 0, rows)",
            "    features = x.narrow(0, 0, rows)",
            "    moment = energy.matmul(features)",
            "    square = energy.matmul(energy)",
            "    neither = graph[1]" if kind == 4 else "    neither = square",
            '    return {"atomic_energy": energy, "features": features, "moment": moment, "square": square, '
            '"neither": neither}',
        ]
        return [*others, "\n".join(lines) + "\n"]

    def more_metadata(*arguments):
        result = metadata(*arguments)
        result["outputs"] += ["features", "moment", "square"] + (["neither"] if kind == 4 else [])
        if kind in (1, 3):
            of_system = "system" if kind == 1 else "atom"
            result["output_kinds"] |= {"features": "atom", "moment": of_system, "square": of_system}
        else:
            del result["output_kinds"]
        return result

    return mock.patch.multiple(backend, _methods=more_methods, metadata=more_metadata)


def with_grade(description, kind: int):
    random = np.random.default_rng(0)
    grade, pooling = ("leverage", "all") if kind == 1 else ("maxvol", "element")
    known = grades.fit(random.normal(size=(200, 8)), random.integers(2, size=200), 2, grade, pooling=pooling)
    return dataclasses.replace(description, grade=known)


def write(out: str, *rest: str) -> None:
    options = {key: value if key == "dtype" else int(value) for key, value in (item.split("=") for item in rest)}
    kind, grade = options.pop("outputs", 0), options.pop("grade", 0)
    made = describe(**options)
    with with_outputs(kind) if kind else nullcontext():
        backend.write(with_grade(made, grade) if grade else made, out, options.get("dtype", "float32"))


if __name__ == "__main__":
    write(*sys.argv[1:])
