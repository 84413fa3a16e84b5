"""Features between ranks on GPUs: the kernels, and every transport between two processes, to the bit.

CLEBSCH_TRANSPORTS names tests/lammps/transports.cpp as it is built for GPUs (build/tests/lammps/bin/gpu_transports;
benchmarks/device/pack_transports.sh packs it with its MPI) and CLEBSCH_MPIRUN what starts ranks of it. Two ranks on one
GPU exchange through pinned memory; NCCL needs two GPUs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from exchange_cases import WIDTHS, added, copied

PROGRAM, MPIRUN = os.environ.get("CLEBSCH_TRANSPORTS", ""), os.environ.get("CLEBSCH_MPIRUN", "")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=lambda t: str(t)[6:])
def test_rows(dtype, width) -> None:
    assert all(copied(dtype, width, "cuda").values())
    assert added(dtype, width, "cuda")


def test_many_rows() -> None:
    """More blocks than a GPU runs at once."""
    assert all(copied(torch.float32, 64, "cuda", rows=200_000).values())


def test_other_tensors_are_refused() -> None:
    rows, none = torch.zeros(3, 2, device="cuda"), torch.empty(0, dtype=torch.int32, device="cuda")
    call = torch.classes.clebsch.Model.copy_rows
    with pytest.raises(RuntimeError, match="expected tensors on a GPU, got cpu"):
        call(rows.cpu(), none, rows, none, 3)
    with pytest.raises(RuntimeError, match="to: expected dtype Float, got Double"):
        call(rows, none, rows.double(), none, 3)
    with pytest.raises(RuntimeError, match="from_rows: expected 3 rows, got 1"):
        call(rows, none.new_zeros(1), rows, none, 3)


@pytest.mark.parametrize("way", ["halo", "gather"])
@pytest.mark.parametrize("transport, name", [("pinned", "pinned memory and MPI"), ("auto", None), ("nccl", "NCCL")])
def test_two_ranks(transport, name, way) -> None:
    if not Path(PROGRAM).is_file() or not Path(MPIRUN).is_file():
        pytest.skip("CLEBSCH_TRANSPORTS and CLEBSCH_MPIRUN name no program for two ranks")
    if transport == "nccl" and torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a GPU a rank, there is one GPU")
    command = [MPIRUN, "-n", "2", PROGRAM, "check", "7", "3000", "2", "61", way, transport]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    text = done.stdout + done.stderr
    assert done.returncode == 0 and text.count(f"fine through {name or ''}") == 2, text
    if transport == "auto" and torch.cuda.device_count() < 2:
        assert text.count("ranks 0 and 1 share GPU-") == 2, text
