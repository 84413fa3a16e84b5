"""Features exchanged between layers on a GPU: two halves of a system on one GPU against the whole of it.

The halves step in two threads of the program exchange_steps, which goes through the host between two layers. With
recorded steps, each part of a step (2 L - 1 for L layers) is a graph of its own, and a half that outgrows its buffers
records again while the other one replays.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from model_cases import ROOT, lacks, model_path, needs

#: Atoms, and the spacing of their grid in Angstrom.
SYSTEMS = {
    "small-nequip": (48, 1.7),
    "small-mace": (48, 1.7),
    "small-allegro": (48, 1.7),
    "carbon-mace": (216, 1.8),
    "water-nequip": (216, 2.1),
    "nequip-M": (216, 2.1),
    "mace-M": (216, 2.1),
}
LIMITS = {"float64": 1e-12, "float32": 2e-6}
KEYS = ("energy", "atomic_energy", "forces", "virial", "atom_virial", "centroid_virial")


def program() -> Path:
    return Path(os.environ.get("CLEBSCH_EXCHANGE_STEPS") or ROOT / "build/tests/gpu/bin/exchange_steps")


def steps(model: str, device: str, dtype: str, graph: bool) -> list[dict]:
    """What the program says of each step."""
    atoms, spacing = SYSTEMS[model]
    folders = [str(Path(os.environ.get("CLEBSCH_LIBRARY", ROOT / "build/lib/libclebsch.so")).parent)]
    folders += [str(Path(torch.__file__).parent / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders))}
    environment["CLEBSCH_CUDA_GRAPH"] = "1" if graph else "0"
    command = [program(), model_path(model), device, dtype, str(atoms), str(spacing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("graph", [True, False], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", list(SYSTEMS))
def test_two_halves(model, dtype, graph, device, within):
    if not program().exists():
        lacks("no program exchange_steps (CLEBSCH_EXCHANGE_STEPS)")
    needs(model)
    if device == "cpu" and model in ("nequip-M", "mace-M"):
        pytest.skip("rehearsed on the CPU with small models alone")
    found = steps(model, "cpu:padded" if device == "cpu" else device, dtype, graph)
    assert [line["steps"] for line in found] == ["graphs"] * 5 + ["list"] * 6 + ["another list"] * 6
    for line in found:
        assert not any("not recorded" in text for text in line["messages"]), line
    records = graph and device != "cpu"
    # The first step of each kind is done part by part; in the second every part is recorded, then replayed.
    for name in ("graphs", "list", "another list"):
        mine = [line for line in found if line["steps"] == name]
        assert all(line["replayed"] == [records, records] for line in mine[1:]), mine
    captures = [line["captures"] for line in found]
    if records:
        parts = captures[1][0]
        assert captures[:5] == [[0, 0]] + [[parts, parts]] * 4
        assert captures[10] == [2 * parts, 2 * parts], "edges come from elsewhere"
        assert captures[16] == [3 * parts, 2 * parts], "the first half has outgrown its buffers"
        assert found[16]["rows"][0] > found[10]["rows"][0] and found[16]["rows"][1] == found[10]["rows"][1]
    else:
        assert captures[-1] == [0, 0]
    largest = {key: max(line[key] for line in found if key in line) for key in KEYS}
    within(largest, {key: LIMITS[dtype] * (10 if "virial" in key else 1) for key in KEYS})
