"""Puts the records of benchmarks into results/summary.json, which `scripts/report` renders.

    benchmarks/run record RECORDS.json ...
    python3 benchmarks/record.py --tag h100 RECORDS.json ...

A tag goes before the names (h100_gpus2_carbon_64000): rows of a second machine beside those of the first. Of a file
with records of several kinds, those whose names start with a folder ("md/...") stay where they are: a row of
summary.json has a name that a text or targets.json knows.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import common  # noqa: E402


def main() -> None:
    """Merges the records of the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="RECORDS.json")
    parser.add_argument("--tag", default="", help="of another machine, before the names")
    args = parser.parse_args()
    tag = f"{args.tag}_" if args.tag else ""
    for source in args.sources:
        rows = [row | {"name": tag + row["name"]} for row in json.loads(source.read_text()) if "/" not in row["name"]]
        for row in common.merge(rows):
            print(f"{row['name']} {row['value']:.4g} {row['unit']}")


if __name__ == "__main__":
    main()
