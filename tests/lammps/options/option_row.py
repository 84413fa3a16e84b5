"""What a row of the table is (option_rows.py), where it is run, and what its run leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from lammps_runs import System, random_system
from option_reference import Excluded, LennardJones

Frame = dict[str, np.ndarray]

#: Commands that name a style: its kind, and the place of its name among the words that follow.
NAMED_STYLES = {
    "fix": ("fix", 2),
    "compute": ("compute", 2),
    "region": ("region", 1),
    "pair_style": ("pair", 0),
    "run_style": ("integrate", 0),
    "min_style": ("minimize", 0),
    "atom_style": ("atom", 0),
}
#: Commands that are styles themselves, which a LAMMPS may lack.
COMMANDS = set(
    "balance change_box create_atoms delete_atoms displace_atoms minimize neb read_data read_restart rerun run set "
    "velocity write_restart".split()
)


@dataclass
class Story:
    """What a run left behind: its dumped frames, LAMMPS's output, and thermo values at the end."""

    frames: list[Frame]
    text: str
    values: dict[str, float]
    kind: str = ""  # of the model, where it is not that of the run

    def column(self, name: str, at: int = -1) -> np.ndarray:
        return self.frames[at][name]


@dataclass(frozen=True)
class Place:
    """Where a row is run: kind of model; `deep`: ghosts are nodes of the model (comm ghost); on a GPU; in Kokkos."""

    kind: str = "nequip"
    deep: bool = False
    gpu: bool = False
    kokkos: bool = False


def always(place: Place) -> bool:
    return True


@dataclass(frozen=True)
class Term:
    """A part of the energy. `of` is a kind of model, "model" for the one that the run is made with, or a LennardJones;
    `names` the model's type of each type of LAMMPS."""

    of: str | LennardJones = "model"
    names: tuple[str | None, ...] = ("O", "H")
    scale: float = 1.0
    excluded: Excluded | None = None


@dataclass(frozen=True)
class Row:
    """An option. Texts may have {style}, the keywords of the style; {model}, {nequip}, {mace}, {allegro}, model files;
    {key}, a name for files of the run."""

    name: str
    run: str = ""
    system: Callable[[], System] = field(default=lambda: small_box())
    before: str = ""  # before the box is made
    start: str = "read_data {key}.data\n"
    pair: str = "pair_style clebsch {style}\npair_coeff * * {model} O H\n"
    terms: tuple[Term, ...] = (Term(),)
    atom_style: str = "atomic"
    newton: str = "on"
    units: str = "metal"
    keywords: str = ""  # of the style
    ranks: tuple[int, ...] = (1, 2, 4)
    refused: dict[str, Callable[[Place], bool]] = field(default_factory=dict, hash=False)  # the remedy named -> where
    happened: Callable[[Story], bool] = lambda story: True
    earlier: str = ""  # run before on another number of ranks, from read_data
    partition: dict[int, str] = field(default_factory=dict, hash=False)  # of a number of ranks, for -partition
    unlike: Callable[[int], tuple[str, ...]] = lambda part: ()  # what is no model's in a part of it (option_runs.Done)
    in_python: bool = False  # two LAMMPS in one process of Python

    @property
    def key(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.name)

    def remedies(self, place: Place) -> list[str]:
        """What an error has to name there; nothing where the row has to run."""
        return [remedy for remedy, there in self.refused.items() if there(place)]

    def styles(self) -> set[str]:
        """Styles of LAMMPS that the row's commands name, as LAMMPS's help lists them: "fix gcmc"."""
        text = "\n".join((self.before, self.start, self.pair, self.earlier, self.run, f"atom_style {self.atom_style}"))
        found = set()
        for words in (line.split() for line in text.replace("{style}", "").splitlines() if line):
            command, *rest = words
            if command in NAMED_STYLES:
                kind, place = NAMED_STYLES[command]
                found.add(f"{kind} {rest[place]}")
            elif command in COMMANDS:
                found.add(f"command {command}")
            if command == "pair_style":
                found |= {f"pair {word}" for word in rest if word == "lj/cut"}
            if command == "minimize" and "min_style" not in text:
                found.add("minimize cg")
        if self.atom_style == "bond":
            found.add("bond zero")
        return found - {"pair clebsch"}


def small_box(**rest) -> System:
    return random_system(**{"atoms": 40, "spacing": 1.4, **rest})
