"""No switch of torch changes an answer: energies, forces and stress in float32 are the same to the bit under each.

CLEBSCH_TEST_DEVICE says where (cpu by default, cuda for a GPU). Models: the shipped files, which name torch's product
of matrices, and files of every family as the exporter writes them now.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule

from clebsch.ase import ClebschCalculator
from clebsch.errors import ClebschError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/unit"))
import tiny_allegro  # noqa: E402
import tiny_mace  # noqa: E402
import tiny_model  # noqa: E402

from clebsch.export import backend  # noqa: E402

pytestmark = pytest.mark.usefixtures("needs_library")
DEVICE = os.environ.get("CLEBSCH_TEST_DEVICE", "cpu")
SHIPPED = ["water-nequip", "carbon-mace", "water-allegro"]
TINY = {"nequip": tiny_model, "mace": tiny_mace, "allegro": tiny_allegro}
#: Their radial functions run on a GPU from tables alone.
TABLES_ALONE = ("mace", "allegro", "water-allegro")
#: Steps of a calculator: on a GPU the first is run, the second recorded, the third replayed.
STEPS = 1 if DEVICE == "cpu" else 3


def structure(name: str) -> Atoms:
    random = np.random.default_rng(3)
    if name == "carbon-mace":
        atoms = bulk("C", "diamond", 3.57, cubic=True).repeat(2)
    else:
        atoms = Atoms(cell=[9.45] * 3, pbc=True)
        for place in np.ndindex(3, 3, 3):
            water = molecule("H2O")
            water.rotate(random.uniform(0, 360), random.standard_normal(3), center="COP")
            water.translate(3.15 * np.array(place))
            atoms += water
    atoms.positions += 0.02 * random.standard_normal(atoms.positions.shape)
    return atoms


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Callable[[str], Path]:
    """The file of a shipped model, or of a family's model as the exporter writes it."""
    folder = tmp_path_factory.mktemp("models")

    def get(name: str) -> Path:
        if name in SHIPPED:
            return ROOT / f"models/{name}.pt"
        made = folder / f"{name}.pt"
        if not made.exists():
            backend.write(TINY[name].describe(), made, "float32")
        return made

    return get


def answers(file: Path, atoms: Atoms) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Energy, forces and stress of some steps of a model that is loaded anew."""
    calculator = ClebschCalculator(file, device=DEVICE, dtype="float32")
    values = []
    for step in range(STEPS):
        moved = atoms.copy()
        moved.positions += 0.01 * step
        moved.calc = calculator
        values.append((moved.get_potential_energy(), moved.get_forces(), moved.get_stress()))
    return values


@pytest.fixture(scope="module")
def plain(path) -> Callable[[str], list]:
    """The answers with no switch thrown."""
    known: dict[str, list] = {}

    def get(name: str) -> list:
        if name not in known:
            known[name] = answers(path(name), structure(name))
        return known[name]

    return get


def same(got: list, expected: list) -> None:
    for step, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        for what, a, b in zip(("energy", "forces", "stress"), mine, theirs, strict=True):
            assert np.array_equal(a, b), f"{what} of step {step}: {np.abs(a - b).max():.1e} apart"
    assert np.abs(expected[0][1]).max() > 1e-3


@contextlib.contextmanager
def attribute(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def matmul_precision(word: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(word)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def autocast(dtype: torch.dtype) -> torch.autocast:
    return torch.autocast(DEVICE.split(":")[0], dtype=dtype)


SWITCHES = {
    "precision high": lambda: matmul_precision("high"),
    "precision medium": lambda: matmul_precision("medium"),
    "allow_tf32": lambda: attribute(torch.backends.cuda.matmul, "allow_tf32", True),
    "mkldnn bf16": lambda: attribute(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "mkldnn off": lambda: torch.backends.mkldnn.flags(enabled=False),
    "autocast float16": lambda: autocast(torch.float16),
    "autocast bfloat16": lambda: autocast(torch.bfloat16),
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "deterministic": deterministic,
    "default dtype": default_dtype,
}


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("model", [*SHIPPED, *TINY])
def test_switch(model: str, switch: str, path, plain) -> None:
    expected = plain(model)
    with SWITCHES[switch]():
        got = answers(path(model), structure(model))
    same(got, expected)


@pytest.mark.parametrize("model", [*SHIPPED, *TINY])
def test_switches_stay_as_they_were(model: str, path) -> None:
    """A step under a switch leaves it as its caller has it."""
    with matmul_precision("medium"), autocast(torch.bfloat16):
        answers(path(model), structure(model))
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.is_autocast_enabled(DEVICE.split(":")[0])
        x = torch.ones(4, 4, device=DEVICE)
        assert (x @ x).dtype == torch.bfloat16
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_environment(path, plain, tmp_path: Path) -> None:
    """TORCH_ALLOW_TF32_CUBLAS_OVERRIDE counts for a whole process, LAMMPS's as well."""
    files = {model: str(path(model)) for model in (*SHIPPED, *TINY)}
    script = (
        "import sys, numpy as np\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import conftest, torch\n"
        "import test_switches as t\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"
        f"for model, file in {files!r}.items():\n"
        "    steps = t.answers(file, t.structure(model))\n"
        "    values = {f'{s}{k}': x for s, step in enumerate(steps) for k, x in enumerate(step)}\n"
        f"    np.savez({str(tmp_path)!r} + f'/{{model}}.npz', **values)\n"
    )
    environment = os.environ | {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    for model in files:
        values = np.load(tmp_path / f"{model}.npz")
        same([tuple(values[f"{s}{k}"] for k in range(3)) for s in range(STEPS)], plain(model))


@pytest.mark.parametrize("radial", ["table", "exact"])
@pytest.mark.parametrize("model", [*SHIPPED, *TINY])
def test_no_product_is_torchs(model: str, radial: str, path) -> None:
    """None of the ops that torch's switches reach runs in a step."""
    if radial == "exact" and DEVICE != "cpu" and model in TABLES_ALONE:
        with pytest.raises(ClebschError, match="from tables alone"):
            ClebschCalculator(path(model), device=DEVICE, dtype="float32", radial=radial)
        return
    calculator = ClebschCalculator(path(model), device=DEVICE, dtype="float32", radial=radial)
    atoms = structure(model)
    if radial == "exact":
        atoms = atoms[:24]
    atoms.calc = calculator
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        atoms.get_forces()
    ran = {event.key for event in profile.key_averages()}
    assert {"clebsch::dense", "clebsch::readout", "clebsch::allegro_energy"} & ran
    switched = {"mm", "matmul", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "linear", "einsum"}
    assert not {f"aten::{name}" for name in switched} & ran
