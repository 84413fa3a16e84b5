"""The shape of the tree: no big binaries, no machine's paths in the texts, a README in every folder of C++ sources.

Usage: check_tree.py ROOT
"""

import re
import subprocess
import sys
from pathlib import Path

SOURCES = ("src/", "lammps_plugin/")
LIMIT = 5 * 1000 * 1000  # bytes
# Absolute paths of somebody's machine; /usr, /etc and /tmp mean the same everywhere.
MACHINE = re.compile(rb"(?<![\w.$}])/(?:home|root|work|Users|farm|mnt|scratch)/\w")


def main() -> int:
    root = Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True)
    if listed.returncode != 0:
        print("not a git checkout: nothing to check")
        return 0
    names = list(filter(None, listed.stdout.decode().split("\0")))
    rooms = {Path(n).parent for n in names if n.startswith(SOURCES) and n.endswith((".cpp", ".h", ".cu", ".cuh"))}
    bad = [
        f"{room}: expected a README.md that says what lives here"
        for room in sorted(rooms)
        if not (root / room / "README.md").is_file()
    ]
    for name in names:
        path = root / name
        if not path.is_file() or path.is_symlink():
            continue
        size = path.stat().st_size
        if size > LIMIT:
            bad.append(f"{name}: expected at most {LIMIT} bytes, got {size}")
        data = path.read_bytes()
        if b"\0" in data[:8000]:
            continue
        for number, line in enumerate(data.splitlines(), 1):
            if MACHINE.search(line):
                bad.append(f"{name}:{number}: a path of one machine: {line.strip()[:100].decode(errors='replace')}")
    print("\n".join(bad) or "fine")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
