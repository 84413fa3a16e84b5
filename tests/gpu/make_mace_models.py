"""Model files of random MACE models for the GPU tests and benchmarks (test_mace.py, bench_mace.py).

PYTHONPATH=<folder of mace-torch>:src/python python tests/gpu/make_mace_models.py FOLDER      with CLEBSCH_LIBRARY

Small ones of every kind of radial function and interaction, from the options of tests/parity/mace_cases.py with more
channels; and those of the benchmark.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/parity"), str(ROOT / "tests/bench"), str(ROOT / "src/python")]

from bench_mace import model_of as benchmark_model  # noqa: E402

from clebsch import export  # noqa: E402
from mace_cases import CASES, model_of  # noqa: E402

#: Case -> what differs from it here.
TESTED = {
    "residual": {"hidden": "32x0e+32x1o", "max_ell": 3},
    "agnostic-first": {},
    "density-first": {"hidden": "32x0e+32x1o"},
    "density-residual": {"hidden": "16x0e+16x1o"},
    "mpa": {"hidden": "32x0e+32x1o", "max_ell": 3},
    "agnesi": {"hidden": "16x0e+16x1o"},
    "soft": {},
    "zbl": {"elements": [14, 29]},
    "gaussian": {},
    "late-cutoff": {},
    "nonlinear": {"hidden": "16x0e+16x1o"},
    "heads-three": {},
    "five-elements": {"hidden": "16x0e+16x1o", "distance_transform": "Agnesi"},
    "so3": {},
    "three-layers": {},
    "correlation-4-vectors": {},
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, changes in TESTED.items():
        CASES[f"test-{name}"] = options = {**CASES[name], **changes}
        heads = options.get("heads")
        head = None if heads is None else options.get("head", heads[-1])
        path = folder / f"mace-test-{name}.pt"
        export.mace(model_of(f"test-{name}"), path, head=head, elements=options.get("keep"), verify=False)
        print(path, path.stat().st_size, "bytes", flush=True)
    for name in ("mace-S", "mace-M", "mace-M-5el"):
        path = folder / f"{name}.pt"
        export.mace(benchmark_model(name), path, verify=False)
        print(path, path.stat().st_size, "bytes", flush=True)


if __name__ == "__main__":
    main()
