"""Writes a small random Allegro model file in the exporter's form, for the tests: tiny_allegro.py OUT.pt [option=value
...]. Options: seed, dtype (float32, float64), spline (0, 1). Two types, r_max 4.0, a cutoff of its own for each ordered
pair, a ZBL term. Weights are random."""

from __future__ import annotations

import sys
from math import pi, sqrt
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "python"))

from clebsch.export import backend  # noqa: E402
from clebsch.export import description as D  # noqa: E402
from clebsch.irreps import Irreps  # noqa: E402

SCALARS, CHANNELS, LMAX, BASIS = 6, 5, 2, 6


def describe(seed: int = 1, dtype: str = "float32", spline: int = 0) -> D.Description:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64) / sqrt(shape[-2])

    env = CHANNELS * (LMAX + 1)
    roots = torch.arange(1, BASIS + 1, dtype=torch.float64) * pi
    if spline:
        roots = torch.arange(-4, BASIS - 4, dtype=torch.float64) / BASIS
    # Products in the order of core/allegro_problem.h: 11 paths within 0e+1o+2e, then 3 to the scalar.
    network = D.AllegroNetwork(
        scalars=SCALARS,
        channels=CHANNELS,
        lmax=LMAX,
        tensors=[Irreps.parse(text) for text in ("0e+1o+2e", "0e+1o+2e", "0e")],
        basis=f"spline,{5 / BASIS:.17g}" if spline else "bessel,0.5,6",
        roots=roots,
        pair_weights=normal(4, BASIS, 8),
        shared_weights=[normal(8, SCALARS + 2 * env)],
        paths=[normal(11, CHANNELS), normal(3, CHANNELS)],
        latents=[
            [normal(SCALARS + CHANNELS, 7), normal(7, SCALARS + env)],
            [normal(2 * SCALARS + CHANNELS, 7), normal(7, SCALARS)],
        ],
        readout=[normal(3 * SCALARS, 4), normal(4, 1)],
        norm=torch.tensor([0.4, 0.5], dtype=torch.float64),
    )
    return D.Description(
        family="allegro",
        dtype=dtype,
        type_names=["O", "H"],
        atomic_numbers=[8, 1],
        r_max=4.0,
        pair_cutoffs=torch.tensor([[4.0, 3.6], [3.5, 3.2]], dtype=torch.float64),
        embedding=torch.empty(2, 0, dtype=torch.float64),
        layers=[network],
        readout=[],
        scale=torch.tensor([0.9, 1.1], dtype=torch.float64),
        shift=torch.tensor([-2.0, -0.5], dtype=torch.float64),
        pair=D.PairRepulsion(torch.tensor([8.0, 1.0], dtype=torch.float64), 7.1998225, 6.0),
        provenance=D.Provenance("none", "0", training_note="random weights"),
    )


def main() -> None:
    out, *rest = sys.argv[1:]
    options = {key: value if key == "dtype" else int(value) for key, value in (item.split("=") for item in rest)}
    backend.write(describe(**options), out, options.get("dtype", "float32"))


if __name__ == "__main__":
    main()
