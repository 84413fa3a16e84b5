"""Periodic cells of liquids to time `interaction` on."""

import itertools
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def periodic_edges(position, box, cutoff):
    """(nodes, receivers, senders, vectors) of all pairs within the cutoff; the box (3) is at least twice as wide."""
    found = []
    for s in range(0, len(position), 256):
        v = position[None] - position[s : s + 256, None]
        v -= box * torch.round(v / box)
        r2 = (v * v).sum(-1)
        i, j = ((r2 < cutoff**2) & (r2 > 1e-8)).nonzero(as_tuple=True)
        found.append((i + s, j, v[i, j]))
    return (len(position), *(torch.cat(t) for t in zip(*found, strict=True)))


def water(repeats, device):
    """The liquid of examples/water_box, periodic copies: (edges within 5 A, types)."""
    lines = (ROOT / "examples/water_box/water.data").read_text().splitlines()
    box = torch.tensor([float(line.split()[1]) for line in lines if "xlo xhi" in line] * 3, dtype=torch.float64)
    first = next(i for i, line in enumerate(lines) if line.startswith("Atoms")) + 2
    rows = [line.split() for line in lines[first:] if line.strip()]
    rows = sorted(itertools.takewhile(lambda row: row[0].isdigit(), rows), key=lambda row: int(row[0]))
    position = torch.tensor([[float(v) for v in row[2:5]] for row in rows], dtype=torch.float64)
    types = torch.tensor([int(row[1]) - 1 for row in rows], dtype=torch.int32)
    grid = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float64) for n in repeats))
    position = (grid[:, None] * box + position[None]).reshape(-1, 3).to(device)
    box = (box * torch.tensor(repeats)).to(device)
    return periodic_edges(position, box, 5.0), types.repeat(len(grid))


def disordered(cells, device):
    """Five elements at random on an fcc lattice of 3.6 A rattled by 0.25 A: (edges within 6 A, types)."""
    generator = torch.Generator().manual_seed(4)
    base = torch.tensor([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]], dtype=torch.float64)
    grid = torch.cartesian_prod(*[torch.arange(cells, dtype=torch.float64)] * 3)
    position = (grid[:, None] + base[None]).reshape(-1, 3) * 3.6
    position += 0.25 * torch.randn(position.shape, generator=generator, dtype=torch.float64)
    types = torch.randint(0, 5, (len(position),), generator=generator).int()
    box = torch.full((3,), 3.6 * cells, dtype=torch.float64, device=device)
    return periodic_edges(position.to(device), box, 6.0), types
