"""KhatriRaoSampler on the CPU beside the authors' code, on the same cores, in turn.

  benchmarks/run sampling-cpu -- --source FOLDER [--blas FOLDER]

--source: a checkout of github.com/vbharadwaj-bk/fast_tensor_leverage, which is not part of this project (it has no
licence) and is compiled as its own configuration says (-Ofast -march=native). --blas: an installed scipy-openblas32,
whose folder has include/ and lib/; found through Python without it. Both get the same factors, in turn; build and draw
are timed together, after one of each whose answer is looked at.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/sampling"), str(ROOT / "src/python")]

import common  # noqa: E402
from problems import condition, gram_of, normal_factors, whitening  # noqa: E402

from clebsch.sampling import KhatriRaoSampler  # noqa: E402
from clebsch.sampling.khatri_rao import Draw  # noqa: E402

COUNT = 50_000
MODULE = """
#include "cpp_ext/common.h"
#include "cpp_ext/sampler.hpp"
#include "cpp_ext/efficient_krp_sampler.hpp"
#include <memory>
struct Peer {
  NPBufferList<double> factors;
  EfficientKRPSampler sampler;
  Peer(py::list u, int64_t count, int64_t columns) : factors(u), sampler(count, columns, factors.buffers) {}
  void draw(py::array_t<uint64_t> indices, py::array_t<double> rows, py::array_t<double> weights) {
    Buffer<uint64_t> to(indices);
    sampler.KRPDrawSamples(factors.length + 1, to, nullptr);
    std::copy(sampler.h(), sampler.h(sampler.J * sampler.R), rows.mutable_data());
    std::copy(sampler.weights(), sampler.weights(sampler.J), weights.mutable_data());
  }
};
PYBIND11_MODULE(peer_sampler, m) {
  py::class_<Peer>(m, "Peer").def(py::init<py::list, int64_t, int64_t>()).def("draw", &Peer::draw);
}
"""


def compiled(source: Path, blas: Path, folder: Path):
    """The authors' sampler as a Python module."""
    import pybind11

    (folder / "module.cpp").write_text(MODULE)
    text = "".join(path.read_text() for path in (source / "cpp_ext").glob("*.h*"))
    header = (blas / "include/cblas.h").read_text()
    prefix = "scipy_" if "scipy_cblas_dgemm" in header else ""
    names = sorted(set(re.findall(r"\b(?:cblas|LAPACKE)_[a-z]+\b", text)))
    library = next((blas / "lib").glob("lib*openblas*.so"))
    command = [
        os.environ.get("CXX", "c++"), "--std=c++2a", "-shared", "-fPIC", "-fopenmp", "-Ofast", "-march=native",
        *(f"-D{name}={prefix}{name}" for name in names if prefix), f"-I{source}", f"-I{pybind11.get_include()}",
        f"-I{blas}/include", f"-I{sysconfig.get_paths()['include']}", str(folder / "module.cpp"), str(library),
        f"-Wl,-rpath,{library.parent}", "-o", str(folder / "peer_sampler.so"),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    spec = importlib.util.spec_from_file_location("peer_sampler", folder / "peer_sampler.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ours(factors: list[torch.Tensor], seed: int) -> tuple[float, float, float, Draw]:
    """Seconds of build, of the draw and of all threads together, and what was drawn."""
    begin, work = time.perf_counter(), time.process_time()
    sampler = KhatriRaoSampler(factors)
    middle = time.perf_counter()
    drawn = sampler.draw(COUNT, seed=seed)
    end = time.perf_counter()
    return middle - begin, end - middle, time.process_time() - work, drawn


def theirs(module, arrays: list[np.ndarray]) -> tuple[float, float, float, Draw]:
    columns = arrays[0].shape[1]
    indices = np.zeros((len(arrays), COUNT), dtype=np.uint64)
    rows, weights = np.zeros((COUNT, columns)), np.zeros(COUNT)
    begin, work = time.perf_counter(), time.process_time()
    sampler = module.Peer(arrays, COUNT, columns)
    middle = time.perf_counter()
    sampler.draw(indices, rows, weights)
    end, work = time.perf_counter(), time.process_time() - work
    taken = torch.from_numpy(indices.astype(np.int64)).T.contiguous()
    drawn = Draw(taken, torch.from_numpy(rows), torch.from_numpy(weights), columns)
    return middle - begin, end - middle, work, drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--blas", type=Path)
    parser.add_argument("--log2-rows", type=int, default=20)
    parser.add_argument("--columns", type=lambda text: [int(one) for one in text.split(",")], default=[32, 128])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", default="sampling_cpu.json")
    parser.add_argument("--records", default="sampling_cpu_records.json")
    options = parser.parse_args()
    blas = options.blas
    if blas is None:
        found = importlib.util.find_spec("scipy_openblas32")
        if found is None:
            raise SystemExit("--blas: expected the folder of scipy-openblas32; `pip install scipy-openblas32` has it")
        blas = Path(found.origin).parent
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the peer calls it from its own threads
    rows, ratios = [], {}
    with tempfile.TemporaryDirectory() as folder:
        module = compiled(options.source, blas, Path(folder))
        for columns in options.columns:
            factors = normal_factors(2**options.log2_rows, columns, 3, "cpu")
            arrays, basis = [u.numpy() for u in factors], whitening(gram_of(factors))
            for name, drawn in (("ours", ours(factors, 0)[3]), ("theirs", theirs(module, arrays)[3])):
                kappa = condition(drawn, basis)
                print(f"{columns} columns, {name}: kappa {kappa:.3f}", flush=True)
                if not kappa < 1.3:
                    raise SystemExit(f"{name}: expected a sketch of condition below 1.3, got {kappa}")
            taken = {"ours": [], "theirs": []}
            for repeat in range(options.repeats):
                taken["ours"].append(ours(factors, repeat)[:3])
                taken["theirs"].append(theirs(module, arrays)[:3])
            of = {name: [statistics.median(c) for c in zip(*t, strict=True)] for name, t in taken.items()}
            each = [(sum(b[:2]) / sum(a[:2])) for a, b in zip(taken["ours"], taken["theirs"], strict=True)]
            ratios[columns] = each
            print(f"{columns} columns: build {of['ours'][0]:.2f} s, theirs {of['theirs'][0]:.2f}; draw "
                  f"{of['ours'][1]:.2f} s, theirs {of['theirs'][1]:.2f}; together {statistics.median(each):.2f} times "
                  f"as fast; seconds of all threads {of['ours'][2]:.2f}, theirs {of['theirs'][2]:.2f}: "
                  f"{of['theirs'][2] / of['ours'][2]:.2f} times", flush=True)  # fmt: skip
            rows.append({"columns": columns, "log2_rows": options.log2_rows, **taken})
    worst = min(ratios, key=lambda c: statistics.median(ratios[c]))
    median, spread = common.quartiles(ratios[worst]) if options.repeats > 1 else (ratios[worst][0], None)
    common.save(options.json, rows)
    common.save(options.records, [{
        "name": "krp_cpu_ratio", "value": median, "unit": "x authors' code", "spread": spread, "dtype": "float64",
        "deterministic": True, "error": None, "peer": {"name": "fast_tensor_leverage", "version": "", "value": 1.0},
        **common.about("cpu"),
    }])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
