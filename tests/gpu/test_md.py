"""pair_style clebsch on a GPU, and clebsch/kk, against clebsch on the CPU: energy, forces, virials, also per atom.

Each variant is an input that runs some steps of dynamics or none; its last frame is compared with the same input on the
CPU in float64. Limits: float64 1e-10 without dynamics, 1e-7 after some steps; float32 1e-5 (RMS, forces) and the like.

CLEBSCH_LMP and CLEBSCH_PLUGIN name a LAMMPS and the plugin for it, CLEBSCH_KK_LMP and CLEBSCH_KK_PLUGIN one with Kokkos
(benchmarks/device/cross_compile_lammps.sh), CLEBSCH_CALL_PAIR the command of tests/lammps/call_pair.cpp for it;
CLEBSCH_MPIRUN, by default the one beside the Kokkos lmp, runs two ranks.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/md"))

import engine  # noqa: E402

from cases import BASES, CASES, Case  # noqa: E402

PRESSURE = ("pxx", "pyy", "pzz", "pxy", "pxz", "pyz")
LJ = "lj/cut 4.0"
LMP = os.environ.get("CLEBSCH_LMP") or os.environ.get("CLEBSCH_KK_LMP") or str(ROOT / ".venv/bin/lmp")
PLUGIN = os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so"))
LMP_KK, PLUGIN_KK = os.environ.get("CLEBSCH_KK_LMP", ""), os.environ.get("CLEBSCH_KK_PLUGIN", "")
CALL_PAIR = os.environ.get("CLEBSCH_CALL_PAIR", "")
THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
SECONDS = 90  # for one run


@dataclass(frozen=True)
class Variant:
    """What differs from a plain `run 0`. `extra` are words of pair_style hybrid/overlay beside clebsch."""

    name: str
    case: str
    box: str = ""
    extra: str = ""
    twice: bool = False
    run: str = "run 0"
    flags: tuple[str, ...] = ()
    keywords: str = ""
    copies: str = "1 1 1"
    says: str = ""  # what the output must have, for a variant that LAMMPS or the style might do in another way

    @property
    def moves(self) -> bool:
        return "fix " in self.run

    def __str__(self) -> str:
        return self.name


NVE = "velocity all create 300 7 mom yes\nfix motion all nve\nrun 20"
NPT = "velocity all create 300 7 mom yes\nfix motion all npt temp 300 300 0.05 aniso 0 0 0.5\nrun 20"
# A quarter more edges under one list: arrays have to grow in the middle of it.
SQUEEZE = (
    "neigh_modify every 100 delay 100 check no\n"
    "fix motion all deform 1 x scale 0.9 y scale 0.95 z scale 0.95 remap x\nrun 20"
)
# Types change while the list stays: the steps after it must see them.
SET_TYPE = "neigh_modify every 100 delay 100 check no\nrun 10\nset atom 1*6 type 2\nrun 10 pre no"
NEWTON_ON = ("-pk", "kokkos", "newton", "on", "neigh", "half")
VARIANTS = [
    Variant("water", "water"),
    Variant("carbon", "carbon"),
    Variant("nequip-M", "nequip-M"),
    Variant("mace-M", "mace-M"),
    Variant("nequip-M, water", "nequip-M-water"),
    Variant("allegro", "allegro"),
    Variant("radial exact", "water", keywords="radial exact"),
    Variant("more atoms", "carbon", copies="3 2 2"),
    Variant("triclinic", "water", box="change_box all triclinic\nchange_box all xy delta 1.5 xz delta -0.8 remap\n"),
    Variant("newton on", "water", flags=NEWTON_ON),
    Variant("hybrid with lj/cut", "carbon", extra=f"{LJ}|pair_coeff * * lj/cut 0.01 2.5", copies="2 2 2"),
    Variant("two models", "carbon", twice=True),
    Variant("run 0 three times", "water", run="run 0\nrun 0\nrun 0"),
    Variant("nve, water", "water", run=NVE),
    Variant("nve, carbon", "carbon", run=NVE, copies="2 2 1"),
    Variant("npt, water", "water", run=NPT),
    Variant("more edges, one list", "carbon", run=SQUEEZE, copies="3 3 2"),
    Variant("types change between lists", "water", run=SET_TYPE),
]


def pair_of(variant: Variant, case: Case, style: engine.Style, dtype: str) -> str:
    words = f"clebsch {style.keywords} dtype {dtype} {variant.keywords}"
    if variant.twice:
        return (
            f"pair_style hybrid/overlay {words} {words}\n"
            f'pair_coeff * * clebsch 1 "{case.path}" {case.names}\n'
            f'pair_coeff * * clebsch 2 "{case.path}" {case.names}\n'
        )
    if variant.extra:
        added, coefficients = variant.extra.split("|")
        head = f"pair_style hybrid/overlay {words} {added}\n"
        return f'{head}pair_coeff * * clebsch "{case.path}" {case.names}\n{coefficients}\n'
    return f'pair_style {words}\npair_coeff * * "{case.path}" {case.names}\n'


def input_of(variant: Variant, case: Case, style: engine.Style, dtype: str) -> str:
    shown = "".join(f'print "RESULT {key} $({key}:%.16g)"\n' for key in ("pe", "vol", *PRESSURE))
    return f"""units metal
atom_style atomic
plugin load "{style.program.plugin}"
read_data base.data
replicate {variant.copies}
{variant.box}{pair_of(variant, case, style, dtype)}neighbor 1.0 bin
neigh_modify every 5 delay 0 check no
timestep 0.0002
compute e all pe/atom pair
compute s all stress/atom NULL pair
thermo_style custom step temp pe ke etotal vol {" ".join(PRESSURE)}
dump last all custom 20 last.dump id fx fy fz c_e c_s[*]
dump_modify last sort id format float %.15g
{variant.run}
{shown}"""


def run(
    variant: Variant, style: engine.Style, dtype: str, ranks: int = 1, checked: bool = False, gpus: int = 0
) -> dict[str, np.ndarray]:
    """What the last frame, the last thermo values and lines RESULT say. checked: indices on the GPU are looked at.
    gpus: how many of the machine's are shown, 0: all."""
    case = CASES[variant.case]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "base.data").write_text(BASES[case.base]().data())
        (folder / "in.md").write_text(input_of(variant, case, style, dtype))
        flags = [*style.flags, *(variant.flags if style.flags else ())]
        command = [style.program.lmp, *flags, "-in", "in.md", "-log", "log.md"]
        command = engine.launcher(style.program, ranks, os.environ.get("CLEBSCH_MPIRUN", "")) + command
        environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "OMP_PROC_BIND": "false"}
        environment |= engine.MPI_ENVIRONMENT | ({"CLEBSCH_CUDA_CHECK": "1"} if checked else {})
        if gpus:
            shown = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(shown.split(",")[:gpus])
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment)
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-3:]
            raise RuntimeError(f"exit status {done.returncode}: {' '.join(said)[-500:]}")
        if variant.says not in done.stdout:
            raise RuntimeError(f"expected '{variant.says}' in the output, got {done.stdout[:2000]}")
        values = dict(line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("RESULT "))
        called = dict(line.split()[1::2] for line in done.stdout.splitlines() if re.match(r"RESULT \w+ = ", line))
        lines = (folder / "last.dump").read_text().splitlines()
        atoms = int(lines[3])
        table = np.array([[float(word) for word in line.split()] for line in lines[-atoms:]])
    return {
        "energy": np.array(float(values["pe"])) / atoms,
        "pressure": np.array([float(values[key]) for key in PRESSURE]),
        "forces": table[:, 1:4],
        "pe/atom": table[:, 4],
        "stress/atom": table[:, 5:11],
        **{key: np.array(float(value)) for key, value in called.items()},
    }


def differences(mine: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> dict[str, float]:
    """RMS of the difference over RMS of the reference (energies: over at least 1 eV)."""
    found = {}
    for key, value in exact.items():
        floor = 1.0 if key in ("energy", "pe/atom") else 1e-12
        scale = max(float(np.sqrt((value**2).mean())), floor)
        found[key] = float(np.sqrt(((mine[key] - value) ** 2).mean())) / scale
    return found


def limit_of(variant: Variant, dtype: str, key: str) -> float:
    if dtype == "float64":
        return 1e-7 if variant.moves else 1e-10
    # Sums of terms of both signs: virials lose more digits than forces do.
    return (1e-4 if variant.moves else 1e-5) * (10 if key in ("pressure", "stress/atom") else 1)


@functools.cache
def styles(gpus: int = 1) -> dict[str, engine.Style]:
    """Kokkos wants a launcher where there are several GPUs: one rank alone has one."""
    kokkos = engine.Program(LMP_KK, PLUGIN_KK) if LMP_KK else None
    return engine.styles(engine.Program(LMP, PLUGIN), kokkos, THREADS, gpus)


def missing(style: str, ranks: int) -> str:
    """Why this style cannot run here; '' when it can."""
    if shutil.which(LMP) is None or not Path(PLUGIN).exists():
        return "no LAMMPS with the plugin (CLEBSCH_LMP, CLEBSCH_PLUGIN)"
    if style == "kk" and (not LMP_KK or not Path(PLUGIN_KK).exists()):
        return "no LAMMPS with Kokkos (CLEBSCH_KK_LMP, CLEBSCH_KK_PLUGIN)"
    beside = any((Path(lmp).parent / "mpirun").exists() for lmp in (LMP_KK, LMP) if lmp)
    if ranks > 1 and not (os.environ.get("CLEBSCH_MPIRUN") or beside or shutil.which("mpirun")):
        return "no mpirun (CLEBSCH_MPIRUN)"
    return ""


@functools.lru_cache(maxsize=1)
def on_the_cpu(variant: Variant) -> dict[str, np.ndarray]:
    return run(variant, styles()["cpu"], "float64")


def parameters():
    """(variant, style, dtype, ranks): two ranks for two variants, or for all where there are as many GPUs."""
    made = []
    several = torch.cuda.device_count() > 1
    for variant in VARIANTS:
        for style in ("cuda", "kk"):
            for dtype in ("float64", "float32"):
                for ranks in (1, 2):
                    if ranks == 1 or (style == "kk" and (several or variant.name in ("water", "nve, carbon"))):
                        name = f"{variant.name}-{style}-{dtype}-{ranks}"
                        made.append(pytest.param(variant, style, dtype, ranks, id=name))
    return made


@pytest.mark.parametrize(("variant", "style", "dtype", "ranks"), parameters())
def test_as_on_the_cpu(variant, style, dtype, ranks, within):
    if reason := missing(style, ranks):
        pytest.skip(reason)
    if not CASES[variant.case].path.exists():
        pytest.skip(f"no model file {CASES[variant.case].path.name} in CLEBSCH_GPU_MODELS")
    chosen = styles(min(2, torch.cuda.device_count()) if ranks > 1 else 1)[style]
    errors = differences(run(variant, chosen, dtype, ranks), on_the_cpu(variant))
    within(errors, {key: limit_of(variant, dtype, key) for key in errors})


FEATURES, FORCES = "halo: ranks exchange features between layers", "halo: ranks exchange forces of ghosts"
EXCHANGES = [
    Variant("halo, water", "water", keywords="comm halo", says=FEATURES),
    Variant("halo, carbon", "carbon", keywords="comm halo", says=FEATURES, copies="2 2 1"),
    Variant("halo, nequip-M", "nequip-M", keywords="comm halo", says=FEATURES),
    Variant("halo, mace-M", "mace-M", keywords="comm halo", says=FEATURES),
    Variant("halo, newton on", "water", keywords="comm halo", says=FEATURES, flags=NEWTON_ON),
    Variant("halo, nve", "carbon", keywords="comm halo", says=FEATURES, copies="2 2 1", run=NVE),
    Variant("halo, npt", "water", keywords="comm halo", says=FEATURES, run=NPT),
    Variant("halo, more edges", "carbon", keywords="comm halo", says=FEATURES, copies="3 3 2", run=SQUEEZE),
    Variant("halo, types change", "water", keywords="comm halo", says=FEATURES, run=SET_TYPE),
    Variant("halo, two models", "carbon", keywords="comm halo", says=FEATURES, twice=True),
    Variant("allegro, forces", "allegro", says=FORCES),
    Variant("allegro, newton on", "allegro", says="ghost expansion", flags=NEWTON_ON),
]


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("variant", EXCHANGES, ids=str)
def test_exchanges_of_kk(variant, dtype, gpus, within):
    """Two ranks that share a GPU, and two with one each: features of NequIP and MACE, forces of ghosts of Allegro."""
    if reason := missing("kk", 2):
        pytest.skip(reason)
    if torch.cuda.device_count() < gpus:
        pytest.skip(f"{gpus} GPUs wanted, {torch.cuda.device_count()} here")
    if not CASES[variant.case].path.exists():
        pytest.skip(f"no model file {CASES[variant.case].path.name} in CLEBSCH_GPU_MODELS")
    alone = replace(variant, keywords="", says="")
    errors = differences(run(variant, styles(gpus)["kk"], dtype, 2, gpus=gpus), on_the_cpu(alone))
    within(errors, {key: limit_of(variant, dtype, key) for key in errors})


GATHERED = "ranks exchange features between layers"
BALANCED = "comm_style tiled\nfix even all balance 5 1.0 rcb\n" + NVE
#: On more ranks than there are GPUs: NequIP and MACE, ghosts of two models, domains that move.
SEVERAL = [
    Variant("halo, water", "water", keywords="comm halo", says=FEATURES),
    Variant("halo, carbon", "carbon", keywords="comm halo", says=FEATURES, copies="2 2 1"),
    Variant("halo, nequip-M", "nequip-M", keywords="comm halo", says=FEATURES, copies="2 1 1"),
    Variant("halo, mace-M", "mace-M", keywords="comm halo", says=FEATURES, copies="2 1 1"),
    Variant("gather, carbon", "carbon", keywords="comm gather", says=GATHERED, copies="2 2 1"),
    Variant("halo, balance, water", "water", keywords="comm halo", says=FEATURES, run=BALANCED),
    Variant("halo, balance, carbon", "carbon", keywords="comm halo", says=FEATURES, run=BALANCED, copies="2 2 1"),
    Variant("ghost, carbon", "carbon", keywords="comm ghost", copies="2 2 1"),
    Variant("allegro, forces", "allegro", says=FORCES),
]


@pytest.mark.parametrize("dtype, ranks", [("float64", 3), ("float64", 4), ("float64", 8), ("float32", 4)])
@pytest.mark.parametrize("variant", SEVERAL, ids=str)
def test_several_ranks_of_kk(variant, dtype, ranks, within):
    """Ranks share GPUs, so that messages go through pinned memory: as one rank on the CPU."""
    if reason := missing("kk", ranks):
        pytest.skip(reason)
    if not CASES[variant.case].path.exists():
        pytest.skip(f"no model file {CASES[variant.case].path.name} in CLEBSCH_GPU_MODELS")
    alone = replace(variant, keywords="", says="")
    chosen = styles(min(2, torch.cuda.device_count()))["kk"]
    errors = differences(run(variant, chosen, dtype, ranks), on_the_cpu(alone))
    within(errors, {key: limit_of(variant, dtype, key) for key in errors})


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["water", "carbon", "nequip-M", "mace-M", "nve, water", "nve, carbon", "npt, water"])
def test_ranks_that_exchange_features(name, dtype, within):
    """Two ranks, on one GPU or two, with ghosts one cutoff deep: as one rank on the CPU."""
    if reason := missing("cuda", 2):
        pytest.skip(reason)
    variant = next(variant for variant in VARIANTS if variant.name == name)
    if not CASES[variant.case].path.exists():
        pytest.skip(f"no model file {CASES[variant.case].path.name} in CLEBSCH_GPU_MODELS")
    errors = differences(run(replace(variant, keywords="comm halo"), styles()["cuda"], dtype, 2), on_the_cpu(variant))
    within(errors, {key: limit_of(variant, dtype, key) for key in errors})


@pytest.mark.parametrize("style", ["cuda", "kk"])
def test_with_checked_indices(style, within):
    """CLEBSCH_CUDA_CHECK=1 refuses no index of a run."""
    if reason := missing(style, 1):
        pytest.skip(reason)
    variant = next(variant for variant in VARIANTS if variant.name == "nve, carbon")
    errors = differences(run(variant, styles()[style], "float64", checked=True), on_the_cpu(variant))
    within(errors, {key: limit_of(variant, "float64", key) for key in errors})


def test_called_from_outside_of_a_run(within):
    """Fixes and computes that call clebsch/kk themselves find its forces on the host: it marks what it has changed."""
    if reason := missing("kk", 1):
        pytest.skip(reason)
    if not Path(CALL_PAIR).is_file():
        pytest.skip("no command call_pair for LAMMPS with Kokkos (CLEBSCH_CALL_PAIR)")
    variant = Variant("called", "water", run=f'run 0\nplugin load "{CALL_PAIR}"\ncall_pair')
    found = run(variant, styles()["kk"], "float64")
    assert found["largest"] > 0.1
    within({"forces": float(found["difference"] / found["largest"])}, {"forces": 1e-10})
