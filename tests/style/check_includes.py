"""Folders include each other one way only. Usage: check_includes.py ROOT

The table says, for every folder of C++ sources, which other folders' headers its files may include. A folder that is
not in it fails: whoever adds one decides where it stands. Where the table names a single file, that file's row counts.
"""

import re
import sys
from pathlib import Path

CORE = ["core", "core/math", "core/problem", "core/radial", "core/graph"]
CUDA_FLOOR = ["cuda/plan", "cuda/runtime", "cuda/emit", "cuda/kernels"]
# One room an op; rooms of ops do not include each other.
CUDA_OPS = ["cuda/conv", "cuda/interaction", "cuda/nodes", "cuda/edges", "cuda/allegro", "cuda/exchange"]
CUDA = CUDA_FLOOR + CUDA_OPS
# What an operation of libclebsch_multilinear stands on.
MULTILINEAR = [*CORE, "cuda/plan", "cuda/runtime", "multilinear"]

MAY_INCLUDE = {
    "core": [],
    "core/math": ["core"],
    "core/graph": ["core"],
    "core/problem": ["core", "core/math"],
    "core/radial": ["core", "core/math", "core/problem"],
    "cpu": CORE,
    "cuda/plan": CORE,
    "cuda/runtime": ["core", "cuda/plan"],
    "cuda/emit": [*CORE, "cuda/plan", "cuda/runtime", "cuda/kernels"],
    # NVRTC compiles these: they have no other headers.
    "cuda/kernels": [],
    "cuda/kernels/embedded_source.cpp": ["core"],
    "cuda/kernels/fixed_kernels.h": ["cuda/runtime"],
    **{room: [*CORE, *CUDA_FLOOR] for room in CUDA_OPS},
    # A library of its own: neither cpu nor torch's ops nor a model.
    "multilinear": ["core"],
    "multilinear/sampling": [*MULTILINEAR, "cuda/emit", "multilinear/sampling/kernels"],
    "multilinear/sampling/kernels": ["cuda/kernels"],
    "multilinear/attention": [*MULTILINEAR, "multilinear/attention/kernels"],
    "multilinear/attention/kernels": ["cuda/kernels", "multilinear/sampling/kernels"],
    "multilinear/triangle": [*MULTILINEAR, "multilinear/triangle/kernels"],
    "multilinear/triangle/kernels": ["cuda/kernels", "multilinear/attention/kernels"],
    "torch": [*CORE, "cpu", *CUDA],
    # What users include speaks of plain data alone.
    "model/model.h": ["core"],
    "model/feature_exchange.h": ["model"],
    "model/row_memory.h": ["model"],
    "model/gpu_memory.h": ["model"],
    "model/nccl.h": [],
    "model/version.cpp": ["cpu", "model"],
    "model/file": [*CORE, "model"],
    "model/run": [*CORE, *CUDA, "torch", "model", "model/file"],
    "model/device": [*CORE, *CUDA, "torch", "model", "model/run"],
    "model": [*CORE, *CUDA, "torch", "model/file", "model/run", "model/device"],
    # The plugin knows a model by model.h, which is all of src/model that is at the folder's root.
    "comm": ["model"],
    "pair": ["core", "model", "comm"],
    "compute": ["model", "comm", "pair"],
    # What LAMMPS opens is thin: no pair style, no torch. What it opens in its turn has a table of them all.
    "host": ["comm"],
    "host/plain_styles.cpp": ["host", "pair", "compute"],
    "kokkos": ["core", "model", "comm", "pair", "host"],
}
TREES = ("src", "lammps_plugin")
ENDINGS = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)


def problems(root: Path) -> list[str]:
    names = {p.relative_to(root / t).as_posix() for t in TREES for p in (root / t).rglob("*") if p.suffix in ENDINGS}
    found = []
    for tree in TREES:
        for path in sorted(p for p in (root / tree).rglob("*") if p.suffix in ENDINGS):
            name, room = path.relative_to(root / tree).as_posix(), path.parent.relative_to(root / tree).as_posix()
            row = MAY_INCLUDE.get(name, MAY_INCLUDE.get(room))
            if row is None:
                found.append(f"{path.relative_to(root)}: its folder has no row in {Path(__file__).name}")
                continue
            for included in INCLUDE.findall(path.read_text()):
                if (path.parent / included).is_file() and included not in names:
                    found.append(f'{path.relative_to(root)}: "{included}": expected its path from {tree}/')
                    continue
                target = included.rpartition("/")[0]
                if included in names and target != room and target not in row:
                    allowed = ", ".join(row) or "no other folder"
                    found.append(f'{path.relative_to(root)}: includes "{included}"; {room} may include {allowed}')
    return found


if __name__ == "__main__":
    bad = problems(Path(sys.argv[1]))
    print("\n".join(bad) or "fine")
    sys.exit(bool(bad))
