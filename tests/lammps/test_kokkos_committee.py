"""compute clebsch/committee beside clebsch/kk gives the values of the plain style."""

import numpy as np
import pytest
from kokkos_style import LMP  # noqa: F401, which skips this file without it
from lammps_runs import random_system, usual

from test_committee import VALUES, committee, deviation, files  # noqa: F401, files is a fixture

#: With newton off and several ranks clebsch/kk returns forces by the exchange of features, of one layer as well.
CASES = [(1, "auto", "on"), (1, "ghost", "off"), (2, "auto", "off"), (2, "auto", "on"), (4, "ghost", "on")]


@pytest.mark.parametrize(("ranks", "comm", "newton"), usual(CASES, (1, "auto", "on"), (2, "auto", "off")))
def test_formula(lammps, kokkos, files, ranks, comm, newton):  # noqa: F811
    run = kokkos.evaluate(
        random_system(), files[0], ranks=ranks, style=f"comm {comm}", newton=newton, after=committee(files),
        run="run 0\n" + VALUES,
    )  # fmt: skip
    assert "kokkos_device" in run.output
    expected = deviation(lammps, files)
    assert np.abs(run.table("d.dump")["c_d"] - expected).max() < 1e-10 * max(1, expected.max())
    most, least, mean = (run.values[f"d{k}"] for k in (1, 2, 3))
    assert most == pytest.approx(expected.max()) and least == pytest.approx(expected.min())
    assert mean == pytest.approx(expected.mean()) and least > 0


@pytest.mark.parametrize(("ranks", "newton"), [(1, "on"), (2, "off")])
def test_during_a_run(lammps, kokkos, files, ranks, newton):  # noqa: F811
    """Read at steps between two neighbour lists, too: the list for it is of that step. The trajectory is untouched."""
    motion = "velocity all create 600 3 loop geom\nfix 1 all nve\ntimestep 0.0005\nthermo 5\n"
    plain = lammps.evaluate(random_system(), files[0], after=motion + committee(files), run="run 20")
    run = kokkos.evaluate(
        random_system(), files[0], ranks=ranks, newton=newton, after=motion + committee(files), run="run 20"
    )
    assert np.abs(run.forces() - plain.forces()).max() < 1e-9
    mine, other = run.frames("d.dump"), plain.frames("d.dump")
    assert len(mine) == len(other) == 5
    for one, two in zip(mine, other, strict=True):
        assert np.abs(one["c_d"] - two["c_d"]).max() < 1e-9 * max(1, two["c_d"].max())
    assert np.abs(mine[4]["c_d"] - mine[0]["c_d"]).max() > 0
