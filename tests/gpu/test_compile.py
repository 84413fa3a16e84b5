"""Kernels compiled ahead by `clebsch compile` are those that a run asks for.

`clebsch compile` into an empty folder, then a step in a process of its own with that folder as its cache: nothing may
be compiled there. benchmarks/models/first_step.py times what this saves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_cases import model_path, needs

from clebsch.errors import ClebschError
from clebsch.kernels import compile_file
from clebsch.runtime import Model

MODELS = ("water-nequip", "nequip-S", "nequip-M", "carbon-mace", "mace-M", "mace-M-5el", "allegro-l2")
OPTIONS = ({}, {"dtype": "float64"}, {"deterministic": False}, {"radial": "exact"})
#: Their radial functions run on a GPU from tables alone.
TABLES_ALONE = ("mace-M-5el", "allegro-l2")
STEP = Path(__file__).with_name("one_step.py")


def run_step(path: Path, options: dict, cache: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", STEP, path, json.dumps(options)],
        env={**os.environ, "CLEBSCH_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr.strip()[-1500:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.exists() else {}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(str(v) for v in o.values()) or "default")
@pytest.mark.parametrize("model", MODELS)
def test_a_run_compiles_nothing(model, options, tmp_path, record_property):
    path, cache = model_path(needs(model)), tmp_path / "cache"
    if options.get("radial") == "exact" and model in TABLES_ALONE:
        with pytest.raises(ClebschError, match="from tables alone"):
            Model(path, device="cuda", **options)
        return
    major, minor = torch.cuda.get_device_capability()
    made = compile_file(path, [10 * major + minor], cache=str(cache), **options)
    assert not made.errors
    record_property("kernels", len(made.kernels))
    record_property("compile, s", made.seconds)
    before = files(cache)
    assert run_step(path, options, cache)["finite"]
    assert not set(files(cache)) - set(before), "the step compiled kernels"
    assert files(cache) == before, "the step wrote kernels again"
