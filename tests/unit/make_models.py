"""Writes the small random model files that the tests share: make_models.py FOLDER NAME ... (default: all of MODELS).

One process makes them all, because importing torch takes longer than a file. Tests in Python get theirs by shared().
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: Name: the script here that makes it, and its options.
MODELS = {
    "plain": ("tiny_model.py",),
    "parity": ("tiny_model.py", "parity=1", "lmax=3", "zbl=1", "dtype=float64"),
    "uniform": ("tiny_model.py", "uniform=1"),
    "outputs": ("tiny_model.py", "outputs=1", "dtype=float64"),
    "outputs_undeclared": ("tiny_model.py", "outputs=2", "dtype=float64"),
    "outputs_misdeclared": ("tiny_model.py", "outputs=3", "dtype=float64"),
    "outputs_of_edges": ("tiny_model.py", "outputs=4", "dtype=float64"),
    "graded": ("tiny_model.py", "grade=1"),
    "graded_by_element": ("tiny_model.py", "grade=2"),
    "allegro": ("tiny_allegro.py",),
    "mace": ("tiny_mace.py",),
    "mace_uniform": ("tiny_mace.py", "uniform=1"),
    # Of the tests in Python.
    "small": ("tiny_model.py", "lmax=1"),
    "three_layers": ("tiny_model.py", "dtype=float64", "layers=3", "lmax=1"),
    "repulsive": ("tiny_model.py", "dtype=float64", "layers=2", "lmax=1", "zbl=1"),
    "small_outputs": ("tiny_model.py", "dtype=float64", "layers=2", "lmax=1", "outputs=1"),
    "small_outputs_undeclared": ("tiny_model.py", "dtype=float64", "layers=2", "lmax=1", "outputs=2"),
    "one_layer": ("tiny_model.py", "layers=1", "lmax=0", "zbl=1"),
    "allegro_double": ("tiny_allegro.py", "dtype=float64"),
}


def shared(folder: Path, script: str, *options: str) -> str:
    """The path of a model file that no test may write to: of the build (CLEBSCH_TEST_MODELS, which ctest sets), else
    made in `folder`."""
    built = os.environ.get("CLEBSCH_TEST_MODELS")
    for name, made_by in MODELS.items():
        if built and made_by == (script, *options):
            return str(Path(built, f"{name}.pt").resolve(strict=True))
    path = Path(folder, "tiny.pt")
    subprocess.run([sys.executable, "-W", "ignore", HERE / script, path, *options], check=True)
    return str(path)


def main() -> None:
    import importlib

    folder, *names = sys.argv[1:]
    for name in names or MODELS:
        script, *options = MODELS[name]
        importlib.import_module(Path(script).stem).write(str(Path(folder, f"{name}.pt")), *options)


if __name__ == "__main__":
    main()
