"""Graphs to time convolutions on."""

import itertools

import torch

_DIAMOND = [
    [0, 0, 0],
    [0, 0.5, 0.5],
    [0.5, 0, 0.5],
    [0.5, 0.5, 0],
    [0.25] * 3,
    [0.25, 0.75, 0.75],
    [0.75, 0.25, 0.75],
    [0.75, 0.75, 0.25],
]


def diamond(cells, device, cutoff=6.0, a=3.567):
    """Diamond carbon of 8 cells^3 atoms rattled by 0.05 A, periodic: (nodes, receivers, senders, vectors in fp64).

    Edges are all pairs within the cutoff (A), sorted by (receiver, sender); vectors lead from receiver to sender.
    """
    grid = torch.tensor(list(itertools.product(range(cells), repeat=3)), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    position = (grid[:, None] + torch.tensor(_DIAMOND, dtype=torch.float64)[None]).reshape(-1, 3) * a
    position = (position + 0.05 * torch.randn(position.shape, generator=generator, dtype=torch.float64)).to(device)
    nodes, found = position.shape[0], []
    for s in range(0, nodes, 512):
        d = position[None] - position[s : s + 512, None]
        for shift in itertools.product((-1, 0, 1), repeat=3):
            v = d + torch.tensor(shift, dtype=torch.float64, device=device) * cells * a
            r2 = (v * v).sum(-1)
            i, j = ((r2 < cutoff**2) & (r2 > 1e-8)).nonzero(as_tuple=True)
            found.append((i + s, j, v[i, j]))
    receivers, senders, vectors = (torch.cat(t) for t in zip(*found, strict=True))
    order = torch.argsort(receivers * nodes + senders, stable=True)
    return nodes, receivers[order], senders[order], vectors[order]
