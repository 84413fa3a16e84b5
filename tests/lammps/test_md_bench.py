"""benchmarks/md: what it runs, reads and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/md"))

import check  # noqa: E402
import engine  # noqa: E402
import output  # noqa: E402

from cases import BASES, CASES, replication, timestep  # noqa: E402

LOG = """   Step          Temp          PotEng         KinEng         TotEng         Press
         0   300            -64            2.5           -61.5          100
WARNING: something of five words here now
        20   290            -63.99         2.49          -61.5          101
Loop time of 0.5 on 1 procs for 20 steps with 64 atoms

Performance: 3.456 ns/day, 6.944 hours/ns, 40.000 timesteps/s, 2.560 katom-step/s
Section |  min time  |  avg time  |  max time  |%varavg| %total
---------------------------------------------------------------
Pair    | 0.4        | 0.4        | 0.4        |   0.0 | 80.00
Neigh   | 0.05       | 0.05       | 0.05       |   0.0 | 10.00
Other   |            | 0.05       |            |       | 10.00

Neighbor list builds = 1
Pair style clebsch: ms per step (mean of ranks, 20 steps): graph 0.5, model 18.2, forces 1e-02, rest of LAMMPS 1.29
"""


def test_a_log_is_read():
    (loop,) = engine.read_log(LOG)
    assert (loop.seconds, loop.steps, loop.atoms, loop.builds) == (0.5, 20, 64, 1)
    assert loop.sections == {"Pair": 0.4, "Neigh": 0.05, "Other": 0.05}
    assert [row["Step"] for row in loop.thermo] == [0, 20]
    assert loop.style == {"graph": 0.5, "model": 18.2, "forces": 0.01, "LAMMPS": 1.29}
    assert check.drift(loop) == 0


@pytest.mark.parametrize(
    ("base", "atoms", "copies"), [(64, 1, (1, 1, 1)), (64, 512, (2, 2, 2)), (64, 10**6, (25, 25, 25))]
)
def test_copies(base, atoms, copies):
    assert replication(base, atoms) == copies


@pytest.mark.parametrize("atoms", [192, 193, 648, 5000, 10**6])
def test_copies_of_water_are_enough_and_few(atoms):
    total = 192 * int(np.prod(replication(192, atoms)))
    assert atoms <= total <= max(1.1 * atoms, atoms + 4 * 192)


def test_random_weights_get_a_timestep_that_keeps_atoms_in_place():
    base = BASES["diamond"]()
    forces = np.zeros((len(base), 3))
    forces[0, 0] = 50.0
    step = timestep(CASES["mace-M"], base, forces, 500)
    moved = 0.5 * 50.0 / 12.011 * 9.6485e-3 * (500 * step) ** 2
    assert 0.25 < moved < 0.35
    assert timestep(CASES["water"], base, forces, 500) == 0.5


def outcome(forces, energy):
    return engine.Outcome("", [], np.arange(1, len(forces) + 1), forces, energy, 0.0, None, 0.0)


def test_wrong_answers_are_refused():
    forces = np.random.default_rng(0).standard_normal((64, 3))
    exact = outcome(forces, -640.0)
    assert check.start_errors(outcome(np.tile(forces, (8, 1)), -8 * 640.0), exact, 8) == (0.0, 0.0)
    force, energy = check.start_errors(outcome(1.001 * np.tile(forces, (8, 1)), -8 * 640.0), exact, 8)
    assert "forces of the start" in check.verdict(force, energy, 0.0, "float32")
    force, energy = check.start_errors(outcome(forces, -641.0), exact, 1)
    assert "energy of the start" in check.verdict(force, energy, 0.0, "float32")
    assert "total energy" in check.verdict(0.0, 0.0, 0.1, "float32")
    assert "forces" in check.verdict(float("nan"), 0.0, 0.0, "float32")
    assert check.verdict(1e-6, 1e-8, 1e-3, "float64") == ""


def test_parts_of_a_run_are_joined():
    (part,) = engine.read_log(LOG)
    whole = engine.join([part, part])
    assert (whole.seconds, whole.steps, whole.builds, whole.sections["Pair"]) == (1.0, 40, 2, 0.8)
    assert len(whole.thermo) == 4 and check.drift(whole) == 0


def test_records_of_targets_come_from_the_kokkos_style_on_a_gpu():
    point = {"case": "mace-M", "style": "kk", "dtype": "float32", "atoms": 8000, "failure": ""}
    point |= {"katom_steps_s": 600.0, "step_ms": 13.0, "overhead_percent": 5.0}
    peer = point | {"style": "peer mace", "katom_steps_s": 100.0, "version": "0.3", "step_ms": 80.0}
    found = {r["name"]: r for r in output.named([point, peer], True)}
    targets = {t["name"] for t in json.loads((ROOT / "benchmarks/targets.json").read_text())["targets"]}
    assert set(found) <= targets and found["md_mace_m_8000_katom_steps_s"]["peer"]["value"] == 100.0
    assert "md_max_atoms" not in found
    largest = point | {"case": "carbon", "atoms": 1000000}
    assert {r["name"]: r for r in output.named([point, largest], True)}["md_max_atoms"]["value"] == 1000000
    assert output.named([point], False) == [] and output.named([point | {"style": "cuda"}], True) == []


def test_a_short_run(lmp, plugin, tmp_path):
    command = [sys.executable, ROOT / "benchmarks/md", "--cases", "carbon", "--styles", "cpu,cuda,kk", "--atoms", "64"]
    command += ["--steps", "10", "--lmp", lmp, "--plugin", plugin, "--json", tmp_path / "md.json", "--no-peers"]
    command += ["--plot", tmp_path / "md.png", "--lmp-kk", "", "--plugin-kk", ""]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kk left out" in done.stdout and "64 atoms" in done.stdout
    (record,) = json.loads((tmp_path / "md.json").read_text())
    assert record["name"] == "md/carbon/cpu/float32/64" and record["value"] > 0 and record["error"] < 1e-4
    assert record["phases_ms"]["model"] > 0 and "Pair" in record["sections_percent"] and record["host_mb"] > 50
    assert (tmp_path / "md.png").stat().st_size > 5000


def test_a_dry_run_shows_inputs():
    command = [sys.executable, ROOT / "benchmarks/md", "--cases", "water", "--styles", "cuda,kk", "--dry-run"]
    command += [
        "--lmp-kk",
        "lmp-with-kokkos",
        "--plugin-kk",
        "clebschkkplugin.so",
        "--atoms",
        "1000000",
        "--lmp",
        "lmp",
    ]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "device cuda" in done.stdout and "lmp-with-kokkos -k on t" in done.stdout and "replicate " in done.stdout
