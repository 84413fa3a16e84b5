"""What kernels compiled ahead save: the time to the end of the first step, with a full and with an empty cache.

    python benchmarks/models/first_step.py RECORDS.json [--model MODEL.pt]      with CLEBSCH_LIBRARY, on a GPU

From a loaded torch with a CUDA context to the end of the first step, each in a process of its own; the median of five.
tests/gpu/test_compile.py tests that nothing is compiled with a full cache.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
from model_cases import model_path  # noqa: E402

from test_compile import run_step  # noqa: E402

REPEATS = 5


def first_steps(path: Path) -> list[dict]:
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
        value, spread = common.quartiles(values)
        print(f"first step of {path.stem}, {name} cache: {value:.2f} +- {spread:.2f} s (load included)", flush=True)
        row = {"name": f"first_step_{name}_s", "value": value, "unit": "s", "spread": spread, "dtype": "float32"}
        records.append(row | {"deterministic": True, "error": None, "peer": None, "model": path.stem, **common.about()})
    return records


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="nequip-M", help="a shipped or random model, or a file")
    options = parser.parse_args()
    common.save(options.out, first_steps(model_path(options.model)))


if __name__ == "__main__":
    main()
