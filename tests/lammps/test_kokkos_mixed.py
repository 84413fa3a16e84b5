"""pair_style clebsch/kk in a LAMMPS of mixed precision (KOKKOS_PREC=mixed): positions in float on the device."""

import os
from pathlib import Path

import numpy as np
import pytest
from lammps_runs import KokkosLammps, assert_same, random_system

LMP, PLUGIN = os.environ.get("CLEBSCH_KK_MIXED_LMP", ""), os.environ.get("CLEBSCH_KK_MIXED_PLUGIN", "")
DOUBLE = os.environ.get("CLEBSCH_KK_PLUGIN", "")
if not (LMP and PLUGIN and Path(LMP).exists() and Path(PLUGIN).exists()):
    pytest.skip(
        f"clebsch/kk is not tested in mixed precision: no LAMMPS with Kokkos and plugin for it in '{LMP}' and "
        f"'{PLUGIN}'; scripts/test releases builds both on Debian, or with Kokkos_ROOT",
        allow_module_level=True,
    )


@pytest.fixture
def mixed(tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    return KokkosLammps(LMP, PLUGIN, folder)


def exact(**rest):
    """Positions that a float holds, and with them every periodic image: multiples of 2^-14 Angstrom in a box of whole
    ones. Mixed precision then rounds nothing that the pair style reads."""
    system = random_system(**rest)
    system.positions = np.round(system.positions * 2**14) / 2**14
    return system


@pytest.mark.parametrize("rest", [{}, {"boundary": "p f s", "seed": 4}, {"boundary": "f f f", "seed": 5}])
def test_exact_positions(lammps, mixed, model, rest):
    """Energy, forces and virials, which are sums in double, are those of the plain style."""
    system = exact(**rest)
    reference = lammps.reference(system, model)
    for ranks, newton, threads in ((1, "on", 2), (1, "off", 1), (2, "on", 1), (4, "off", 1)):
        run = mixed.evaluate(system, model, ranks=ranks, newton=newton, threads=threads)
        assert "pair clebsch/kk" in run.output and "kokkos_device" in run.output, run.output
        assert_same(run, reference)
    assert_same(mixed.evaluate(system, model, style="comm ghost"), reference)


def test_rounded_positions(lammps, mixed, model):
    """Elsewhere the answer is that of the rounded positions, up to the rounding of periodic images in LAMMPS."""
    system = random_system(tilt=(2.0, -1.5, 1.0), seed=2)
    exact_reference = lammps.reference(system, model)
    system.positions = system.positions.astype(np.float32).astype(float)
    reference = lammps.reference(system, model)
    for ranks in (1, 2):
        run = mixed.evaluate(system, model, ranks=ranks)
        worst = assert_same(run, reference, tolerance=1e-5)
        assert worst > 1e-10  # it is not double after all
        assert_same(run, exact_reference, tolerance=1e-5)


def test_float32_model(lammps, mixed, model):
    reference = lammps.reference(exact(), model, style="dtype float32")
    assert_same(mixed.evaluate(exact(), model, style="dtype float32"), reference, tolerance=1e-5)


def test_plain_style(lammps, mixed, model):
    """The style on the host reads LAMMPS's positions in double."""
    system = exact()
    pair = f"pair_style clebsch\npair_coeff * * {model} O H\n"
    assert_same(mixed.evaluate(system, model, pair=pair, suffix=False), lammps.evaluate(system, model))


def test_trajectory(lammps, mixed, repulsive_model):
    """Molecular dynamics follows that in double, and conserves energy to what a float of the velocities allows."""
    system = random_system(atoms=40, spacing=1.4, seed=9)
    after = "velocity all create 600 4711 loop geom\ntimestep 0.0001\nfix 1 all nve\n"
    reference = lammps.reference(system, repulsive_model, after=after, run="run 100")
    for ranks in (1, 2):
        run = mixed.evaluate(system, repulsive_model, ranks=ranks, after=after, run="run 100")
        assert run.values["etotal"] == pytest.approx(reference.values["etotal"], rel=1e-5)
        for axis in "xyz":
            assert np.abs(run.table()[axis] - reference.table()[axis]).max() < 1e-4


def test_plugin_of_another_precision(mixed, model):
    if not Path(DOUBLE).exists():
        pytest.skip(f"no plugin for double precision in '{DOUBLE}'")
    mixed.plugin = DOUBLE
    run = mixed.evaluate(random_system(), model, check=False)
    refusal = "it was compiled for Kokkos in double precision, got a LAMMPS with another"
    assert run.returncode != 0 and refusal in " ".join(run.output.split()), run.output
