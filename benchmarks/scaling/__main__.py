"""Scaling over ranks on paper: counts from positions, a check of them, and predictions up to 1,024 GPUs.

python3 benchmarks/scaling check [...]    counts of many CPU ranks against LAMMPS's (check.py)
python3 benchmarks/scaling predict [...]  tables and the picture of docs/developers/scaling.md (predict.py)
python3 benchmarks/scaling records [...]  what runs on several GPUs have measured, as records (records.py)
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "md")]

COMMANDS = ("check", "predict", "records")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        raise SystemExit(f"{__doc__}\nexpected one of {', '.join(COMMANDS)}, got {' '.join(sys.argv[1:]) or 'nothing'}")
    sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
