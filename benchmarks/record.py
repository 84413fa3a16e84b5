"""Puts a benchmark's records into tests/gpu/results/summary.json.

    python tests/bench/record.py tests/bench/results/cpu_nequip.json

Takes the records that tests/bench/targets.json names and replaces those of the same names; a benchmark's other records
stay in its own file. `scripts/report --write` then renders docs/performance.md.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = ROOT / "tests/gpu/results/summary.json"


def main(source: str) -> None:
    """Merges the records of the file `source`."""
    targets = {t["name"] for t in json.loads((ROOT / "tests/bench/targets.json").read_text())["targets"]}
    new = {r["name"]: r for r in json.loads(Path(source).read_text()) if r["name"] in targets}
    kept = [r for r in json.loads(SUMMARY.read_text()) if r["name"] not in new]
    SUMMARY.write_text(json.dumps(kept + list(new.values()), indent=1) + "\n")
    for record in new.values():
        print(f"{record['name']} {record['value']:.4g} {record['unit']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
