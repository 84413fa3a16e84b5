"""The time of a step on several GPUs, from one GPU's measured steps, counts of atoms, and constants.json.

docs/developers/scaling.md has the formulas in words. A constant that is to be measured and is not stops the program;
`provisional` takes what the file has until then, and every answer says which constants those were.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import cache
from math import ceil, gcd, log2
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "md")]

import common  # noqa: E402
from counts import Box, Decomposition  # noqa: E402

import cases  # noqa: E402

COMMS = ("ghost", "halo", "gather")
MICRO, NANO = 1e-3, 1e-6  # in ms


class Constants:
    """The numbers of a file of constants: measured ones from `records` (name -> row), the others as assumed."""

    def __init__(self, table: dict, records: dict[str, dict], provisional: bool) -> None:
        self.numbers: dict[str, float] = {}
        self.sources: dict[str, str] = {}
        self.missing: list[str] = []  # measured ones without a record, for which a guess stands
        for name, entry in table.items():
            record = entry.get("record")
            if record is None:
                self.numbers[name], self.sources[name] = entry["value"], "assumed"
            elif record in records:
                row = records[record]
                self.numbers[name] = row["value"]
                self.sources[name] = f"measured: `{record}`, {row['machine']}, {row['date']}, {row['commit'][:7]}"
            else:
                self.missing.append(name)
                self.numbers[name] = entry["until_then"]
                self.sources[name] = f"**guess** until `{record}` is there: {entry['guessed']}"
        if self.missing and not provisional:
            wanted = ", ".join(table[name]["record"] for name in self.missing)
            raise SystemExit(
                f"benchmarks/scaling/constants.json: expected the records {wanted} in benchmarks/results/summary.json, "
                "got none; benchmarks/run scaling-gpus --record on a machine with two GPUs writes them, --provisional "
                "takes guesses"
            )

    def __getattr__(self, name: str) -> float:
        try:
            return self.numbers[name]
        except KeyError:
            raise AttributeError(f"benchmarks/scaling/constants.json: expected a constant {name}, got none") from None


@dataclass(frozen=True)
class OneGpu:
    """Steps on one GPU: t(n) = a + b n, fitted to what was measured with equal weight for relative errors; beyond the
    largest fitted size a line from there to a larger measured one, if there is one."""

    points: dict[int, float]  # atoms -> ms, fitted
    larger: dict[int, float]
    names: dict[int, str]  # atoms -> record
    a: float  # ms
    b: float  # ms an atom

    def step(self, atoms: float) -> float:
        """ms."""
        top = max(self.points)
        fitted = self.a + self.b * min(atoms, top)
        if atoms <= top:
            return fitted
        if not self.larger:
            return self.a + self.b * atoms
        end = max(self.larger)
        return fitted + (self.larger[end] - fitted) * (atoms - top) / (end - top)

    @property
    def residual(self) -> float:
        """The largest relative difference between line and measurement."""
        return max(abs((self.a + self.b * n) / t - 1) for n, t in self.points.items())


def fit(case: dict, records: dict[str, dict]) -> OneGpu:
    """From the first record that exists for each size. Without records for two sizes there is nothing to fit."""

    def found(sizes: dict[str, list[str]]) -> dict[int, str]:
        first = {int(size): next((name for name in names if name in records), None) for size, names in sizes.items()}
        return {size: name for size, name in first.items() if name}

    near, far = found(case["one_gpu"]), found(case["large"])
    if len(near) < 2:
        wanted = ", ".join(names[0] for names in case["one_gpu"].values())
        raise SystemExit(
            f"expected records of one GPU's steps at two sizes at least, of {wanted}; got {list(near.values())}"
        )
    points = {size: records[name]["value"] for size, name in near.items()}
    sizes, times = np.array(list(points)), np.array(list(points.values()))
    (a, b), *_ = np.linalg.lstsq(np.stack([1 / times, sizes / times], axis=1), np.ones(len(sizes)), rcond=None)
    larger = {size: records[name]["value"] for size, name in far.items()}
    return OneGpu(points, larger, near | far, float(a), float(b))


@dataclass(frozen=True)
class Work:
    """What one rank of a box has to do; of several ranks' exchanges the parts within its host and beyond."""

    owned: int
    remote: int
    sent: int
    partners: int
    remote_beyond: int  # of `remote`, from ranks of other hosts
    sent_beyond: int
    partners_beyond: int
    ghosts: int  # LAMMPS's, with comm halo or gather
    deep_ghosts: int  # with comm ghost
    swaps: int
    deep_swaps: int
    ghost_rows: tuple[int, ...]  # of each layer, with comm ghost


#: Below so many atoms a rank, ranks may differ by layers of a lattice: several are counted, and the slowest decides.
FEW = 20000
#: So many of them along each axis at most.
SAMPLED = (2, 2, 4)


@cache
def works(base: str, copies: tuple[int, int, int], gpus: int, r_max: float, skin: float, layers: int, host: int):
    """Of the ranks that decide: (Work, ...). The first rank of a host is at its corner, so that it has as many partners
    beyond as any; the box is periodic, so that ranks differ by how lattice and walls meet alone."""
    cell = cases.BASES[base]()
    decomposition = Decomposition(Box(np.full(3, cell.length), cell.positions, np.ones(len(cell), int), copies), gpus)
    # Domains of whole base cells are all alike; else the pattern comes again after so many of them.
    periods = [n // gcd(n, count) for n, count in zip(decomposition.grid, copies, strict=True)]
    few = len(decomposition.box) / gpus < FEW
    extent = [min(period, most) if few else 1 for period, most in zip(periods, SAMPLED, strict=True)]
    places = np.stack([m.ravel() for m in np.meshgrid(*map(np.arange, extent), indexing="ij")], axis=1)
    edges = decomposition.box.edges / decomposition.grid
    reach, depth, found = r_max + skin, layers * r_max + skin, []
    for rank in map(int, decomposition.rank_at(places)):
        deep_ghosts = decomposition.ghosts(rank, depth)  # the deepest first: the others are taken out of it
        count = decomposition.count(rank, np.full((1, 1), reach))

        def beyond(rows: dict[int, int], rank: int = rank) -> list[int]:
            return [n for home, n in rows.items() if home // host != rank // host]

        found.append(
            Work(
                count.owned, count.remote, count.sent, len(set(count.receives) | set(count.sends)),
                sum(beyond(count.receives)), sum(beyond(count.sends)), len(beyond(count.receives)), count.ghosts,
                deep_ghosts, 2 * sum(ceil(reach / e) for e in edges),
                2 * sum(ceil(depth / e) for e in edges), tuple(decomposition.ghost_rows(rank, r_max, layers)),
            )
        )  # fmt: skip
    return tuple(found)


@dataclass(frozen=True)
class Step:
    """A prediction: ms of the slowest rank, its parts, and what it sends."""

    case: str
    comm: str
    gpus: int
    atoms: int
    ms: float
    parts: dict[str, float] = field(default_factory=dict)
    work: Work | None = None
    bytes: int = 0


class Model:
    """All cases with their constants."""

    def __init__(self, file: dict, records: dict[str, dict], provisional: bool = False) -> None:
        self.constants = Constants(file["constants"], records, provisional)
        self.cases, self.records = file["cases"], records
        self.one = {name: fit(case, records) for name, case in self.cases.items()}

    def copies(self, case: str, atoms: int) -> tuple[int, int, int]:
        """Of the base cell, as benchmarks/md takes them."""
        return cases.replication(len(cases.BASES[cases.CASES[case].base]()), atoms)

    def measured_copies(self, case: str, atoms: int, gpus: int) -> tuple[int, int, int]:
        """Of a box that benchmarks/md has run: as copies(), or for weak scaling one GPU's box so many times along z."""
        copies = self.copies(case, atoms)
        if self.atoms(case, copies) != atoms:
            x, y, z = self.copies(case, atoms // gpus)
            copies = (x, y, z * gpus)
        if self.atoms(case, copies) != atoms:
            raise SystemExit(f"{case} on {gpus} GPUs: expected a box of benchmarks/md, got {atoms} atoms")
        return copies

    def atoms(self, case: str, copies: tuple[int, int, int]) -> int:
        return len(cases.BASES[cases.CASES[case].base]()) * int(np.prod(copies))

    def step(self, case: str, copies: tuple[int, int, int], gpus: int, comm: str) -> Step | None:
        """None: comm gather where everything does not fit."""
        atoms, one = self.atoms(case, copies), self.one[case]
        if gpus == 1:
            return Step(case, comm, 1, atoms, one.step(atoms), {"rows": one.step(atoms)})
        c, facts = self.constants, self.cases[case]
        widest = max(facts["widths"]) * c.number_bytes
        if comm == "gather" and 2 * atoms * widest > c.gather_bytes:
            return None
        ranks = works(
            cases.CASES[case].base, copies, gpus, facts["r_max"], c.skin, facts["layers"], int(c.gpus_per_host)
        )
        steps = [self._of(case, work, max(w.owned for w in ranks), gpus, atoms, comm) for work in ranks]
        return max(steps, key=lambda step: step.ms)

    def _of(self, case: str, work: Work, most: int, gpus: int, atoms: int, comm: str) -> Step:
        """One rank's step; `most`: rows of the rank that owns most."""
        c, facts, one = self.constants, self.cases[case], self.one[case]
        layers, widths = facts["layers"], facts["widths"]
        rows = [width * c.number_bytes for width in widths]
        deep = comm == "ghost"
        parts = {"rows": one.step(work.owned)}
        if deep:
            parts["ghost rows"] = one.b * (sum(work.ghost_rows) / layers - work.owned)
        else:
            parts["ghost rows"] = one.b * c.remote_row_share * work.remote * (layers - 1) / layers
            exchange = self._gather if comm == "gather" else self._halo
            parts["exchange"] = sum(exchange(work, most, gpus, row) for row in rows) + self._forces(work)
        passes, ghosts, swaps = (2, work.deep_ghosts, work.deep_swaps) if deep else (1, work.ghosts, work.swaps)
        hop = c.network_us if work.partners_beyond else 0
        parts["LAMMPS"] = passes * MICRO * (c.lammps_atom_us * (work.owned + ghosts) + swaps * (c.lammps_swap_us + hop))
        parts["reductions"] = (c.thermo_reductions + (0 if deep else c.reductions)) * self._reduction(gpus)
        sent = 0
        if comm == "halo":
            sent = (work.remote + work.sent) * sum(rows) + work.remote * c.force_bytes
        elif comm == "gather":
            sent = 2 * (gpus - 1) * most * sum(rows) + work.remote * c.force_bytes
        return Step(case, comm, gpus, atoms, sum(parts.values()), parts, work, int(sent))

    def _copy(self, size: float, times: int) -> float:
        """ms for bytes of rows that are read and written `times` times together."""
        return size * times / self.constants.pack_gb_s * NANO

    def _messages(self, work: Work, row: float) -> float:
        """ms of one exchange with the partners: within the host and beyond it at the same time."""
        c = self.constants
        within = max(work.remote - work.remote_beyond, work.sent - work.sent_beyond) * row / c.link_gb_s * NANO
        beyond = max(work.remote_beyond, work.sent_beyond) * row / c.network_gb_s * NANO
        if work.partners_beyond:
            beyond += c.network_us * MICRO
        return (c.round_us + max(work.partners - 1, 0) * c.message_us) * MICRO + max(within, beyond)

    def _halo(self, work: Work, most: int, gpus: int, row: float) -> float:
        """ms of features out (packed) and gradients back (added), one layer."""
        return 2 * self._messages(work, row) + self._copy(work.sent * row, 2) + self._copy(work.sent * row, 3)

    def _forces(self, work: Work) -> float:
        """ms of copies' forces to their owners."""
        row = self.constants.force_bytes
        return self._messages(work, row) + self._copy(work.sent * row, 3)

    def _gather(self, work: Work, most: int, gpus: int, row: float) -> float:
        """ms of an all-gather of rows and an all-to-all of gradients, one layer."""
        c, host = self.constants, int(self.constants.gpus_per_host)
        several = gpus > host
        start = (c.round_us + (gpus - 1) * (c.collective_us + (c.network_us if several else 0))) * MICRO
        slot = most * row
        # A ring passes a host's rows through all of its ports together; messages to each have the sender's port alone.
        ring = min(c.link_gb_s, host * c.network_gb_s) if several else c.link_gb_s
        gathered = (gpus - 1) * slot / ring * NANO
        inside = (min(gpus, host) - 1) * slot / c.link_gb_s * NANO
        scattered = max(inside, max(gpus - host, 0) * slot / c.network_gb_s * NANO)
        copies = self._copy(work.owned * row, 2) + self._copy(work.remote * row, 4) + self._copy(work.sent * row, 3)
        return 2 * start + gathered + scattered + copies

    def _reduction(self, gpus: int) -> float:
        """ms of an MPI_Allreduce of one number."""
        c = self.constants
        steps = ceil(log2(gpus))
        beyond = max(0, steps - ceil(log2(c.gpus_per_host)))
        return (steps * c.mpi_us + beyond * c.network_us) * MICRO


def load(provisional: bool, tag: str = "") -> Model:
    """With the records of benchmarks/results/summary.json. With a tag (benchmarks/record.py) steps on one GPU are those
    of that machine alone, and so are the constants that were measured there; the others are the first machine's."""
    file, rows = json.loads((HERE / "constants.json").read_text()), json.loads(common.SUMMARY.read_text())
    records = {row["name"]: row for row in rows}
    if tag:
        steps = {name for case in file["cases"].values() for kind in ("one_gpu", "large")
                 for names in case[kind].values() for name in names}  # fmt: skip
        records = {name: row for name, row in records.items() if name not in steps}
        records |= tagged(rows, tag)
    return Model(file, records, provisional)


def tagged(rows: list[dict], tag: str) -> dict[str, dict]:
    """Records of a tag by their names without it, which they have from here on."""
    found = [row | {"name": row["name"].removeprefix(f"{tag}_")} for row in rows if row["name"].startswith(f"{tag}_")]
    return {row["name"]: row for row in found}
