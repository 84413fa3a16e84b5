"""compute clebsch, compute clebsch/atom, and the timing of a step."""

import re

import numpy as np
import pytest
from lammps_runs import random_system, usual


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


GONE = "expected a pair style clebsch, got "
ANEW = "expected a run since pair_style clebsch and pair_coeff were given, got none"
REPLACEMENTS = [
    (CLEBSCH, ZERO, GONE + "pair_style zero"),
    (CLEBSCH, "pair_style none\n", GONE + "none"),
    (CLEBSCH, ZERO + CLEBSCH, ANEW),  # often at the address of the style that it replaces
    (CLEBSCH, OVERLAY, ANEW),
    (CLEBSCH, "pair_style clebsch dtype float32\n", ANEW),
    (CLEBSCH, "pair_coeff * * {model} H O\n", ANEW),
    (OVERLAY, ZERO, GONE + "pair_style zero"),
    (OVERLAY, ZERO + CLEBSCH, ANEW),
    (OVERLAY, OVERLAY, ANEW),
]


COMPUTES = ["clebsch atomic_energy", "clebsch timing", "clebsch/atom atomic_energy"]
NUMBERS = range(len(REPLACEMENTS))


@pytest.mark.parametrize(
    ("number", "compute"),
    usual([(number, compute) for number in NUMBERS for compute in COMPUTES], *[(k, COMPUTES[k % 3]) for k in NUMBERS]),
)
def test_with_replaced_style(lammps, model, number, compute):
    """A compute evaluated after its pair style was replaced, before a run with another, says what to do."""
    first, replacement, message = REPLACEMENTS[number]
    style, name = compute.split()
    use = "print '$(c_x[1])'" if name == "timing" else "print '$(c_x)'"
    if style == "clebsch/atom":
        use = "write_dump all custom x.dump id c_x"
    text = f"{replacement.format(model=model)}{use}\n"
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


OUTPUTS = (
    "compute energy all clebsch/atom atomic_energy\ncompute each all clebsch/atom features length 8\n"
    "compute sum all clebsch features length 8\ncompute top all clebsch features length 8 max\n"
    "group two id 1:2\ncompute pair two clebsch features length 8 max\ncompute high two clebsch atomic_energy max\n"
    "dump extra all custom 1 extra.dump id c_energy c_each[*]\ndump_modify extra sort id format float %.17g\n"
)
SYSTEM = "compute moment all clebsch moment length 8\ncompute square all clebsch square\n"


def values_of(compute, length):
    return "".join(f'print "RESULT {compute}{k} = $(c_{compute}[{k}]:%.16g)"\n' for k in range(1, length + 1))


# 8 atoms: as many as an output of the system has values.
@pytest.mark.parametrize(("atoms", "ranks", "style"), [(8, 1, ""), (1, 1, ""), (30, 1, ""), (8, 2, ""), (1, 2, ""),
                                                       (8, 1, "comm ghost"), (8, 1, "device cpu:padded")])  # fmt: skip
def test_kinds_of_outputs(lammps, output_model, atoms, ranks, style):
    """Per-atom outputs are each atom's and summed over atoms, whatever their number and that of ranks; those of the
    system are the model's own."""
    whole = ranks == 1 and not style
    after = OUTPUTS + (SYSTEM if whole else "")
    run = "run 0\n" + values_of("sum", 8) + values_of("top", 8) + values_of("pair", 8)
    run += 'print "RESULT high = $(c_high:%.16g)"\n'
    if whole:
        run += values_of("moment", 8) + 'print "RESULT square = $(c_square:%.16g)"\n'
    system = random_system(atoms, lengths=(6.0, 6.0, 6.0))
    done = lammps.evaluate(system, output_model, ranks=ranks, style=style, after=after, run=run)
    energy, each = done.columns("c_energy", "extra.dump")[:, 0], done.columns("c_each", "extra.dump")
    assert each.shape == (atoms, 8) and (atoms == 1 or np.abs(each).max() > 1e-3)
    result = np.array([done.values[f"sum{k}"] for k in range(1, 9)])
    assert np.abs(result - each.sum(0)).max() < 1e-10
    for name, rows in (("top", each), ("pair", each[:2])):
        assert [done.values[f"{name}{k}"] for k in range(1, 9)] == pytest.approx(rows.max(0), rel=1e-14, abs=1e-300)
    assert done.values["high"] == pytest.approx(energy[:2].max(), rel=1e-14)
    if whole:
        moment = np.array([done.values[f"moment{k}"] for k in range(1, 9)])
        assert np.abs(moment - energy @ each).max() < 1e-10
        assert done.values["square"] == pytest.approx(energy @ energy, rel=1e-12)
    if ranks > 1 or style:
        alone = lammps.evaluate(system, output_model, after=OUTPUTS)
        assert np.abs(each - alone.columns("c_each", "extra.dump")).max() < 1e-10


@pytest.mark.parametrize(
    ("ranks", "style", "compute", "message"),
    [
        (2, "", "all clebsch moment length 8", "expected one rank and comm auto, got 2 rank(s) with ghosts"),
        (1, "comm ghost", "all clebsch square", "expected one rank and comm auto, got 1 rank(s) with ghosts"),
        (1, "device cpu:padded", "all clebsch square", "output 'square' is of the whole system and made from all rows"),
        (1, "", "half clebsch square", "output square is of the whole system: expected group all, got half"),
        (1, "", "all clebsch/atom moment length 8", "expected a per-atom output, got moment, which is of the whole"),
        (1, "", "all clebsch moment length 3", "output moment has 8 values, got length 3"),
        (1, "", "all clebsch features", "output features has 8 values an atom, got length 1"),
        (1, "", "all clebsch square max", "expected a per-atom output before max, got square, which is of the whole"),
        (1, "", "all clebsch features length 8 min", "got 4 arguments, of them 'min'"),
        (
            1,
            "",
            "all clebsch/atom features max",
            "and optionally length N, got 2 arguments, of them 'max'",
        ),
        (1, "", "all clebsch timing max", "expected nothing behind timing, got 'max'"),
    ],
)
def test_what_outputs_of_the_system_cannot_be(lammps, output_model, ranks, style, compute, message):
    """Values that would be wrong are refused, with the reason."""
    name = "c_x" + ("[1]" if "length" in compute else "")
    use = f"dump x all custom 1 x.dump id {name}\n" if "/atom" in compute else f"thermo_style custom step {name}\n"
    after = f"group half id 1:4\ncompute x {compute}\n"
    run = lammps.evaluate(
        random_system(8, lengths=(6.0, 6.0, 6.0)), output_model, ranks=ranks, style=style, after=after,
        run=use + "run 0\n", check=False,
    )  # fmt: skip
    assert run.returncode != 0 and message in " ".join(run.output.split()), run.output
