"""pair_style clebsch/kk against pair_style clebsch: the same numbers, for Kokkos's host backends."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kokkos_style import LMP, PLUGIN
from lammps_runs import DUMP, RESULT, THERMO, Lammps, System, assert_same, random_system, usual
from test_monte_carlo import EXCLUDE, INTERACTION
from test_ranks import SYSTEMS
from test_types import CHANGE, at_a_corner, overlay

from conftest import tiny_model


def on_device(run):
    """The style made the graph itself, from a list for Kokkos."""
    assert "pair clebsch/kk" in run.output and "kokkos_device" in run.output, run.output
    return run


@pytest.mark.parametrize("name", usual(SYSTEMS, "triclinic", "small", "slab"))
def test_systems(lammps, kokkos, model, name):
    """Folded ghosts on one rank, ghost expansion on several; threads; newton on and off."""
    system = SYSTEMS[name]()
    reference = lammps.reference(system, model)
    assert_same(on_device(kokkos.evaluate(system, model)), reference)
    assert_same(kokkos.evaluate(system, model, threads=2, newton="off"), reference)
    if name in ("triclinic", "small"):
        assert_same(kokkos.evaluate(system, model, style="comm ghost"), reference)
    for ranks, newton in ((2, "on"), (4, "off")):
        assert_same(kokkos.evaluate(system, model, ranks=ranks, newton=newton), reference)


def test_float32(lammps, kokkos, model):
    reference = lammps.reference(random_system(), model, style="dtype float32")
    for ranks in (1, 2):
        run = kokkos.evaluate(random_system(), model, style="dtype float32", ranks=ranks)
        assert_same(run, reference, tolerance=1e-5)


@pytest.mark.parametrize("source", usual(["of the tests", "mace-torch"], "of the tests"))
def test_mace(lammps, kokkos, mace_model, tmp_path, source):
    model = mace_model
    if source == "mace-torch":
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
        import mace_environment

        mace_environment.run("mace_export.py", "save", "residual", str(tmp_path))
        model = str(tmp_path / "residual.pt")
    system = random_system(tilt=(2.0, -1.5, 1.0), seed=2)
    reference = lammps.reference(system, model)
    for ranks, newton, threads in ((1, "on", 2), (1, "off", 1), (2, "on", 1), (4, "off", 1)):
        assert_same(kokkos.evaluate(system, model, ranks=ranks, newton=newton, threads=threads), reference)
    half = lammps.evaluate(system, model, style="dtype float32")
    assert_same(kokkos.evaluate(system, model, style="dtype float32"), half, tolerance=1e-5)


def test_allegro(lammps, kokkos, tmp_path):
    model = tiny_model(tmp_path, "dtype=float64", script="tiny_allegro.py")
    reference = lammps.reference(random_system(), model)
    for ranks, newton in ((1, "on"), (2, "off")):
        assert_same(kokkos.evaluate(random_system(), model, ranks=ranks, newton=newton), reference)


@pytest.mark.parametrize("ranks", [1, 2])
def test_hybrid_overlay(lammps, kokkos, model, ranks):
    """Both styles in Kokkos; the same with one of them, or both, on the host."""
    system = random_system(spacing=1.4)
    pair = (
        f"pair_style hybrid/overlay clebsch lj/cut 5.0\npair_coeff * * clebsch {model} O H\n"
        "pair_coeff * * lj/cut 0.01 2.0\n"
    )
    reference = lammps.reference(system, model, pair=pair)
    assert_same(kokkos.evaluate(system, model, pair=pair, ranks=ranks), reference)
    mixed = pair.replace("hybrid/overlay", "hybrid/overlay/kk").replace("lj/cut", "lj/cut/kk")
    assert_same(kokkos.evaluate(system, model, pair=mixed, ranks=ranks, suffix=False), reference)


@pytest.mark.parametrize("newton", ["on", "off"])
def test_hybrid_with_null(lammps, kokkos, model, newton):
    """Atoms of another style are no nodes; two models, each with its own type."""
    system = random_system(spacing=1.6)
    for pair in (
        f"pair_style hybrid clebsch lj/cut 4.0\npair_coeff * * clebsch {model} O NULL\npair_coeff 1 2 lj/cut 0.01 1.5\n"
        "pair_coeff 2 2 lj/cut 0.02 1.4\n",
        f"pair_style hybrid clebsch clebsch lj/cut 3.0\npair_coeff * * clebsch 1 {model} O NULL\n"
        f"pair_coeff * * clebsch 2 {model} NULL H\npair_coeff 1 2 lj/cut 0.01 1.5\n",
    ):
        reference = lammps.reference(system, model, pair=pair)
        for ranks in (1, 2):
            assert_same(kokkos.evaluate(system, model, pair=pair, ranks=ranks, newton=newton), reference)


@pytest.mark.parametrize("ranks, newton", [(1, "on"), (1, "off"), (3, "on"), (2, "off")])
def test_types_change(lammps, kokkos, model, ranks, newton):
    """`set type` before `run pre no`: of atoms and of their ghosts, to NULL and, which must stop, from it."""
    rest = {"ranks": ranks, "newton": newton}
    reference = lammps.reference(at_a_corner(1), model)
    run = kokkos.evaluate(at_a_corner(2), model, run=CHANGE.format(1), **rest)
    assert_same(on_device(run), reference)
    names = {"type_names": ("O", "H", "Ar")}
    pair = overlay(model, "")
    reference = lammps.reference(at_a_corner(3, **names), model, pair=pair)
    run = kokkos.evaluate(at_a_corner(2, **names), model, pair=pair, run=CHANGE.format(3), **rest)
    assert_same(run, reference)
    lost = kokkos.evaluate(at_a_corner(3, **names), model, pair=pair, run=CHANGE.format(1), check=False, **rest)
    assert lost.returncode != 0 and "got a list without 1 of them at step 1" in " ".join(lost.output.split())


@pytest.mark.parametrize("ranks", [1, 2])
def test_interaction_energies(lammps, kokkos, model, ranks):
    """The same as of the plain style, of the system and of each atom; none for an atom out of all lists."""
    rest = {"style": INTERACTION, "after": EXCLUDE}
    run = kokkos.evaluate(random_system(), model, ranks=ranks, **rest)
    assert_same(on_device(run), lammps.reference(random_system(), model, **rest))
    assert abs(run.columns("c_pe")[4, 0]) < 1e-12


DYNAMICS = "velocity all create 600 4711 loop geom\ntimestep 0.00005\n"


@pytest.mark.parametrize("ranks", [1, 2])
def test_trajectories(lammps, kokkos, repulsive_model, ranks):
    """Rebuilds, migration, a changing box, a minimisation: the same end."""
    system = random_system(atoms=40, spacing=1.4, tilt=(1.0, 0.5, -0.5), seed=9)
    npt = DYNAMICS + "fix 1 all npt temp 600 600 0.01 iso 0 0 0.1\n"
    for after, run in ((npt, "run 60"), ("min_style cg\n", "minimize 0 0 8 16")):
        reference = lammps.reference(system, repulsive_model, after=after, run=run)
        run = kokkos.evaluate(system, repulsive_model, ranks=ranks, after=after, run=run)
        assert_same(run, reference, tolerance=1e-8)
        for axis in "xyz":
            assert np.abs(run.table()[axis] - reference.table()[axis]).max() < 1e-8


@pytest.mark.parametrize("ranks", [1, 2])
def test_edges_outgrow_their_room(lammps, kokkos, model, ranks):
    """A box that shrinks under one neighbour list: twice the edges, so that steps are done again with more room."""
    system = random_system(atoms=60, spacing=1.6, seed=4)
    scaled = " ".join(f"{axis} scale 0.8" for axis in "xyz")
    after = "neighbor 2.5 bin\nneigh_modify every 100 delay 100 check no\nthermo 1\n"
    after += f"fix 1 all deform 1 {scaled} remap x\n"
    rest = {"after": after, "run": "run 8"}
    reference = lammps.reference(system, model, **rest)
    run = kokkos.evaluate(system, model, ranks=ranks, **rest)
    assert "Neighbor list builds = 0" in run.output, run.output
    assert_same(run, reference)


def test_evaporation(lammps, kokkos, repulsive_model):
    """Atoms that fly apart: neighbours dwindle to none, and lost atoms leave."""
    system = random_system(atoms=12, lengths=(5.0, 5.0, 5.0), spacing=1.2, boundary="f f f", seed=3)
    system.cell *= 2.0
    after = (
        "velocity all create 200000 4711 loop geom\nfix 1 all nve\ntimestep 0.0005\n"
        "thermo_modify lost ignore\nthermo 50\n"
    )
    lost = THERMO.replace("norm no", "norm no lost ignore")
    end = f"neighbor 0.5 bin\n{after}{lost}{DUMP}run 150\n{RESULT}"
    pair = f"pair_style clebsch\npair_coeff * * {repulsive_model} O H\n"
    reference = lammps(lammps.header(system) + pair + end, files={"system.data": system})
    run = kokkos(kokkos.header(system) + pair + end, files={"system.data": system})
    assert len(run.forces()) == len(reference.forces()) < 12
    assert run.values["etotal"] == pytest.approx(reference.values["etotal"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("ranks", [1, 2])
def test_isolated_and_no_atoms(lammps, kokkos, model, ranks):
    alone = System(np.diag([30.0, 30.0, 30.0]), np.array([[2.0, 2.0, 2.0], [17.0, 17.0, 17.0]]), np.array([1, 2]))
    assert_same(kokkos.evaluate(alone, model, ranks=ranks), lammps.reference(alone, model))
    empty = System(np.diag([9.0, 9.0, 9.0]), np.zeros((0, 3)), np.zeros(0, int))
    run = kokkos.evaluate(empty, model, ranks=ranks)
    assert run.values["pe"] == 0


def test_runs_in_one_process(lammps, kokkos, model):
    """`run 0` again, `clear` and another system, and both plugins side by side."""
    system = random_system()
    reference = lammps.reference(system, model)
    commands = kokkos.header(system) + f"pair_style clebsch\npair_coeff * * {model} O H\nneighbor 0.5 bin\n"
    dump = "dump atoms all custom 1 atoms.dump id type x y z fx fy fz\ndump_modify atoms sort id format float %.17g\n"
    plain = f'plugin load "{Path(PLUGIN).parents[1] / "clebschplugin.so"}"\n'
    text = commands + "run 0\nrun 0\nrun 0 post no\nclear\n" + plain + commands + THERMO + dump + "run 0\n" + RESULT
    run = kokkos(text, files={"system.data": system})
    assert np.abs(run.forces() - reference.forces()).max() < 1e-10 * np.abs(reference.forces()).max()
    assert run.values["pe"] == pytest.approx(reference.values["pe"], rel=1e-12)


def test_rerun_and_unload(lammps, kokkos, repulsive_model):
    system = random_system(atoms=30, spacing=1.4, seed=5)
    dump = "dump d all custom 2 traj.dump id type x y z\ndump_modify d sort id format float %.17g\n"
    head = kokkos.header(system) + f"pair_style clebsch\npair_coeff * * {repulsive_model} O H\n" + THERMO
    text = head + DYNAMICS + "fix 1 all nve\n" + dump + "run 6\n" + RESULT + "undump d\nunfix 1\n"
    text += "rerun traj.dump dump x y z\n" + RESULT.replace("RESULT ", "RESULT again_")
    text += "plugin unload pair clebsch/kk\nplugin unload pair clebsch\nprint 'still here'\n"
    run = kokkos(text, files={"system.data": system})
    assert run.values["again_pe"] == pytest.approx(run.values["pe"], rel=1e-10)
    assert run.values["again_pxx"] - run.values["pxx"] < 1e6  # kinetic part missing in a rerun
    assert "still here" in run.output


@pytest.mark.parametrize("ranks", [1, 2])
def test_computes(lammps, kokkos, model, ranks):
    """compute clebsch and clebsch/atom see the outputs and the atoms of the Kokkos style."""
    system = random_system()
    after = (
        "compute e all clebsch/atom atomic_energy\ncompute s all clebsch atomic_energy\n"
        "compute t all clebsch timing\ndump e all custom 1 e.dump id c_e c_pe\n"
        "dump_modify e sort id format float %.15g\n"
    )
    text = "compute pe all pe/atom pair\n" + after
    commands = kokkos.header(system) + f"pair_style clebsch timing yes\npair_coeff * * {model} O H\n" + text + THERMO
    commands += (
        "thermo_style custom step pe c_s\nfix 1 all nve\ntimestep 1e-6\nrun 3\nprint 'RESULT sum = $(c_s:%.15g)'\n"
    )
    commands += "print 'RESULT pe = $(pe:%.15g)'\n"
    run = kokkos(commands, ranks=ranks, files={"system.data": system})
    table = run.table("e.dump")
    assert np.abs(table["c_e"] - table["c_pe"]).max() < 1e-10
    assert run.values["sum"] == pytest.approx(run.values["pe"], rel=1e-12)
    assert "ms per step (mean of ranks, 3 steps): graph" in run.output


def test_grades(lammps, kokkos, tmp_path):
    """The grades and their maximum, of all atoms and of a group, on steps that a compute announces and at the first."""
    write = "import sys; from graded_models import write_graded; write_graded(sys.argv[1], 'nequip')"
    model, parity = str(tmp_path / "graded.pt"), Path(__file__).resolve().parents[1] / "parity"
    subprocess.run([sys.executable, "-W", "ignore", "-c", write, model], cwd=parity, check=True)
    after = (
        "velocity all create 300 3 loop geom\nfix 1 all nve\ntimestep 0.0002\ngroup part id 5:20\n"
        "compute g all clebsch/atom extrapolation\ncompute most all reduce max c_g\n"
        "compute peak all clebsch extrapolation max\ncompute part part clebsch extrapolation max\n"
        "dump g all custom 2 g.dump id c_g\ndump_modify g sort id format float %.17g\n"
    )
    motion = "thermo 2\nthermo_style custom step c_most c_peak c_part pe pxx pyy pzz pxy pxz pyz vol temp etotal\n"
    motion += "thermo_modify format float %.16g\nrun 4"
    frames = lammps.evaluate(random_system(), model, after=after, run="run 4").frames("g.dump")
    for ranks in (1, 2):
        run = kokkos.evaluate(random_system(), model, ranks=ranks, after=after, run=motion)
        for frame, plain, row in zip(run.frames("g.dump"), frames, run.thermo(), strict=True):
            assert np.abs(frame["c_g"] / plain["c_g"] - 1).max() < 1e-9
            assert row[1:4] == pytest.approx([frame["c_g"].max()] * 2 + [frame["c_g"][4:20].max()], rel=1e-14)


def test_tiled(lammps, kokkos, model):
    system = random_system(atoms=140, lengths=(17.0, 12.0, 12.0), boundary="p f f", seed=7)
    tiled = dict(before="comm_style tiled", after="fix balance all balance 1 1.0 rcb\n")
    assert_same(kokkos.evaluate(system, model, ranks=3, **tiled), lammps.evaluate(system, model))


def test_names(lammps, kokkos, model, tmp_path):
    """clebsch/kk/host and /device, the plain style beside them, and what happens without `-k on`."""
    system = random_system()
    reference = lammps.reference(system, model)
    for style in ("clebsch", "clebsch/kk", "clebsch/kk/host", "clebsch/kk/device"):
        pair = f"pair_style {style}\npair_coeff * * {model} O H\n"
        assert_same(kokkos.evaluate(system, model, pair=pair, suffix=False), reference)
    text = kokkos.header(system) + "pair_style clebsch/kk\n"
    (tmp_path / "off").mkdir()
    run = Lammps(LMP, PLUGIN, tmp_path / "off")(text, files={"system.data": system}, check=False)
    assert run.returncode != 0 and "start it with `-k on`" in " ".join(run.output.split())


@pytest.mark.parametrize("style", ["clebsch/kk", "clebsch/kk/host"])
def test_called_from_outside_of_a_run(kokkos, model, style):
    """Fixes and computes that call the style themselves find its forces: it marks what it has changed."""
    caller = Path(PLUGIN).parent / "callpair.so"
    assert caller.exists(), f"expected {caller}: build the target callpair"
    text = kokkos.header(random_system()) + f"pair_style {style}\npair_coeff * * {model} O H\nneighbor 0.5 bin\nrun 0\n"
    text += f'plugin load "{caller}"\ncall_pair\n'
    run = kokkos(text, files={"system.data": random_system()}, env={"LD_PRELOAD": str(caller)})
    assert run.values["forces_marked"] == 1
    assert run.values["difference"] <= 1e-10 * run.values["largest"], run.output


def test_numbers_that_are_none(kokkos, model):
    """Overlapping atoms and lost positions stop the run and name an atom."""
    system = random_system()
    system.positions[5] = system.positions[3]
    run = kokkos.evaluate(system, model, check=False)
    assert run.returncode != 0
    joined = " ".join(run.output.split())
    assert re.search(r"expected a finite (energy|force), got one that is not for atom ID \d+", joined), run.output
    assert "where atom IDs" in joined


def test_memory_is_constant(kokkos, tmp_path):
    """2000 steps with rebuilds of a tiny model: the process does not grow."""
    model = tiny_model(tmp_path, "layers=1", "lmax=0", "zbl=1")
    system = random_system(atoms=20, lengths=(7.0, 7.0, 7.0), spacing=1.3, seed=6)
    text = kokkos.header(system) + f"pair_style clebsch\npair_coeff * * {model} O H\nneighbor 0.3 bin\n"
    text += "neigh_modify every 1 delay 0 check yes\nvelocity all create 3000 4711 loop geom\nfix 1 all nve\n"
    text += "timestep 0.00005\nthermo 1000\n" + THERMO
    (kokkos.folder / "rss").write_text("#!/bin/sh\ngrep VmRSS /proc/$PPID/status\n")
    shell = f'shell sh "{kokkos.folder}/rss"\n'
    text += f"run 300\n{shell}run 1500\n{shell}"
    run = kokkos(text, files={"system.data": system})
    sizes = [int(value) for value in re.findall(r"VmRSS:\s+(\d+) kB", run.output)]
    builds = [int(value) for value in re.findall(r"Neighbor list builds = (\d+)", run.output)]
    assert len(sizes) == 2 and builds[-1] > 10, run.output
    assert sizes[1] < sizes[0] + 3000, sizes
