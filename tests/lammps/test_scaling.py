"""Counts of benchmarks/scaling against what LAMMPS and the plugin say on eight ranks: equal, every one."""

import argparse
import os
import sys

import numpy as np
import pytest
from lammps_runs import ROOT

sys.path.insert(0, str(ROOT / "benchmarks/scaling"))

import check  # noqa: E402
from counts import Box, all_counts, processor_grid  # noqa: E402


@pytest.mark.parametrize("title", ["192 atoms of water", "576 atoms of water"])
def test_eight_ranks(lmp, plugin, model, title):
    """Domains thinner than the list's reach, and larger ones, of two types with cutoffs of their own."""
    mpiexec = os.environ.get("CLEBSCH_MPIEXEC", str(ROOT / ".venv/bin/mpiexec"))
    args = argparse.Namespace(lmp=lmp, plugin=plugin, mpiexec=mpiexec, limit=600)
    facts, names, box = check.read_model(model), ["O", "H"], check.water(check.BOXES[title])
    output = check.run(box, model, names, 8, "halo", args)
    rows = check.compare(output, box, 8, facts.reach(names, check.SKIN), facts.widths, facts.number_bytes)
    assert {"grid", "remote nodes", "messages", "bytes", "ghosts"} <= {what for what, *_ in rows}
    assert [(what, counted) for what, counted, _ in rows] == [(what, said) for what, _, said in rows]


def test_counts_by_hand():
    """Eight atoms on a line, 2 A apart in a box of 16 A, two ranks along it, reach 2.5 A: each wall has an atom of the
    other side within reach, and so has the periodic face."""
    positions = np.stack([np.arange(8) * 2.0 + 1.0, np.full(8, 1.0), np.full(8, 1.0)], axis=1)
    counts = all_counts(Box(np.array([16.0, 9.0, 9.0]), positions, np.ones(8, int)), 2, np.array([[2.5]]))
    assert [(c.owned, c.receives, c.sends) for c in counts] == [(4, {1: 2}, {1: 2}), (4, {0: 2}, {0: 2})]
    assert counts[0].messages(3) == 6 and counts[0].bytes([5, 7], 4) == 4 * 12 * 4


def test_grids_of_ranks():
    """As LAMMPS documents `processors * * *`: least surface; of several the fewest ranks along x."""
    cube = np.ones(3)
    for grid in ((1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 4)):
        assert processor_grid(int(np.prod(grid)), cube) == grid
    assert processor_grid(8, np.array([1, 1, 3])) == (1, 2, 4) and processor_grid(1024, cube) == (8, 8, 16)


def test_a_constant_that_is_not_measured_stops_the_model():
    import model as scaling

    table = {"x_us": {"value": None, "record": "x_record", "until_then": 3, "guessed": "", "unit": "us", "says": ""}}
    with pytest.raises(SystemExit, match="expected the records x_record"):
        scaling.Constants(table, {}, provisional=False)
    assert scaling.Constants(table, {}, provisional=True).x_us == 3
    row = {"value": 5.0, "machine": "m", "date": "d", "commit": "c"}
    known = scaling.Constants(table, {"x_record": row}, provisional=False)
    assert known.x_us == 5.0 and not known.missing
