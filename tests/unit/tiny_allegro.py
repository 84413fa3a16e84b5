"""Writes a small random Allegro model file in the exporter's form, for the tests: tiny_allegro.py OUT.pt [option=value
...]. Options: seed, dtype (float32, float64), spline (0, 1), tutorial (1: the sizes of upstream's tutorial with l_max
2, r_max 5.0 and neither cutoffs of pairs nor a ZBL term). Two types, else r_max 4.0, a cutoff of its own for each
ordered pair, a ZBL term. Weights are random."""

from __future__ import annotations

import sys
from math import pi, sqrt
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "python"))

from clebsch.export import backend  # noqa: E402
from clebsch.export import description as D  # noqa: E402
from clebsch.irreps import Irreps  # noqa: E402


def describe(seed: int = 1, dtype: str = "float32", spline: int = 0, tutorial: int = 0) -> D.Description:
    scalars, channels, lmax, nbasis, hidden, head = (64, 32, 2, 8, 64, 32) if tutorial else (6, 5, 2, 6, 7, 4)
    first = 64 if tutorial else 8
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64) / sqrt(shape[-2])

    env = channels * (lmax + 1)
    roots = torch.arange(1, nbasis + 1, dtype=torch.float64) * pi
    if spline:
        roots = torch.arange(-4, nbasis - 4, dtype=torch.float64) / nbasis
    # Products in the order of core/problem/allegro_problem.h: 11 paths within 0e+1o+2e, then 3 to the scalar.
    network = D.AllegroNetwork(
        scalars=scalars,
        channels=channels,
        lmax=lmax,
        tensors=[Irreps.parse(text) for text in ("0e+1o+2e", "0e+1o+2e", "0e")],
        basis=f"spline,{5 / nbasis:.17g}" if spline else "bessel,0.5,6",
        roots=roots,
        pair_weights=normal(4, nbasis, first),
        shared_weights=[normal(first, scalars + 2 * env)],
        paths=[normal(11, channels), normal(3, channels)],
        latents=[
            [normal(scalars + channels, hidden), normal(hidden, scalars + env)],
            [normal(2 * scalars + channels, hidden), normal(hidden, scalars)],
        ],
        readout=[normal(3 * scalars, head), normal(head, 1)],
        norm=torch.tensor([0.1, 0.12] if tutorial else [0.4, 0.5], dtype=torch.float64),
    )
    return D.Description(
        family="allegro",
        dtype=dtype,
        type_names=["O", "H"],
        atomic_numbers=[8, 1],
        r_max=5.0 if tutorial else 4.0,
        pair_cutoffs=torch.tensor([[5.0, 5.0], [5.0, 5.0]] if tutorial else [[4.0, 3.6], [3.5, 3.2]]).double(),
        embedding=torch.empty(2, 0, dtype=torch.float64),
        layers=[network],
        readout=[],
        scale=torch.tensor([0.9, 1.1], dtype=torch.float64),
        shift=torch.tensor([-2.0, -0.5], dtype=torch.float64),
        pair=None if tutorial else D.PairRepulsion(torch.tensor([8.0, 1.0], dtype=torch.float64), 7.1998225, 6.0),
        provenance=D.Provenance("none", "0", training_note="random weights"),
    )


def write(out: str, *rest: str) -> None:
    options = {key: value if key == "dtype" else int(value) for key, value in (item.split("=") for item in rest)}
    backend.write(describe(**options), out, options.get("dtype", "float32"))


if __name__ == "__main__":
    write(*sys.argv[1:])
