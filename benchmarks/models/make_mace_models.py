"""Model files of random MACE models for the GPU tests and benchmarks (test_mace.py, bench_mace.py).

PYTHONPATH=<folder of mace-torch>:src/python python benchmarks/models/make_mace_models.py FOLDER [NAME ...]

Needs CLEBSCH_LIBRARY. Small ones of every kind of radial function and interaction, from the options of
tests/parity/mace_cases.py with more channels (mace-test-agnesi, ...); and those of the benchmark (mace-M, ...). With
names, which are the files' without .pt, only those.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

sys.path.insert(0, str(common.ROOT / "tests/parity"))

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


BENCHMARK = ("mace-S", "mace-M", "mace-M-5el")


def make(name: str, path: Path) -> None:
    """Writes the model file of this name."""
    if name in BENCHMARK:
        export.mace(benchmark_model(name), path, verify=False)
        return
    case = name.removeprefix("mace-test-")
    CASES[f"test-{case}"] = options = {**CASES[case], **TESTED[case]}
    heads = options.get("heads")
    head = None if heads is None else options.get("head", heads[-1])
    export.mace(model_of(f"test-{case}"), path, head=head, elements=options.get("keep"), verify=False)


def main() -> None:
    """Command line."""
    known = [*(f"mace-test-{case}" for case in TESTED), *BENCHMARK]
    if len(sys.argv) < 2:
        sys.exit("usage: make_mace_models.py FOLDER [NAME ...]")
    folder, names = Path(sys.argv[1]), sys.argv[2:] or known
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"unknown: {', '.join(unknown)}; the known names are {', '.join(known)}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{name}.pt"
        make(name, path)
        print(path, path.stat().st_size, "bytes", flush=True)


if __name__ == "__main__":
    main()
