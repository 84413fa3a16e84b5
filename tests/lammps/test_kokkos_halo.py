"""comm halo of clebsch/kk: ranks exchange features, forces of ghosts go to their owners the same way. The same numbers
as of the plain style on one rank, to rounding, for Kokkos's host backends."""

import re

import numpy as np
import pytest
from lammps_runs import assert_same, random_system, usual
from test_halo import DYNAMICS, ROUNDING, assert_same_end, one_atom, remote_nodes
from test_ranks import SYSTEMS, slab
from test_types import CHANGE, at_a_corner, overlay

from conftest import tiny_model


@pytest.fixture(scope="session")
def allegro_model(tmp_path_factory) -> str:
    return tiny_model(tmp_path_factory.mktemp("models"), "dtype=float64", script="tiny_allegro.py")


def halo(kokkos, system, model, ranks, style="comm halo", **rest):
    run = kokkos.evaluate(system, model, ranks=ranks, style=style, **rest)
    assert "halo: ranks exchange features between layers" in run.output
    if "pair" not in rest:  # the style made the graph itself, from a list for Kokkos
        assert "pair clebsch/kk" in run.output and "kokkos_device" in run.output, run.output
    return run


@pytest.mark.parametrize("name", usual([*SYSTEMS, "one atom"], "triclinic", "one atom"))
def test_systems(lammps, kokkos, model, name):
    """One rank folds; 2, 3, 4 exchange; newton on and off, which send forces in different ways."""
    system = (SYSTEMS | {"one atom": one_atom})[name]()
    reference = lammps.reference(system, model)
    assert_same(kokkos.evaluate(system, model, style="comm halo"), reference, ROUNDING)
    for ranks, newton, threads in ((2, "on", 1), (2, "off", 2), (3, "off", 1), (4, "on", 1)):
        assert_same(halo(kokkos, system, model, ranks, newton=newton, threads=threads), reference, ROUNDING)


@pytest.mark.parametrize("name", usual(["triclinic", "small", "slab"], "small"))
def test_mace(lammps, kokkos, mace_model, name):
    system = SYSTEMS[name]()
    reference = lammps.reference(system, mace_model)
    for ranks, newton in ((2, "off"), (3, "on"), (4, "off")):
        assert_same(halo(kokkos, system, mace_model, ranks, newton=newton), reference, ROUNDING)


@pytest.mark.parametrize("newton", ["on", "off"])
@pytest.mark.parametrize("name", usual(["triclinic", "slab", "one atom"], "one atom"))
def test_gather(lammps, kokkos, model, name, newton):
    """Collective calls, in which ranks without atoms take part; forces go to their owners by messages all the same."""
    system = (SYSTEMS | {"one atom": one_atom})[name]()
    reference = lammps.reference(system, model)
    run = halo(kokkos, system, model, 3, style="comm gather", newton=newton)
    assert "comm gather through" in run.output
    assert_same(run, reference, ROUNDING)


def test_as_the_plain_style(lammps, kokkos, model):
    """The same decomposition with the same nodes: the order of a row's edges differs, and that of sums over atoms."""
    system = random_system(seed=11)
    plain = lammps.evaluate(system, model, ranks=3, style="comm halo")
    assert_same(halo(kokkos, system, model, 3), plain, ROUNDING)


@pytest.mark.parametrize("newton", ["on", "off"])
def test_tiled(lammps, kokkos, model, newton):
    """comm_style tiled, whose communication LAMMPS has on the host alone; a box of one cutoff of ghosts."""
    system = random_system(atoms=140, lengths=(17.0, 12.0, 12.0), boundary="p f f", seed=7)
    reference = lammps.reference(system, model)
    tiled = dict(before="comm_style tiled", after="fix balance all balance 1 1.0 rcb\n", newton=newton)
    assert_same(halo(kokkos, system, model, 3, **tiled), reference, ROUNDING)


@pytest.mark.parametrize("newton", ["on", "off"])
@pytest.mark.parametrize("comm", ["halo", "ghost"])
def test_communication_by_kernels(lammps, kokkos, model, comm, newton):
    """LAMMPS's communication as on a GPU whose memory MPI can reach: kernels pack owners, types and forces."""
    package = f"package kokkos newton {newton} neigh half comm device\n"
    system = random_system()
    reference = lammps.reference(system, model)
    run = kokkos.evaluate(system, model, ranks=3, style=f"comm {comm}", before=package, newton=newton)
    assert_same(run, reference, ROUNDING if comm == "halo" else 1e-10)
    run = kokkos.evaluate(at_a_corner(2), model, ranks=3, before=package, newton=newton, run=CHANGE.format(1))
    assert_same(run, lammps.reference(at_a_corner(1), model))


def test_single_precision(lammps, kokkos, model):
    system = random_system()
    reference = lammps.reference(system, model, style="dtype float32")
    run = halo(kokkos, system, model, 3, style="comm halo dtype float32", newton="off")
    rms = np.sqrt(np.mean(reference.forces() ** 2))
    assert np.sqrt(np.mean((run.forces() - reference.forces()) ** 2)) < 2e-6 * rms
    assert abs(run.values["pe"] - reference.values["pe"]) < 2e-6 * abs(reference.values["pe"])


def test_same_bits(kokkos, model):
    """For the same decomposition nothing depends on when messages arrive: one thread, so that Kokkos's own sums and
    neighbour lists have one order."""
    first, second = (halo(kokkos, random_system(), model, 4, newton="off") for _ in range(2))
    assert np.array_equal(first.forces(), second.forces()) and first.values == second.values


@pytest.mark.parametrize("newton", usual(["on", "off"], "off"))
def test_types_change(lammps, kokkos, model, newton):
    """`set type` before `run pre no`: of atoms and of their ghosts, to NULL and, which must stop, from it. Ranks make a
    new plan together, although one of them alone has seen a reason."""
    reference = lammps.reference(at_a_corner(1), model)
    run = halo(kokkos, at_a_corner(2), model, 3, run=CHANGE.format(1), newton=newton)
    assert_same(run, reference, ROUNDING)
    names = {"type_names": ("O", "H", "Ar")}
    pair = overlay(model, "comm halo")
    reference = lammps.reference(at_a_corner(3, **names), model, pair=pair)
    run = halo(kokkos, at_a_corner(2, **names), model, 3, pair=pair, run=CHANGE.format(3), newton=newton)
    assert_same(run, reference)
    lost = kokkos.evaluate(
        at_a_corner(3, **names), model, 3, pair=pair, run=CHANGE.format(1), newton=newton, check=False
    )
    assert lost.returncode != 0 and "got a list without 1 of them at step 1" in " ".join(lost.output.split())


@pytest.mark.parametrize("newton", usual(["on", "off"], "off"))
def test_two_models(lammps, kokkos, model, mace_model, newton):
    """A communicator for each; one with deep ghosts beside one that needs none of them."""
    system = random_system(atoms=40)
    pair = (
        "pair_style hybrid/overlay clebsch comm {} clebsch comm {}\n"
        f"pair_coeff * * clebsch 1 {model} O H\npair_coeff * * clebsch 2 {mace_model} O H\n"
    )
    reference = lammps.reference(system, model, pair=pair.format("auto", "auto"))
    for ways in (("halo", "halo"), ("ghost", "halo")):
        run = kokkos.evaluate(system, model, ranks=3, pair=pair.format(*ways), newton=newton)
        assert_same(run, reference)


@pytest.mark.parametrize(
    "name, more",
    [
        ("shift", "fix 1 all nve\nfix balance all balance 5 1.0 shift x 10 1.02\n"),
        ("barostat", "fix 1 all npt temp 600 600 0.01 aniso 0 0 0.1\n"),
    ],
)
@pytest.mark.parametrize("newton", usual(["on", "off"], "off"))
def test_trajectories(lammps, kokkos, repulsive_model, name, more, newton):
    """Domains that move, boxes that change, atoms that cross: 40 steps end at the same positions."""
    system = slab() if name == "shift" else random_system(seed=8, spacing=1.3)
    reference = lammps.reference(
        system, repulsive_model, after=DYNAMICS + more.replace("fix balance", "# fix"), run="run 40"
    )
    run = halo(kokkos, system, repulsive_model, 3, after=DYNAMICS + more, run="run 40", newton=newton)
    assert "Neighbor list builds = 0" not in run.output
    assert_same_end(run, reference)


@pytest.mark.parametrize("ranks", usual([2, 4], 4))
def test_edges_outgrow_their_room(lammps, kokkos, model, ranks):
    """A box that shrinks under one neighbour list: ranks need more room for their edges at different steps, and all do
    these steps again together."""
    system = random_system(atoms=70, lengths=(18.0, 8.0, 8.0), spacing=1.6, seed=4)
    after = (
        "neighbor 2.5 bin\nneigh_modify every 100 delay 100 check no\nthermo 1\n"
        f"fix 1 all deform 1 {' '.join(f'{axis} scale 0.8' for axis in 'xyz')} remap x\n"
    )
    rest = {"after": after, "run": "run 8", "before": "processors * 1 1"}
    reference = lammps.reference(system, model, **rest)
    run = halo(kokkos, system, model, ranks, **rest)
    assert "Neighbor list builds = 0" in run.output, run.output
    assert_same(run, reference, ROUNDING)


@pytest.mark.parametrize("newton", usual(["on", "off"], "off"))
def test_the_log_counts_rows_messages_and_bytes(kokkos, model, newton):
    """As of the plain style; with newton off forces go back with the features, a message and 24 bytes a node."""
    system = random_system(atoms=90, lengths=(22.0, 6.5, 7.0), seed=3)
    run = halo(kokkos, system, model, 2, before="processors 2 1 1", newton=newton)
    line = next(line for line in run.output.splitlines() if "Pair style clebsch: comm halo" in line)
    rows, nodes, *_, messages, size, _, _ = (int(number) for number in re.findall(r"\d+", line))
    expected = remote_nodes(system, (system.positions[:, 0] >= 11.0).astype(int))
    returned = newton == "off"
    assert (rows, nodes, messages) == (90, expected, 2 * 2 * 2 + 2 * returned)
    # Three layers, lmax 1: 8x0e + 6x1 after the first and the second.
    assert size == 2 * 2 * expected * (8 + 6 * 3) * 8 + 24 * expected * returned


@pytest.mark.parametrize("name", usual(["triclinic", "small", "slab", "mixed"], "slab"))
def test_allegro(lammps, kokkos, allegro_model, name):
    """No features to exchange. With newton off forces take the exchange; with newton on LAMMPS has them anyway."""
    system = SYSTEMS[name]()
    reference = lammps.reference(system, allegro_model)
    for ranks in (2, 3, 4):
        run = kokkos.evaluate(system, allegro_model, ranks=ranks, newton="off")
        assert "halo: ranks exchange forces of ghosts" in run.output
        assert_same(run, reference, ROUNDING)
    for ranks, newton, style in ((3, "on", ""), (3, "off", "comm ghost")):
        run = kokkos.evaluate(system, allegro_model, ranks=ranks, newton=newton, style=style)
        assert "ghost expansion" in run.output
        assert_same(run, reference, ROUNDING)


@pytest.mark.parametrize("ranks", usual([1, 3], 3))
def test_allegro_trajectory(lammps, kokkos, allegro_model, ranks):
    system = random_system(seed=8, spacing=1.6)
    after = DYNAMICS.replace("600", "100") + "fix 1 all nve\n"
    reference = lammps.reference(system, allegro_model, after=after, run="run 40")
    run = kokkos.evaluate(system, allegro_model, ranks=ranks, after=after, run="run 40", newton="off")
    assert_same_end(run, reference)


def test_what_auto_takes(kokkos, model, output_model):
    system = random_system()
    assert "halo: ranks exchange features" in kokkos.evaluate(system, model, ranks=2).output
    assert "ghost expansion" in kokkos.evaluate(system, model, ranks=2, style="comm ghost").output
    assert "ghost expansion" in kokkos.evaluate(system, output_model, ranks=2).output


def test_the_style_is_given_again(lammps, kokkos, model):
    """Another kind of communication with the same model, and the other plugin's style on the host."""
    again = "run 0\npair_style clebsch comm {}\nrun 0"
    system = random_system()
    reference = lammps.reference(system, model)
    for first, second in (("halo", "ghost"), ("ghost", "halo")):
        run = kokkos.evaluate(system, model, ranks=2, style=f"comm {first}", run=again.format(second), newton="off")
        assert_same(run, reference)


@pytest.mark.parametrize("newton", ["on", "off"])
def test_a_fault_on_one_rank_ends_all(kokkos, model, newton):
    """Two atoms at one place: no rank waits for the one that stops."""
    system = random_system(lengths=(20.0, 8.0, 8.0))
    system.positions[3] = system.positions[5]
    run = kokkos.evaluate(system, model, ranks=3, style="comm halo", check=False, timeout=60, newton=newton)
    assert run.returncode != 0 and "expected a finite" in run.output
