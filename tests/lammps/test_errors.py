"""Every refusal names the style, what was expected, what came, and what to do."""

from pathlib import Path

import numpy as np
import pytest
from lammps_runs import System, random_system, refused, usual

KEYWORDS = {
    "speed 9": [
        "expected a keyword out of dtype, comm, transport, deterministic, radial, device, graph, timing, energy, "
        "got 'speed'"
    ],
    "dtype": ["keyword dtype expected a value, got none"],
    "dtype float16": ["keyword dtype expected float32 or float64, got 'float16'"],
    "comm none": ["keyword comm expected ghost, halo, gather or auto, got 'none'"],
    "device tpu": ["keyword device expected auto, cpu or cuda, got 'tpu'"],
    "deterministic 1": ["keyword deterministic expected yes or no, got '1'"],
    "radial linear": ["keyword radial expected table or exact, got 'linear'"],
    "energy free": ["keyword energy expected total or interaction, got 'free'"],
    "graph maybe": ["keyword graph expected yes or no, got 'maybe'"],
    "model.pt": ["got 'model.pt' (the model file belongs to pair_coeff)"],
}


@pytest.mark.parametrize("style", KEYWORDS)
def test_keywords(lammps, model, style):
    refused(lammps.evaluate(random_system(atoms=6), model, style=style, check=False), *KEYWORDS[style])


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
@pytest.mark.parametrize("ranks", [1, 2])
def test_no_gpu(lammps, model, ranks):
    style = "device cuda"
    refused(lammps.evaluate(random_system(atoms=6), model, style=style, ranks=ranks, check=False), "device cpu")


COEFFICIENTS = {
    "* * {model}": ["expected 2 type names (or NULL) after the model file, one for each atom type, got 0"],
    "* * {model} O H H": ["expected 2 type names", "got 3"],
    "* * {model} NULL NULL": ["expected at least one type name, got NULL alone"],
    "* * {model} O Xx": ["Xx"],
    "* * missing.pt O H": ["expected a readable model file, got 'missing.pt'", "LAMMPS_POTENTIALS", "pair_coeff"],
    "* * in.test O H": ["in.test"],
}


@pytest.mark.parametrize("coeff", COEFFICIENTS)
def test_pair_coeff(lammps, model, coeff, ranks=1):
    pair = f"pair_style clebsch\npair_coeff {coeff.format(model=model)}\n"
    run = lammps.evaluate(random_system(atoms=6), model, pair=pair, ranks=ranks, check=False)
    refused(run, *COEFFICIENTS[coeff])


@pytest.mark.parametrize("coeff", usual(COEFFICIENTS, "* * {model} O Xx", "* * missing.pt O H"))
def test_pair_coeff_on_two_ranks(lammps, model, coeff):
    """What is wrong with the words, the model and the file: all stop, none hangs."""
    test_pair_coeff(lammps, model, coeff, ranks=2)


def test_one_pair_coeff(lammps, model):
    """LAMMPS itself sees to `* *`."""
    pair = f"pair_style clebsch\npair_coeff 1 1 {model} O H\n"
    run = lammps.evaluate(random_system(atoms=6), model, pair=pair, check=False)
    assert run.returncode != 0 and "Pair_coeff must start with * * for pair style clebsch" in run.output


def test_no_pair_coeff(lammps, model):
    run = lammps.evaluate(random_system(atoms=6), model, pair="pair_style clebsch\n", check=False)
    assert run.returncode != 0 and "All pair coeffs are not set" in run.output


def test_other_options_need_pair_coeff_again(lammps, model):
    """The model is loaded by pair_coeff: options of it must not seem to act before."""
    first = f"pair_style clebsch dtype float32\npair_coeff * * {model} O H\nrun 0\n"
    other = first + "pair_style clebsch dtype float64\n"
    run = lammps.evaluate(random_system(atoms=6), model, pair=other, check=False)
    assert run.returncode != 0 and "All pair coeffs are not set" in run.output
    same = first + "pair_style clebsch dtype float32 timing yes\n"
    lammps.evaluate(random_system(atoms=6), model, pair=same)


def test_exclusions_are_noticed(lammps, model):
    """Once, and only those between atoms of the model."""
    system = random_system(type_names=("O", "H", "Ar"))
    system.types[::5] = 3
    pair = (
        f"pair_style hybrid clebsch lj/cut 4.0\npair_coeff * * clebsch {model} O H NULL\n"
        "pair_coeff * 3 lj/cut 0.01 2.0\ngroup wall type 3\ngroup some id 2 3 4\nneigh_modify exclude "
    )
    for exclude, times in {"type 1 2": 1, "group some some": 1, "group some wall": 0, "type 1 3": 0}.items():
        run = lammps.evaluate(system, model, pair=f"{pair}{exclude}\n", ranks=2, run="run 0\nrun 0")
        said = " ".join(run.output.split()).count("neigh_modify exclude removes neighbors from the model")
        assert said == times, (exclude, run.output)


def test_null_alone(lammps, model):
    """NULL needs hybrid: without it a type would be left without a potential."""
    run = lammps.evaluate(random_system(atoms=6), model, names="O NULL", check=False)
    assert run.returncode != 0 and "All pair coeffs are not set" in run.output


@pytest.mark.parametrize("units", ["lj", "si", "electron"])
def test_units(lammps, model, units):
    system = random_system(atoms=6)
    text = lammps.header(system, units=units) + f"pair_style clebsch\npair_coeff * * {model} O H\nrun 0\n"
    run = lammps(text, files={"system.data": system}, check=False)
    refused(run, f"expected units metal or real, got {units}")


@pytest.mark.parametrize("option", ["shift", "tail"])
def test_pair_modify(lammps, model, option):
    after = f"pair_modify {option} yes\n"
    run = lammps.evaluate(random_system(atoms=6), model, after=after, check=False)
    refused(run, f"expected pair_modify shift no and tail no, got {option} yes")


@pytest.mark.parametrize("ranks", [1, 2])
def test_tiled_small_box(lammps, model, ranks):
    system = random_system(atoms=5, lengths=(3.1, 3.3, 2.9), seed=6)
    run = lammps.evaluate(system, model, ranks=ranks, before="comm_style tiled", check=False)
    refused(run, "expected a box of at least", "got 2.9", "use `comm_style brick`")


class Flat(System):
    """Its box begins below z = 0, as LAMMPS wants it in two dimensions."""

    def write(self, path):
        super().write(path)
        path.write_text(path.read_text().replace("0.0 1 zlo zhi", "-0.5 0.5 zlo zhi"))


def test_tiled_in_two_dimensions(lammps, model):
    """Only x and y are periodic there, however thin the box is along z."""
    positions = np.array([[1.0, 1, 0], [1.9, 1.2, 0], [4, 7, 0], [8, 5, 0], [8.3, 5.9, 0]])
    flat = Flat(np.diag([9.0, 8.0, 1.0]), positions, np.array([1, 2, 1, 1, 2]))
    thick = System(np.diag([9.0, 8.0, 60.0]), positions, flat.types)
    reference = lammps.evaluate(thick, model)
    enforce = "neighbor 0.3 bin\nfix 2d all enforce2d\n"
    run = lammps.evaluate(flat, model, ranks=2, before="dimension 2\ncomm_style tiled", after=enforce)
    assert run.values["pe"] == pytest.approx(reference.values["pe"], rel=1e-12)
    assert np.abs((run.forces() - reference.forces())[:, :2]).max() < 1e-10


def test_multi_neighbours(lammps, model):
    """Ghosts with rows of their own need all neighbours in these."""
    multi = dict(style="comm ghost", after="neighbor 0.5 multi\n", check=False)
    run = lammps.evaluate(random_system(atoms=6), model, ranks=2, **multi)
    refused(run, "expected neighbor style bin or nsq where ghosts are nodes (comm ghost), got multi")


def test_overlapping_atoms(lammps, model):
    """Two atoms at one place: stops with step and atom, and names the pair."""
    system = random_system(atoms=8)
    system.positions[3] = system.positions[5]
    run = lammps.evaluate(system, model, check=False)
    refused(
        run, "expected a finite energy", "for atom ID", "at step 0", "where atom IDs 4 and 6 are the closest pair, 0 A"
    )


def test_positions_that_are_no_numbers(lammps, model):
    """Between neighbour list builds LAMMPS does not look; the style does."""
    after = "velocity all set 1e308 0 0\nfix 1 all nve\ntimestep 10\nneigh_modify delay 100 every 100 check no\n"
    run = lammps.evaluate(random_system(atoms=8), model, after=after, run="run 2", check=False)
    refused(run, "expected finite coordinates", "for atom ID", "at step 1")


def test_computes(lammps, model):
    for after, text in (
        ("compute c all clebsch\n", "Compute clebsch: expected NAME and optionally length N, got 0 arguments"),
        ("compute c all clebsch/atom a length 0\n", "expected a length of at least 1, got 0"),
        ("compute c all clebsch nothing\nthermo_style custom step c_c\n", "expected an output out of atomic_energy"),
    ):
        run = lammps.evaluate(random_system(atoms=6), model, after=after, check=False)
        assert run.returncode != 0 and text in " ".join(run.output.split()), run.output
