"""What a rank computes and sends, counted from positions: rows, copies of other ranks' rows, partners, messages, bytes.

LAMMPS's brick decomposition of an orthogonal periodic box (`comm_style brick`, `processors * * *`) is done again here
from its documented rules, without MPI and without the plugin: what `check` compares with the plugin's log. A box of
millions of atoms is a base cell and its copies, of which only the atoms around one domain are ever made.

Lengths in Angstrom. `reach[a, b]` is the distance up to which an atom of type a + 1 has one of type b + 1 in its
neighbour list: the larger of the two directions' cutoffs, and the skin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np
from scipy.spatial import cKDTree


@dataclass(frozen=True)
class Box:
    """`copies` of a cell with edges `lengths` (3,) along each axis; positions (N, 3) and types (N,) of one cell."""

    lengths: np.ndarray
    positions: np.ndarray
    types: np.ndarray
    copies: tuple[int, int, int] = (1, 1, 1)

    def __post_init__(self) -> None:
        inside = np.asarray(self.positions, float) % self.lengths
        object.__setattr__(self, "positions", np.where(inside < self.lengths, inside, 0.0))

    def __len__(self) -> int:
        return len(self.types) * int(np.prod(self.copies))

    @property
    def edges(self) -> np.ndarray:
        """(3,) of the whole box."""
        return np.asarray(self.lengths) * self.copies


def processor_grid(ranks: int, edges: np.ndarray) -> tuple[int, int, int]:
    """Ranks along x, y and z as LAMMPS's `processors * * *` takes them: the least surface of a rank's domain, and of
    several such the one with the fewest ranks along x, then y."""
    x, y, z = (float(edge) for edge in edges)
    best, least = (1, 1, ranks), float("inf")
    for i in (i for i in range(1, ranks + 1) if ranks % i == 0):
        for j in (j for j in range(1, ranks // i + 1) if ranks // i % j == 0):
            k = ranks // i // j
            surface = x * y / i / j + x * z / i / k + y * z / j / k
            if surface < least:
                best, least = (i, j, k), surface
    return best


@dataclass
class Count:
    """What one rank has in a plan. `receives`, `sends`: rank -> rows of it that this one has copies of, and the other
    way round."""

    owned: int
    ghosts: int  # LAMMPS's ghost atoms, images and duplicates counted
    receives: dict[int, int] = field(default_factory=dict)
    sends: dict[int, int] = field(default_factory=dict)

    @property
    def remote(self) -> int:
        return sum(self.receives.values())

    @property
    def sent(self) -> int:
        return sum(self.sends.values())

    def messages(self, rounds: int) -> int:
        """That leave the rank in a step with comm halo: features to those who have copies, gradients to the owners."""
        return rounds * (len(self.receives) + len(self.sends))

    def bytes(self, widths: list[int], number_bytes: int) -> int:
        """The same in bytes; `widths`: numbers a node of each exchange."""
        return (self.remote + self.sent) * sum(widths) * number_bytes


def gather_bytes(owned: list[int], widths: list[int], number_bytes: int) -> int:
    """Bytes that leave each rank in a step with comm gather: slots of the largest rank's rows to all others, twice."""
    return 2 * (len(owned) - 1) * max(owned) * sum(widths) * number_bytes


@dataclass(frozen=True)
class Atoms:
    """Atoms and images: positions (N, 3), types (N,), ids (N,) of the atoms, home (N,) their ranks, real (N,) whether
    it is the atom itself."""

    positions: np.ndarray
    types: np.ndarray
    ids: np.ndarray
    home: np.ndarray
    real: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> Atoms:
        return Atoms(*(part[chosen] for part in vars(self).values()))


class Decomposition:
    """A box on so many ranks."""

    def __init__(self, box: Box, ranks: int) -> None:
        self.box, self.ranks = box, ranks
        self.grid = processor_grid(ranks, box.edges)
        self._made: tuple = (-1, 0.0, None)  # the last rank's surroundings: rank, depth, atoms
        # As Comm::set_proc_grid and Domain::set_local_box compute them, to the last bit.
        self.walls = [
            np.array([edge * (i * 1.0 / n) for i in range(n)] + [edge])
            for edge, n in zip(box.edges, self.grid, strict=True)
        ]

    def rank_at(self, place: np.ndarray) -> np.ndarray:
        """The rank at (..., 3) places of the grid: MPI's Cartesian order, the last axis first."""
        return (place[..., 0] * self.grid[1] + place[..., 1]) * self.grid[2] + place[..., 2]

    def domain(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Its lower and upper corner."""
        place = np.unravel_index(rank, self.grid)
        corners = [(walls[i], walls[i + 1]) for walls, i in zip(self.walls, place, strict=True)]
        return np.array([c[0] for c in corners]), np.array([c[1] for c in corners])

    def around(self, rank: int, depth: float) -> Atoms:
        """Atoms and images in the rank's domain and up to `depth` beyond each of its faces."""
        if self._made[0] != rank or self._made[1] < depth:
            self._made = rank, depth, self._make(rank, depth)
        _, made, atoms = self._made
        if made == depth:
            return atoms
        low, high = self.domain(rank)
        return atoms[((atoms.positions >= low - depth) & (atoms.positions <= high + depth)).all(axis=1)]

    def shell(self, rank: int, atoms: Atoms, depth: float) -> Atoms:
        """Those of the domain's atoms that are within `depth` of one of its faces: nothing outside is near others."""
        low, high = self.domain(rank)
        return atoms[((atoms.positions <= low + depth) | (atoms.positions >= high - depth)).any(axis=1)]

    def _make(self, rank: int, depth: float) -> Atoms:
        box = self.box
        low, high = self.domain(rank)
        low, high = low - depth, high + depth
        cells = [
            np.arange(np.floor(a / edge), np.floor(b / edge) + 1, dtype=np.int64)
            for a, b, edge in zip(low, high, box.lengths, strict=True)
        ]
        parts = []
        for x in cells[0]:  # a slab of cells at a time: a box of a million atoms is mostly thrown away
            cell = np.stack([m.ravel() for m in np.meshgrid([x], cells[1], cells[2], indexing="ij")], axis=1)
            wrapped = cell % box.copies
            inside = (wrapped[:, None] * box.lengths + box.positions).reshape(-1, 3)
            positions = (cell[:, None] * box.lengths + box.positions).reshape(-1, 3)
            keep = ((positions >= low) & (positions <= high)).all(axis=1)
            number = (wrapped[:, 0] * box.copies[1] + wrapped[:, 1]) * box.copies[2] + wrapped[:, 2]
            ids = (number[:, None] * len(box.types) + np.arange(len(box.types))).ravel()[keep]
            place = [np.searchsorted(w, inside[keep, d], side="right") - 1 for d, w in enumerate(self.walls)]
            real = np.repeat((cell == wrapped).all(axis=1), len(box.types))[keep]
            types = np.tile(box.types, len(cell))[keep]
            parts.append((positions[keep], types, ids, self.rank_at(np.stack(place, axis=1)), real))
        return Atoms(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def count(self, rank: int, reach: np.ndarray) -> Count:
        """Rows, ghosts and copies of one rank, and who has copies of its rows."""
        depth = float(reach.max())
        atoms = self.around(rank, depth)
        mine = (atoms.home == rank) & atoms.real
        own, others = atoms[mine], atoms[atoms.home != rank]
        count = Count(len(own.ids), int((~mine).sum()))
        own = self.shell(rank, own, depth)
        others = others[near(others, own, reach)]
        for home in np.unique(others.home):
            theirs = others[others.home == home]
            count.receives[int(home)] = len(np.unique(theirs.ids))
            low, high = theirs.positions.min(axis=0) - depth, theirs.positions.max(axis=0) + depth
            close = own[((own.positions >= low) & (own.positions <= high)).all(axis=1)]
            if sends := int(near(close, theirs, reach.T).sum()):
                count.sends[int(home)] = sends
        return count

    def ghosts(self, rank: int, depth: float) -> int:
        """LAMMPS's ghost atoms, `depth` deep."""
        atoms = self.around(rank, depth)
        return int((~((atoms.home == rank) & atoms.real)).sum())

    def ghost_rows(self, rank: int, cutoff: float, layers: int) -> list[int]:
        """Rows of each layer, the first first, that a rank computes with comm ghost: atoms and images that the last
        layer's rows reach in so many hops."""
        atoms = self.around(rank, (layers - 1) * cutoff)
        reached = (atoms.home == rank) & atoms.real
        front, rest, rows = self.shell(rank, atoms[reached], cutoff), atoms[~reached], [int(reached.sum())]
        reach = np.full((int(self.box.types.max()),) * 2, cutoff)
        for _ in range(layers - 1):
            new = near(rest, front, reach)
            front, rest = rest[new], rest[~new]
            rows.append(rows[-1] + len(front.ids))
        return rows[::-1]


def near(atoms: Atoms, others: Atoms, reach: np.ndarray) -> np.ndarray:
    """(N,) whether an atom is within reach[its type, the other's] of any of the others."""
    found = np.zeros(len(atoms.ids), bool)
    for a, b in product(range(len(reach)), range(len(reach))):
        mine, theirs = np.flatnonzero(atoms.types == a + 1), others.positions[others.types == b + 1]
        mine = mine[~found[mine]]
        if len(mine) and len(theirs):
            low, high = theirs.min(axis=0) - reach[a, b], theirs.max(axis=0) + reach[a, b]
            mine = mine[((atoms.positions[mine] >= low) & (atoms.positions[mine] <= high)).all(axis=1)]
            bound = np.nextafter(reach[a, b], np.inf)
            distance, _ = cKDTree(theirs).query(atoms.positions[mine], distance_upper_bound=bound)
            found[mine[np.isfinite(distance)]] = True
    return found


def all_counts(box: Box, ranks: int, reach: np.ndarray) -> list[Count]:
    """Of every rank."""
    decomposition = Decomposition(box, ranks)
    return [decomposition.count(rank, reach) for rank in range(ranks)]
