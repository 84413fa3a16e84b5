"""MACE-M's random weights in an older release's model file: its package cannot read a file of today's.

PYTHONPATH=OLD/python:<folder of mace-torch> python3 benchmarks/ase/old_model.py OUT.pt     with its CLEBSCH_LIBRARY
"""

import sys
from pathlib import Path

import mace  # noqa: F401 - before e3nn

from clebsch import export  # the older release's: before the benchmarks put this checkout's into the path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
from bench_mace import model_of  # noqa: E402

export.mace(model_of("mace-M"), Path(sys.argv[1]), verify=False)
print(f"{sys.argv[1]}: made by {export.__file__}")
