"""compute clebsch, compute clebsch/atom, and the timing of a step."""

import re

import numpy as np
import pytest
from lammps_runs import random_system


@pytest.mark.parametrize("ranks", [1, 3])
def test_outputs(lammps, model, ranks):
    """A named output per atom and summed over a group; eV whatever the units of LAMMPS."""
    computes = (
        "group half id 1:30\n"
        "compute total all clebsch atomic_energy\ncompute part half clebsch atomic_energy\n"
        "compute each all clebsch/atom atomic_energy\ncompute some half clebsch/atom atomic_energy\n"
        "dump extra all custom 1 extra.dump id c_each c_some\ndump_modify extra sort id format float %.17g\n"
    )
    values = "".join(f'print "RESULT {key} = $(c_{key}:%.16g)"\n' for key in ("total", "part"))
    run = lammps.evaluate(random_system(), model, ranks=ranks, after=computes, run="run 0\n" + values)
    table, energies = run.table("extra.dump"), run.columns("c_pe")[:, 0]
    assert np.abs(table["c_each"] - energies).max() < 1e-12
    assert np.all(table["c_some"][30:] == 0) and np.array_equal(table["c_some"][:30], table["c_each"][:30])
    assert run.values["total"] == pytest.approx(run.values["pe"], abs=1e-10)
    assert run.values["part"] == pytest.approx(energies[:30].sum(), abs=1e-10)


def test_outputs_during_a_run(lammps, model):
    """The computes follow the trajectory, and a pair style given anew."""
    computes = (
        "compute total all clebsch atomic_energy\nvariable gap equal abs(c_total-pe)\n"
        "velocity all create 300 3 loop geom\nfix 1 all nve\ntimestep 0.0002\n"
        "fix gap all ave/time 1 10 10 v_gap mode scalar\n"
    )
    again = f"run 10\npair_style clebsch\npair_coeff * * {model} O H\nrun 10\n"
    value = 'print "RESULT gap = $(f_gap:%.16g)"\n'
    run = lammps.evaluate(random_system(), model, ranks=2, after=computes, run=again + value)
    assert run.values["gap"] < 1e-9


def test_with_lost_style(lammps, model):
    """Without a pair style clebsch the compute says what it needs."""
    after = "compute total all clebsch atomic_energy\nthermo_style custom step c_total\n"
    run = lammps.evaluate(
        random_system(), model, pair="pair_style zero 3.0\npair_coeff * *\n", after=after, check=False
    )
    assert "expected a pair style clebsch, got pair_style zero" in run.output


CLEBSCH = "pair_style clebsch\npair_coeff * * {model} O H\n"
ZERO = "pair_style zero 3.0\npair_coeff * *\n"
OVERLAY = "pair_style hybrid/overlay zero 3.0 clebsch\npair_coeff * * zero\npair_coeff * * clebsch {model} O H\n"


@pytest.mark.parametrize("compute", ["clebsch atomic_energy", "clebsch timing", "clebsch/atom atomic_energy"])
@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (ZERO, "expected a pair style clebsch, got pair_style zero"),
        ("pair_style none\n", "expected a pair style clebsch, got none"),
        # Often at the address of the style that it replaces.
        (ZERO + CLEBSCH, "expected a run since pair_style clebsch and pair_coeff were given, got none"),
        (OVERLAY, "expected a run since pair_style clebsch and pair_coeff were given, got none"),
        ("pair_style clebsch dtype float32\n", "expected a run since pair_style clebsch and pair_coeff were given"),
        ("pair_coeff * * {model} H O\n", "expected a run since pair_style clebsch and pair_coeff were given"),
    ],
)
@pytest.mark.parametrize("first", [CLEBSCH, OVERLAY], ids=["alone", "overlay"])
def test_with_replaced_style(lammps, model, first, replacement, message, compute):
    """A compute evaluated after its pair style was replaced, before a run with another, says what to do."""
    if first == OVERLAY and not replacement.startswith(("pair_style zero", "pair_style none")):
        pytest.skip("other commands replace a style within hybrid")
    style, name = compute.split()
    value = "$(c_x[1])" if style == "clebsch/atom" or name == "timing" else "$(c_x)"
    text = f"{replacement.format(model=model)}print 'value {value}'\n"
    after = f"compute x all {style} {name}\n"
    # Freed memory is overwritten, so that whoever reads it comes to grief.
    run = lammps.evaluate(
        random_system(), model, pair=first.format(model=model), after=after, run="run 0\n" + text, check=False,
        env={"MALLOC_PERTURB_": "85"},
    )  # fmt: skip
    assert run.returncode == 1 and message in " ".join(run.output.split()), run.output


def test_after_a_run_with_the_new_style(lammps, model):
    """The computes follow from style to style, the energy of which is the same."""
    value = "variable gap{k} equal abs(c_total-pe)\nrun 0\n" + 'print "RESULT gap{k} = $(v_gap{k}:%.16g)"\n'
    text = "".join(
        style.format(model=model) + value.format(k=k) for k, style in enumerate([ZERO + CLEBSCH, OVERLAY, CLEBSCH])
    )
    after = "compute total all clebsch atomic_energy\nrun 0\n"
    run = lammps.evaluate(random_system(), model, after=after, run=text, env={"MALLOC_PERTURB_": "85"})
    assert [run.values[f"gap{k}"] < 1e-9 for k in range(3)] == [True] * 3


def test_wrong_length(lammps, model):
    """An output of another width is refused with both numbers."""
    after = "compute each all clebsch/atom atomic_energy length 3\ndump bad all custom 1 bad.dump id c_each[2]\n"
    run = lammps.evaluate(random_system(), model, after=after, check=False)
    assert run.returncode != 0
    assert "output atomic_energy has 1 values an atom, got length 3" in run.output


@pytest.mark.parametrize("ranks", [1, 2])
def test_timing(lammps, model, ranks):
    """`timing yes` splits a step after each run; compute clebsch timing gives the same as a vector."""
    after = "compute time all clebsch timing\nfix 1 all nve\ntimestep 0.0001\n"
    value = "".join(f'print "RESULT time{k} = $(c_time[{k}]:%.16g)"\n' for k in (1, 2, 3))
    style = "timing yes"
    run = lammps.evaluate(random_system(), model, ranks=ranks, style=style, after=after, run="run 20\n" + value)
    found = re.search(
        r"ms per step \(mean of ranks, (\d+) steps\): graph ([\d.e+-]+), model ([\d.e+-]+), forces ([\d.e+-]+), rest",
        run.output,
    )
    assert found and int(found.group(1)) == 20
    assert all(float(found.group(k)) > 0 for k in (2, 3))
