"""clang-format (the pinned one beside this Python) on every C++ and CUDA source. Usage: check_cpp.py ROOT [--fix]"""

import subprocess
import sys
from pathlib import Path

FOLDERS = ("src", "lammps_plugin", "tests", "benchmarks", "examples")
ENDINGS = {".h", ".hpp", ".cpp", ".cu", ".cuh"}


def main() -> int:
    root = Path(sys.argv[1])
    files = sorted(p for f in FOLDERS for p in (root / f).rglob("*") if p.suffix in ENDINGS)
    tool = [Path(sys.executable).parent / "clang-format", "--style=file"]
    if "--fix" in sys.argv[2:]:
        return subprocess.run([*tool, "-i", *files]).returncode
    done = subprocess.run([*tool, "--dry-run", "-Werror", *files], capture_output=True, text=True)
    # One line a file, not six a place.
    unlike = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    print("\n".join(unlike) or done.stderr or "fine")
    if unlike:
        print(f"\n{len(unlike)} files are not as clang-format would have them; to repair all:")
        print(f"  {sys.executable} {__file__} {root} --fix")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
