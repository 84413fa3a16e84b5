"""Rows that an exchange of features copies and adds, and the same by loops."""

from __future__ import annotations

import torch

#: Of rows in 16, 8 and 4 byte words, shorter and longer than a warp.
WIDTHS = (1, 2, 3, 8, 26, 131, 512)


def copied(dtype, width: int, device: str, rows: int = 300) -> dict[str, bool]:
    """Whether copies to and from named rows, and of neighbouring ones, have the bits that they should have."""
    generator = torch.Generator().manual_seed(width)
    source = torch.randn(rows, width, dtype=dtype, generator=generator)
    order, places = (torch.randperm(rows, generator=generator).int() for _ in range(2))
    none = torch.empty(0, dtype=torch.int32)
    right = {}
    for name, of, to, count in (
        ("plain", none, none, rows),
        ("gather", order, none, 100),
        ("scatter", none, places, 100),
        ("both", order, places, rows),
    ):
        expected = torch.full_like(source, 7)
        from_rows = order[:count].long() if of.numel() else torch.arange(count)
        to_rows = places[:count].long() if to.numel() else torch.arange(count)
        expected[to_rows] = source[from_rows]
        got = torch.full_like(source, 7).to(device)
        torch.classes.clebsch.Model.copy_rows(source.to(device), of.to(device), got, to.to(device), count)
        right[name] = torch.equal(got.cpu(), expected)
    return right


def added(dtype, width: int, device: str, rows: int = 300) -> bool:
    """Whether rows added in order have the bits of the same sums on the CPU."""
    generator = torch.Generator().manual_seed(width)
    target, received = (torch.randn(rows, width, dtype=dtype, generator=generator) for _ in range(2))
    chosen = torch.randperm(rows, generator=generator)[: 2 * rows // 3].int()
    counts = torch.randint(1, 6, (len(chosen),), generator=generator)
    starts = torch.zeros(len(chosen) + 1, dtype=torch.int32)
    starts[1:] = counts.cumsum(0)
    places = torch.randint(rows, (int(starts[-1]),), generator=generator).int()
    got = target.to(device)
    torch.classes.clebsch.Model.add_rows(
        got, received.to(device), chosen.to(device), starts.to(device), places.to(device)
    )
    for t, row in enumerate(chosen.tolist()):
        for place in places[int(starts[t]) : int(starts[t + 1])].tolist():
            target[row] += received[place]
    return torch.equal(got.cpu(), target)
