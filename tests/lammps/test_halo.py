"""comm halo: ranks exchange features. The same numbers as on one rank, to rounding; the log says what is sent."""

import re
from itertools import product

import numpy as np
import pytest
from lammps_runs import System, assert_same, random_system, usual
from test_ranks import SYSTEMS, slab

#: fp64: only the order of sums differs from one rank.
ROUNDING = 1e-12
SKIN = 0.5
#: tests/unit/tiny_model.py's, [centre][neighbour]; a neighbour list has the larger of the two directions.
CUTOFFS = np.array([[4.0, 3.6], [3.6, 3.2]])


def one_atom() -> System:
    """Its images are its only neighbours, and all ranks but one are empty."""
    return random_system(atoms=1, lengths=(3.1, 3.3, 2.9), seed=6)


def halo(lammps, system, model, ranks, way="halo", **rest):
    run = lammps.evaluate(system, model, ranks=ranks, **({"style": f"comm {way}"} | rest))
    assert "halo: ranks exchange features between layers" in run.output
    return run


#: Names of systems; ranks with newton; kinds of models. At every change a system meets some of the pairs.
PLACES = ["triclinic", "mixed", "small", "slab", "one atom"]
RANKS = [(2, "on"), (3, "on"), (4, "off")]
KINDS = ["nequip", "mace"]


TWO_WAYS = [("halo", "halo"), ("ghost", "halo"), ("halo", "ghost")]


def every(*few):
    """(name, ranks, newton, kind), all of them by night."""
    return usual([(name, *ranks, kind) for name, ranks, kind in product(PLACES, RANKS, KINDS)], *few)


@pytest.fixture
def kinds(model, mace_model) -> dict:
    return {"nequip": model, "mace": mace_model}


@pytest.mark.parametrize(
    "name, ranks, newton",
    usual(
        [(name, *ranks) for name, ranks in product(PLACES, RANKS)],
        ("triclinic", 2, "on"),
        ("triclinic", 4, "off"),
        ("slab", 3, "on"),
        ("slab", 4, "off"),
    ),
)
def test_mace(lammps, mace_model, name, ranks, newton):
    """A model with densities, whose features carry the energy so far. (NequIP: test_ranks.py.)"""
    system = (SYSTEMS | {"one atom": one_atom})[name]()
    reference = lammps.reference(system, mace_model)
    assert_same(halo(lammps, system, mace_model, ranks, newton=newton), reference, ROUNDING)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["triclinic", "small", "slab"])
def test_eight_ranks(lammps, model, mace_model, name):
    system = SYSTEMS[name]()
    for file, way, newton in ((model, "halo", "on"), (mace_model, "halo", "off"), (mace_model, "gather", "on")):
        reference = lammps.reference(system, file)
        assert_same(halo(lammps, system, file, 8, way=way, newton=newton), reference, ROUNDING)


@pytest.mark.parametrize("newton", ["on", "off"])
def test_one_atom(lammps, model, newton):
    reference = lammps.reference(one_atom(), model)
    assert np.abs(reference.columns("c_st")).max() > 1e-3
    assert_same(halo(lammps, one_atom(), model, 3, newton=newton), reference, ROUNDING)


@pytest.mark.parametrize(
    "name, ranks, newton, kind",
    every(("one atom", 2, "on", "mace"), ("one atom", 3, "on", "nequip"), ("one atom", 4, "off", "mace")),
)
def test_gather(lammps, kinds, name, ranks, newton, kind):
    """Everything to every rank in collective calls, of ranks without atoms too. The bits are those of halo."""
    system = (SYSTEMS | {"one atom": one_atom})[name]()
    run = halo(lammps, system, kinds[kind], ranks, way="gather", newton=newton)
    assert "comm gather through MPI on the host" in run.output
    assert_same(run, lammps.reference(system, kinds[kind]), ROUNDING)
    halos = halo(lammps, system, kinds[kind], ranks, newton=newton)
    assert np.array_equal(run.forces(), halos.forces()) and run.values == halos.values


def test_no_atoms(lammps, model):
    system = System(np.eye(3) * 9.0, np.zeros((0, 3)), np.zeros(0, int))
    for way in ("halo", "gather"):
        assert halo(lammps, system, model, 2, way=way).values["pe"] == 0


@pytest.mark.parametrize("style", ["neighbor 0.5 multi\n", "neighbor 0.5 multi\ncomm_modify mode multi\n"])
def test_multi(lammps, model, style):
    """Ghosts by type: a cutoff for each is enough, since ghosts have no rows."""
    system = random_system()
    assert_same(halo(lammps, system, model, 3, after=style), lammps.reference(system, model), ROUNDING)


@pytest.mark.parametrize(
    "newton, first, second",
    usual(
        [(newton, *ways) for newton in ("on", "off") for ways in TWO_WAYS],
        ("on", "halo", "halo"),
        ("on", "ghost", "halo"),
        ("off", "halo", "ghost"),
    ),
)
def test_two_models(lammps, model, mace_model, newton, first, second):
    """Each has a communicator of its own; one with deep ghosts beside one that needs none of them."""
    system = random_system(atoms=40)
    overlay = (
        "pair_style hybrid/overlay clebsch comm {} clebsch comm {}\n"
        f"pair_coeff * * clebsch 1 {model} O H\npair_coeff * * clebsch 2 {mace_model} O H\n"
    )
    reference = lammps.reference(system, model, pair=overlay.format("auto", "auto"))
    run = lammps.evaluate(system, model, ranks=3, pair=overlay.format(first, second), newton=newton)
    assert_same(run, reference)


def test_same_bits(lammps, model):
    """Sums have a fixed order: for the same decomposition not even the last digit depends on when messages arrive."""
    first, second = (halo(lammps, random_system(), model, 4) for _ in range(2))
    assert np.array_equal(first.forces(), second.forces()) and first.values == second.values


def test_single_precision(lammps, model):
    system = random_system()
    reference = lammps.reference(system, model, style="dtype float32")
    run = lammps.evaluate(system, model, style="comm halo dtype float32", ranks=3)
    rms = np.sqrt(np.mean(reference.forces() ** 2))
    assert np.sqrt(np.mean((run.forces() - reference.forces()) ** 2)) < 2e-6 * rms
    assert abs(run.values["pe"] - reference.values["pe"]) < 2e-6 * abs(reference.values["pe"])


DYNAMICS = "velocity all create 600 4711 loop geom\ntimestep 0.00005\n"


def assert_same_end(run, reference):
    assert_same(run, reference, tolerance=1e-8)
    for axis in "xyz":
        assert np.abs(run.table()[axis] - reference.table()[axis]).max() < 1e-9


@pytest.mark.parametrize(
    "name, more",
    [
        ("shift", "fix 1 all nve\nfix balance all balance 5 1.0 shift x 10 1.02\n"),
        ("barostat", "fix 1 all npt temp 600 600 0.01 aniso 0 0 0.1\n"),
    ],
)
def test_trajectories(lammps, repulsive_model, name, more):
    """Domains that move, boxes that change, atoms that cross: 40 steps end at the same positions."""
    system = slab() if name == "shift" else random_system(seed=8, spacing=1.3)
    reference = lammps.reference(
        system, repulsive_model, after=DYNAMICS + more.replace("fix balance", "# fix"), run="run 40"
    )
    run = halo(lammps, system, repulsive_model, 3, after=DYNAMICS + more, run="run 40")
    assert "Neighbor list builds = 0" not in run.output
    assert_same_end(run, reference)


def test_atoms_come_and_go(lammps, repulsive_model):
    """fix deposit between two neighbour lists, delete_atoms between two runs, and ranks that lose all of theirs."""
    system = random_system(atoms=30, lengths=(16.0, 8.0, 8.0), seed=8, spacing=1.4)
    steps = (
        "region top block 8 15 0.5 7.5 0.5 7.5\nregion left block 0 6 INF INF INF INF\n"
        "fix more all deposit 4 1 5 991 region top near 1.5 attempt 200\nfix 1 all nve\nrun 22 post no\nunfix more\n"
        "delete_atoms region left compress no\nrun 10"
    )
    reference = lammps.reference(system, repulsive_model, after=DYNAMICS, run=steps)
    assert len(reference.frames()[0]["id"]) != len(reference.forces())
    for ranks, way in ((2, "halo"), (4, "halo"), (4, "gather")):
        run = halo(lammps, system, repulsive_model, ranks, way=way, after=DYNAMICS, run=steps)
        assert_same_end(run, reference)


def remote_nodes(system: System, sides) -> int:
    """Atoms of one side of the box that an atom of the other has in its list, both ways together."""
    delta = system.positions[:, None] - system.positions[None]
    lengths = np.diag(system.cell)
    reach = CUTOFFS[np.ix_(system.types - 1, system.types - 1)] + SKIN
    near = np.zeros(reach.shape, bool)
    for shift in np.ndindex(5, 5, 5):
        near |= np.linalg.norm(delta + (np.array(shift) - 2) * lengths, axis=2) < reach
    return sum(int((near[mine] & (sides != side)).any(axis=0).sum()) for side in (0, 1) for mine in [sides == side])


def test_the_log_counts_rows_messages_and_bytes(lammps, model):
    """Two ranks side by side: rows are the atoms, remote nodes those within the list's reach, once however many images
    there are; a message each way for each of two exchanges; bytes are nodes times the features of the layers."""
    system = random_system(atoms=90, lengths=(22.0, 6.5, 7.0), seed=3)
    run = halo(lammps, system, model, 2, before="processors 2 1 1")
    line = next(line for line in run.output.splitlines() if "comm halo through MPI" in line)
    rows, nodes, *_, messages, size, _, _ = (int(number) for number in re.findall(r"\d+", line))
    sides = (system.positions[:, 0] >= 11.0).astype(int)
    expected = remote_nodes(system, sides)
    assert 0 < expected < 90
    assert (rows, nodes, messages) == (90, expected, 2 * 2 * 2)
    # Three layers, lmax 1: 8x0e + 6x1 after the first and the second.
    assert size == 2 * 2 * expected * (8 + 6 * 3) * 8
    assert run.output.count("comm halo through MPI") == 1


def test_the_log_of_gather(lammps, model):
    """A slot of fixed size, the larger rank's, to each other rank, there and back behind each of two layers."""
    system = random_system(atoms=90, lengths=(22.0, 6.5, 7.0), seed=3)
    run = halo(lammps, system, model, 2, way="gather", before="processors 2 1 1")
    line = next(line for line in run.output.splitlines() if "comm gather through MPI" in line)
    rows, nodes, padded, *_, slots, size, _, _ = (int(number) for number in re.findall(r"\d+", line))
    largest = max(np.bincount(system.positions[:, 0] >= 11.0))
    assert (rows, padded, slots) == (90, largest, 2 * 2 * 2) and nodes > 0
    assert size == 2 * 2 * 2 * largest * (8 + 6 * 3) * 8


def test_the_log_of_auto(lammps, model):
    """One line with what each way is expected to cost; no such line where the user has chosen."""
    system = random_system()
    way = r"\S+ ms \(\S+ exchange\)"
    words = rf"comm auto takes (halo|gather), by a prediction of ghost \S+ ms, halo {way}, gather {way}"
    assert len(re.findall(words, lammps.evaluate(system, model, ranks=2).output)) == 1
    assert "comm auto takes" not in halo(lammps, system, model, 2).output


def test_transports_of_the_cpu(lammps, model):
    """MPI it is; what wants a GPU is an error on all ranks."""
    system = random_system()
    assert "through MPI on the host" in halo(lammps, system, model, 2, way="halo transport host").output
    for transport in ("nccl", "aware"):
        run = lammps.evaluate(system, model, ranks=2, style=f"comm halo transport {transport}", check=False)
        expected = f"expected models on GPUs for transport {transport}, got models on the CPU"
        assert run.returncode != 0 and expected in " ".join(run.output.split())
    run = lammps.evaluate(system, model, ranks=2, style="transport ftp", check=False)
    assert "keyword transport expected auto, nccl, host or aware, got 'ftp'" in " ".join(run.output.split())


def test_what_auto_takes(lammps, model):
    """Several ranks exchange; one has nothing to exchange; `ghost` is there for the asking."""
    system = random_system()
    says = {
        (2, ""): "halo: ranks exchange features",
        (1, ""): "one rank: periodic ghosts folded",
        (1, "comm halo"): "one rank: periodic ghosts folded",
        (2, "comm ghost"): "ghost expansion",
        (2, "device cpu:padded"): "halo: ranks exchange features",
    }
    for (ranks, style), text in says.items():
        assert text in lammps.evaluate(system, model, ranks=ranks, style=style).output


def test_the_style_is_given_again(lammps, model):
    """Another kind of communication with the same model; without an integrator the atoms stay where they are."""
    ways = ("ghost", "halo", "gather", "auto")
    again = "run 1\n" + "".join(f"pair_style clebsch comm {way}\nrun 1\n" for way in ways)
    system = random_system()
    reference = lammps.reference(system, model)
    run = lammps.evaluate(system, model, ranks=2, style="comm halo", run=again)
    assert_same(run, reference)
    frames, expected = run.frames(), reference.table()
    assert len(frames) == 2 + len(ways)
    for frame, axis in product(frames, ("fx", "fy", "fz")):
        assert np.abs(frame[axis] - expected[axis]).max() < 1e-10 * np.abs(expected[axis]).max()


@pytest.mark.parametrize(
    "name, ranks, newton, kind",
    every(
        ("mixed", 2, "on", "nequip"),
        ("mixed", 4, "off", "mace"),
        ("slab", 2, "on", "mace"),
        ("slab", 4, "off", "nequip"),
    ),
)
def test_through_the_buffers_of_a_device(lammps, kinds, name, ranks, newton, kind):
    """The way of a GPU on the CPU: lists of pairs, padded buffers, a part of the step between two exchanges."""
    system = (SYSTEMS | {"one atom": one_atom})[name]()
    run = halo(lammps, system, kinds[kind], ranks, newton=newton, style="comm halo device cpu:padded")
    assert_same(run, lammps.reference(system, kinds[kind]), ROUNDING)


@pytest.mark.parametrize("more", ["fix 1 all nve\nfix b all balance 5 1.0 shift x 10 1.02\n", "fix 1 all nve\n"])
def test_trajectories_through_the_buffers_of_a_device(lammps, repulsive_model, more):
    """Ranks outgrow their buffers at different steps."""
    system = slab() if "balance" in more else random_system(seed=8, spacing=1.3)
    reference = lammps.reference(
        system, repulsive_model, after=DYNAMICS + more.replace("fix b", "# fix b"), run="run 40"
    )
    style = "comm halo device cpu:padded"
    run = halo(lammps, system, repulsive_model, 3, after=DYNAMICS + more, run="run 40", style=style)
    assert "Neighbor list builds = 0" not in run.output
    assert_same_end(run, reference)


def test_further_outputs(lammps, output_model):
    """Parts of a model give energies alone: `auto` recomputes ghosts for a model with more, `halo` says so."""
    ask = "compute f all clebsch/atom features length 8\ndump f all custom 1 f.dump id c_f[*]\n"
    system = random_system()
    assert "ghost expansion" in lammps.evaluate(system, output_model, ranks=2, after=ask).output
    run = lammps.evaluate(system, output_model, ranks=2, style="comm halo", after=ask, check=False)
    assert run.returncode != 0 and "output features is not there when ranks exchange features" in run.output
    energies = "compute e all clebsch/atom atomic_energy\ndump e all custom 1 e.dump id c_e\n"
    run = halo(lammps, system, output_model, 2, after=energies + "dump_modify e format float %.17g\n")
    assert np.abs(run.table("e.dump")["c_e"] - run.columns("c_pe")[:, 0]).max() == 0


def test_a_fault_on_one_rank_ends_all(lammps, model):
    """Two atoms at one place: no rank waits for the one that stops."""
    system = random_system(lengths=(20.0, 8.0, 8.0))
    system.positions[3] = system.positions[5]
    run = lammps.evaluate(system, model, ranks=3, style="comm halo", check=False, timeout=60)
    assert run.returncode != 0 and "expected a finite" in run.output
