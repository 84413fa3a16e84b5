"""Compiles every CUDA source of the folders kernels with nvcc, as it stands. Usage: compile_kernels.py ROOT

In a run NVRTC compiles them, with their headers put in place; this finds what only one of the two accepts, and shows
that a kernel can be worked on with the usual tools. Exits with 77, which ctest calls skipped, where there is no nvcc.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def with_headers(source: Path, folder: Path) -> str:
    """The text of a source and of the headers that it includes."""
    text = source.read_text()
    return text + "".join(with_headers(folder / name, folder) for name in re.findall(r'#include "([^"]+)"', text))


def main() -> int:
    root = Path(sys.argv[1])
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc")
    if nvcc is None:
        print("skipped: no nvcc on the path or in CUDA_HOME")
        return 77
    options = ["-std=c++17", "-cubin", "-Werror", "all-warnings", "-I", root / "src"]
    failed = 0
    for source in sorted((root / "src").rglob("kernels/*.cu")):
        # Instructions that only one architecture has, as src/cuda/runtime/nvrtc.cpp tells.
        arch = "90a" if "wgmma." in with_headers(source, root / "src") else "80"
        target = f"-gencode=arch=compute_{arch},code=sm_{arch}"
        failed += subprocess.run([nvcc, *options, target, "-o", os.devnull, source]).returncode != 0
    print(f"{failed} sources failed" if failed else "fine")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
