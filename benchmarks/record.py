"""Puts the records of benchmarks into results/summary.json, which `scripts/report` renders.

    benchmarks/run record RECORDS.json ...

Of a file with records of several kinds, those whose names start with a folder ("md/...") stay where they are: a row of
summary.json has a name that a text or targets.json knows.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import common  # noqa: E402


def main(*sources: str) -> None:
    """Merges the records of the files."""
    for source in sources:
        for row in common.merge([r for r in json.loads(Path(source).read_text()) if "/" not in r["name"]]):
            print(f"{row['name']} {row['value']:.4g} {row['unit']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
