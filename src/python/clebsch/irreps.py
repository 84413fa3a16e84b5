"""The few operations on irreps text that export and the tests need; the C++ twin is src/core/math/irreps.h."""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import ClebschError

_TERM = re.compile(r"^(?:(\d+)x)?(\d+)([eo])$")


class Block(NamedTuple):
    """``mul`` channels of the irrep of degree ``l`` and parity ``p`` (+1 even, -1 odd)."""

    mul: int
    l: int  # noqa: E741 - the field's name
    p: int

    @property
    def irrep(self) -> tuple[int, int]:
        return (self.l, self.p)

    @property
    def dim(self) -> int:
        return self.mul * (2 * self.l + 1)

    def __str__(self) -> str:
        return f"{self.mul}x{self.l}{'e' if self.p == 1 else 'o'}"


class Irreps(tuple[Block, ...]):
    """A list of blocks, order kept as written, e.g. ``Irreps.parse("128x0e+64x1o")``."""

    @classmethod
    def parse(cls, text: str) -> Irreps:
        blocks = []
        for term in filter(None, (t.strip() for t in str(text).split("+"))):
            match = _TERM.match(term)
            if match is None:
                raise ClebschError(f"irreps: expected terms such as 64x1o, got {term!r} in {text!r}")
            mul, degree, parity = match.groups()
            blocks.append(Block(int(mul or 1), int(degree), 1 if parity == "e" else -1))
        return cls(blocks)

    @property
    def dim(self) -> int:
        return sum(b.dim for b in self)

    def simplify(self) -> Irreps:
        """Adjacent blocks of one irrep merged, empty blocks dropped (e3nn's ``simplify``)."""
        merged: list[Block] = []
        for block in self:
            if block.mul == 0:
                continue
            if merged and merged[-1].irrep == block.irrep:
                merged[-1] = merged[-1]._replace(mul=merged[-1].mul + block.mul)
            else:
                merged.append(block)
        return Irreps(merged)

    def __add__(self, other: Irreps) -> Irreps:  # type: ignore[override]
        return Irreps(tuple(self) + tuple(other))

    def __str__(self) -> str:
        return "+".join(map(str, self))
