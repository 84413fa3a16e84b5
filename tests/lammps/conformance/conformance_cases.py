"""The tests that LAMMPS's test_pair_style is given: which model, pair style and system each has."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Model files by name: the script of tests/unit that makes one, and its options.
MODELS = {
    "nequip": ("tiny_model", {"dtype": "float64", "layers": 3, "lmax": 1, "zbl": 1}),
    "mace": ("tiny_mace", {}),
    "allegro": ("tiny_allegro", {"dtype": "float64"}),
}
#: epsilon (eV; other units: theirs), sigma and cutoff (Angstrom) of lj/cut for pairs of types, where a test has it too.
ARGON = {(1, 3): (0.01, 2.8, 5.0), (2, 3): (0.004, 2.4, 4.5), (3, 3): (0.0104, 3.4, 5.0)}
ALL = {(1, 1): (0.006, 2.0, 5.0), (1, 2): (0.003, 1.7, 4.0), (2, 2): (0.002, 1.4, 4.0)}
#: Bound of test_pair_style for each number, relative to itself; five times that after steps, and for clebsch/kk.
EPSILON = 5e-12
#: No variant for Kokkos: such a test is one of the plain style.
PLAIN = "kokkos_omp kokkos_serial kokkos_gpu"
#: Models of this family have no exact radial functions on a GPU, and clebsch/kk has none for this device.
HOST = "kokkos_gpu"


@dataclass(frozen=True)
class Case:
    """`options` go to pair_style clebsch; `lj` adds lj/cut for those pairs, by pair style `hybrid`."""

    model: str
    options: str = "radial exact"
    data: str = "data.water"
    units: str = "metal"
    hybrid: str = ""
    lj: dict = field(default_factory=dict)
    skip: str = ""

    @property
    def exact(self) -> bool:
        """Whether the values are those of the reference, or the plugin's own that were compared with it."""
        return "radial exact" in self.options

    def pair(self) -> tuple[str, list[str]]:
        """Arguments of pair_style, and of each pair_coeff."""
        types = "O H NULL" if self.data == "data.mixture" else "O H"
        style, model = f"clebsch {self.options}".strip(), f"{self.model}.pt {types}"
        if not self.hybrid:
            return style, [f"* * {model}"]
        pairs = [f"{a} {b} lj/cut {' '.join(map(str, values))}" for (a, b), values in self.lj.items()]
        return f"{self.hybrid} {style} lj/cut 5.0", [f"* * clebsch {model}", *pairs]


def of_family(model: str, skip: str = "") -> dict[str, Case]:
    """Default options, exact radial functions, a box with tilts, and atoms that the model does not know."""
    return {
        f"{model}-table": Case(model, ""),
        model: Case(model, skip=skip),
        f"{model}-tilted": Case(model, data="data.tilted", skip=skip),
        f"{model}-hybrid": Case(model, data="data.mixture", hybrid="hybrid", lj=ARGON, skip=skip),
    }


CASES = {
    **of_family("nequip"),
    "nequip-ghost": Case("nequip", "radial exact comm ghost"),
    "nequip-padded": Case("nequip", "radial exact device cpu:padded", skip=PLAIN),
    "nequip-overlay": Case("nequip", hybrid="hybrid/overlay", lj=ALL),
    "nequip-real": Case("nequip", units="real"),
    **of_family("mace"),
    **of_family("allegro", skip=HOST),
}
