"""Kernels compiled ahead are those that a run asks for, and what they save: on one GPU.

python test_compile.py RESULT.json [MODEL ...]      model files; default: the shipped water model and the random ones

For each model and choice of options: `clebsch compile` into an empty folder, then a step in a process of its own with
that folder as its cache. Nothing may be compiled there. Then the time from a loaded torch with a CUDA context to the
end of the first step, with a full and with an empty cache. Needs CLEBSCH_LIBRARY and torch alone.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "src/python"))

from clebsch.kernels import compile_file  # noqa: E402
from clebsch.runtime import Model  # noqa: E402

FOLDER = Path(os.environ.get("CLEBSCH_GPU_MODELS", ROOT / ".gpu/models"))
OPTIONS = ({}, {"dtype": "float64"}, {"deterministic": False}, {"radial": "exact"})
REPEATS = 5


def cluster(model: Model, atoms: int = 40):
    """Edges (any order) and types of atoms at random in an open box."""
    random = torch.Generator().manual_seed(1)
    positions = torch.rand(atoms, 3, generator=random, dtype=torch.float64) * 9.0
    vectors = positions[None, :] - positions[:, None]
    distance = vectors.norm(dim=2)
    receivers, senders = torch.nonzero((distance < model.r_max) & (distance > 0), as_tuple=True)
    types = torch.randint(len(model.type_names), (atoms,), generator=random)
    return vectors[receivers, senders].contiguous(), types, receivers, senders


def step(path: str, options: dict) -> None:
    """The child: one step on the GPU; prints the seconds."""
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    model = Model(path, device="cuda", **options)
    loaded = time.perf_counter()
    forces = model.compute(*cluster(model), virial=True)["forces"]
    end = time.perf_counter()
    print(json.dumps({"load_s": loaded - start, "first_s": end - start, "finite": bool(forces.isfinite().all())}))


def run_step(path: Path, options: dict, cache: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--step", str(path), json.dumps(options)],
        env={**os.environ, "CLEBSCH_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-1500:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.exists() else {}


def check(path: Path, options: dict, arch: int) -> dict:
    """Raises AssertionError when the step compiles something."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        made = compile_file(path, [arch], cache=str(cache), **options)
        assert not made.errors, made.errors
        before = files(cache)
        result = run_step(path, options, cache)
        assert result["finite"]
        new = sorted(set(files(cache)) - set(before))
        assert not new, f"the step compiled {new}"
        assert files(cache) == before, "the step wrote kernels again"
        return {"kernels": len(made.kernels), "files": len(before), "compile_s": made.seconds}


def quartiles(values: list[float]) -> tuple[float, float]:
    first, middle, third = statistics.quantiles(values, n=4)
    return middle, (third - first) / 2


def first_steps(path: Path, command: str) -> list[dict]:
    """Records of the time to the end of the first step, with a full cache and with an empty one."""
    times: dict[str, list[float]] = {"warm": [], "cold": []}
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder) / "full"
        run_step(path, {}, full)
        for repeat in range(REPEATS):
            times["warm"].append(run_step(path, {}, full)["first_s"])
            times["cold"].append(run_step(path, {}, Path(folder) / f"empty{repeat}")["first_s"])
    records = []
    for name, values in times.items():
        value, spread = quartiles(values)
        print(f"first step of {path.stem}, {name} cache: {value:.2f} +- {spread:.2f} s (load included)", flush=True)
        records.append(
            {
                "name": f"first_step_{name}_s", "value": value, "unit": "s", "spread": spread, "dtype": "float32",
                "deterministic": True, "error": None, "peer": None, "model": path.stem,
                "machine": torch.cuda.get_device_name(), "torch": torch.__version__,
                "driver": driver(), "commit": os.environ.get("CLEBSCH_COMMIT", ""), "dirty": False,
                "date": time.strftime("%Y-%m-%d"), "command": command,
            }
        )  # fmt: skip
    return records


def driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[0].strip()
    except OSError:
        return "unknown"


def main(out: str, *names: str) -> int:
    paths = [Path(name) for name in names]
    if not paths:
        paths = [
            ROOT / "models/water-nequip.pt",
            *sorted(FOLDER.glob("*.pt")),
            *sorted((ROOT / "models").glob("*-mace.pt")),
        ]
    major, minor = torch.cuda.get_device_capability()
    failed = 0
    for path in paths:
        for options in OPTIONS:
            try:
                found = check(path, options, 10 * major + minor)
                print(f"ok {path.stem} {options}: {found['kernels']} kernels in {found['compile_s']:.1f} s", flush=True)
            except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED {path.stem} {options}: {error}", flush=True)
    timed = next((path for path in paths if path.stem == "nequip-M"), paths[0])
    command = "python3 tests/gpu/test_compile.py compile.json"
    Path(out).write_text(json.dumps(first_steps(timed, command), indent=1) + "\n")
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--step":
        step(sys.argv[2], json.loads(sys.argv[3]))
    else:
        sys.exit(main(*sys.argv[1:]))
