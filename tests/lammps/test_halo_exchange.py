"""Plan and exchange of features, with MPI alone: every number to the bit, messages and bytes as the plan says.

Which atoms are nodes is tested without MPI (tests/unit/plugin_halo_nodes_test.cpp)."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from lammps_runs import MPI_ENVIRONMENT, ROOT, several


@pytest.fixture
def exchange():
    """exchange(ranks, seed, atoms, owners, width) -> what each rank says."""
    program = Path(os.environ.get("CLEBSCH_TEST_BINARIES", ROOT / "build/tests/lammps/bin")) / "halo_exchange"
    if not program.exists():
        pytest.skip("built without MPI")

    def run(ranks, *arguments):
        command = [*several(ranks), program, *map(str, arguments)]
        environment = {**os.environ, **MPI_ENVIRONMENT}
        # Nobody may wait for ever.
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = dict(re.findall(r"rank (\d+) (.*)", done.stdout))
        assert len(lines) == ranks, done.stdout
        return [lines[str(rank)] for rank in range(ranks)]

    return run


@pytest.mark.parametrize("ranks, owners", [(1, 1), (2, 2), (2, 1), (3, 3), (4, 4), (4, 2), (8, 8)])
def test_rows_arrive_and_gradients_return(exchange, ranks, owners):
    """Also on ranks without atoms, and where one rank has them all."""
    lines = exchange(ranks, 7, 200, owners, 3)
    counts = [re.fullmatch(r"fine, rows (\d+), remote (\d+)", line) for line in lines]
    assert all(counts), lines
    assert sum(int(count[1]) for count in counts) > 150
    if owners > 1:
        assert all(int(count[2]) > 0 for count in counts[:owners]), lines
    assert all(count[0] == "fine, rows 0, remote 0" for count in counts[owners:]), lines


@pytest.mark.parametrize("atoms", [0, 1, 2])
def test_few_atoms(exchange, atoms):
    assert all(line.startswith("fine") for line in exchange(3, 5, atoms, 3, 4))


def test_an_atom_that_is_no_node(exchange):
    """The owner says so, after all messages: no rank waits."""
    lines = exchange(3, 7, 60, 3, 0)
    refused = [line for line in lines if line.startswith("refused")]
    assert (
        len(refused) == 1
        and "rank 1 has a ghost of local atom 1048576, which is not an atom of the model" in refused[0]
    )
