"""Writes tests/unit/data/e3nn_golden.json: values of e3nn that the C++ tests of src/core compare with.

Wigner 3j symbols, spherical harmonics, and the paths of some convolutions. Needs e3nn 0.6 and torch:

    python tests/parity/make_e3nn_golden.py [OUT.json]
"""

import importlib.metadata
import json
import pathlib
import sys

import torch
from e3nn import o3

DEFAULT = pathlib.Path(__file__).resolve().parents[1] / "unit" / "data" / "e3nn_golden.json"

# All triples up to l = 3 and some of every higher degree, in every order of large and small.
HIGH_TRIPLES = [
    (4, 4, 4),
    (4, 3, 5),
    (1, 5, 4),
    (5, 5, 6),
    (6, 2, 4),
    (3, 6, 7),
    (7, 1, 6),
    (7, 4, 3),
    (2, 7, 7),
    (6, 7, 5),
    (7, 7, 7),
    (7, 7, 0),
]

# Features, highest degree of the harmonics, kept outputs, odd parity of odd harmonics. As in
# src/core/problem/named_problems.cpp.
CONVOLUTIONS = [
    ("128x0e+128x1o", 3, "0e+1o+2e+3o", True),
    ("32x0o+32x0e+32x1o+32x1e", 1, "0o+0e+1o+1e", True),
    ("128x0e+64x1o+32x2e", 2, "0e+1o+2e", True),
    ("128x0e+64x1e+32x2e+32x3e", 3, "0e+1e+2e+3e", False),
    ("3x0o+4x0e+5x1o+2x1e+3x2e", 2, "0o+0e+1o+1e+2e+2o", True),
    ("9x1o+17x0e+9x1o", 2, "0e+1o+1e+2e", True),
]


def wigner(l1: int, l2: int, l3: int) -> dict:
    """The entries of one 3j tensor above 1e-12."""
    tensor = o3.wigner_3j(l1, l2, l3, dtype=torch.float64)
    index = (tensor.abs() > 1e-12).nonzero().tolist()
    return {"l": [l1, l2, l3], "entries": [[a, b, c, tensor[a, b, c].item()] for a, b, c in index]}


def harmonics() -> list:
    """Unit vectors (poles and axes among them) and their harmonics up to l = 7, 'component' normalisation."""
    generator = torch.Generator().manual_seed(7)
    points = torch.cat([torch.eye(3), -torch.eye(3), torch.randn(14, 3, generator=generator)]).to(torch.float64)
    points = points / points.norm(dim=1, keepdim=True)
    values = o3.spherical_harmonics(list(range(8)), points, normalize=False, normalization="component")
    return [{"point": p.tolist(), "values": v.tolist()} for p, v in zip(points, values, strict=True)]


def convolution(features: str, lmax: int, out_filter: str, odd_harmonics: bool) -> dict:
    """Paths in the order of nequip's loop, outputs sorted by e3nn, coefficients of e3nn's TensorProduct."""
    irreps_in1 = o3.Irreps(features)
    irreps_in2 = o3.Irreps([(1, (degree, (-1) ** degree if odd_harmonics else 1)) for degree in range(lmax + 1)])
    kept = [ir for _, ir in o3.Irreps(out_filter)]
    outputs, instructions = [], []
    for i, (mul, ir1) in enumerate(irreps_in1):
        for j, (_, ir2) in enumerate(irreps_in2):
            for ir in ir1 * ir2:
                if ir in kept:
                    instructions.append((i, j, len(outputs), "uvu", True))
                    outputs.append((mul, ir))
    irreps_out, position, _ = o3.Irreps(outputs).sort()
    instructions = [(i, j, position[k], mode, weighted) for i, j, k, mode, weighted in instructions]
    product = o3.TensorProduct(irreps_in1, irreps_in2, irreps_out, instructions, shared_weights=False)
    paths = [[p.i_in1, p.i_in2, p.i_out, float(p.path_weight)] for p in product.instructions]
    return {
        "features": features,
        "lmax": lmax,
        "filter": out_filter,
        "odd_harmonics": odd_harmonics,
        "out": str(irreps_out),
        "weight_count": product.weight_numel,
        "paths": paths,
    }


def golden() -> dict:
    """All values, as the file holds them."""
    torch.set_default_dtype(torch.float64)
    low = [(a, b, c) for a in range(4) for b in range(4) for c in range(abs(a - b), min(a + b, 3) + 1)]
    return {
        "e3nn": importlib.metadata.version("e3nn"),
        "wigner_3j": [wigner(*triple) for triple in low + HIGH_TRIPLES],
        "spherical_harmonics": harmonics(),
        "convolutions": [convolution(*arguments) for arguments in CONVOLUTIONS],
    }


def main() -> None:
    """Writes one entry a line, so that a change shows as a small difference."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    data = golden()
    parts = [f'"e3nn": {json.dumps(data["e3nn"])}']
    for key in ("wigner_3j", "spherical_harmonics", "convolutions"):
        parts.append(f'"{key}": [\n' + ",\n".join(json.dumps(item) for item in data[key]) + "\n]")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
