"""Writes a small random MACE model file in the exporter's form: tiny_mace.py OUT.pt [seed=1] [uniform=1].

Two types, r_max 4.0, two layers; weights are random. Four different cutoffs and density blocks; with uniform neither.
"""

from __future__ import annotations

import sys
from math import sqrt
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "python"))

from tiny_model import CUTOFFS, convolution, diagonal  # noqa: E402

from clebsch.export import backend  # noqa: E402
from clebsch.export import description as D  # noqa: E402
from clebsch.irreps import Block, Irreps  # noqa: E402

CHANNELS = 5
PRODUCT = "symmetric in=5x0e+5x1o out=5x0e+5x1o terms=0,0.0,1.1,2.2,3.3;1,0.1;2,0.2;3,0.3"


def describe(seed: int = 1, uniform: int = 0) -> D.Description:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    def radial(columns: int, density: bool) -> D.Radial:
        roots = torch.arange(1, 7, dtype=torch.float64) * torch.pi
        return D.Radial(roots, 0.4, 6.0, [normal(6, 10) / 2, normal(10, columns) / sqrt(10)], density=density)

    harmonics = Irreps([Block(1, 0, 1), Block(1, 1, -1)])

    def invariant() -> torch.Tensor:
        """Coefficients of PRODUCT: the components of a vector have the same, or energies would depend on directions."""
        values = normal(2, 11, CHANNELS) / 3
        return values[:, [0, 1, 2, 2, 2, 5, 6, 5, 6, 5, 6]]

    hidden = Irreps([Block(CHANNELS, 0, 1), Block(CHANNELS, 1, -1)])
    energy = Block(1, 0, 1)
    irreps, layers = Irreps([Block(CHANNELS, 0, 1)]), []
    for k in range(2):
        features = Irreps([b for b in irreps if b.mul == CHANNELS])
        paths, mid = convolution(features, harmonics, {b.irrep for b in hidden})
        out = Irreps([*hidden, energy])
        layers.append(
            D.ProductLayer(
                features,
                harmonics,
                mid,
                paths,
                radial(sum(features[p.in1].mul for p in paths), False),
                linear_in=diagonal(irreps, features, normal),
                linear_out=diagonal(mid.simplify(), hidden, normal),
                basis_problem=PRODUCT,
                coefficients=invariant(),
                product=diagonal(hidden, out, normal),
                self_connection=None if k == 0 else diagonal(irreps, out, normal, types=2),
                density=None if uniform else D.Density(radial(1, True), alpha=0.7, beta=1.3),
            )
        )
        irreps = out
    return D.Description(
        family="mace",
        dtype="float64",
        type_names=["O", "H"],
        atomic_numbers=[8, 1],
        r_max=4.0,
        pair_cutoffs=torch.full((2, 2), 4.0).double() if uniform else torch.tensor(CUTOFFS, dtype=torch.float64),
        embedding=normal(2, CHANNELS),
        layers=layers,
        readout=D.ProductReadout(torch.cat([normal(CHANNELS), torch.zeros(3 * CHANNELS).double(), normal(1)]), None),
        scale=torch.tensor([0.9, 1.1], dtype=torch.float64),
        shift=torch.tensor([-2.0, -0.5], dtype=torch.float64),
        pair=None,
        provenance=D.Provenance("none", "0", training_note="random weights"),
    )


def write(out: str, *rest: str) -> None:
    backend.write(describe(**{key: int(value) for key, value in (item.split("=") for item in rest)}), out, "float64")


if __name__ == "__main__":
    write(*sys.argv[1:])
