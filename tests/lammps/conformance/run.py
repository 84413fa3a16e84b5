"""Runs LAMMPS's test_pair_style with the tests of this folder and prints what each part said, with its largest error.

  run.py --harness PROGRAM --plugins FOLDERS [--host plain|kokkos|gpu] [--out FILE] [TEST ...]

PROGRAM is a test_pair_style (CMakeLists.txt builds it), FOLDERS, separated by colons, hold clebschplugin.so and
clebschkkplugin.so for its LAMMPS. --host says what must pass, and nothing else may have been skipped:
  plain    the style itself: newton on and off, restart file, data file, nofdotr; what it offers to other code
  kokkos   the same in a LAMMPS with Kokkos on CPUs, and clebsch/kk on four threads
  cuda     the tests of `plain`, with `device cuda` in their pair_style
  gpu      clebsch/kk on a GPU, in a LAMMPS with Kokkos for GPUs
Exit status 1: a part failed, or was skipped that must not be. Nothing but Python with torch is needed beside them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from conformance_cases import CASES, MODELS, Case  # noqa: E402

#: Parts of test_pair_style that must pass.
PARTS = {
    "plain": ["plain", "extract"],
    "cuda": ["plain", "extract"],
    "kokkos": ["plain", "extract", "kokkos_omp"],
    "gpu": ["kokkos_gpu"],
}
#: What it says of a style without energies of pairs, where LAMMPS has what this part needs (atom_style full).
NO_SINGLE = "Single method not available for pair style"


class Harness:
    """test_pair_style with models and plugins in reach; `folder` is where it works."""

    def __init__(self, program: str, plugins: str, folder: Path):
        self.program, self.folder = str(Path(program).resolve()), folder
        found = [str(Path(part).resolve()) for part in plugins.split(os.pathsep) if part]
        self.environment = {
            **os.environ,
            "LAMMPS_PLUGIN_PATH": os.pathsep.join(found),
            "LAMMPS_POTENTIALS": str(folder),
            "OMP_PROC_BIND": "false",
        }
        self.environment.setdefault("OMP_NUM_THREADS", "1")
        for name, (script, options) in MODELS.items():
            words = [f"{key}={value}" for key, value in options.items()]
            source = HERE.parents[1] / f"unit/{script}.py"
            subprocess.run([sys.executable, source, folder / f"{name}.pt", *words], check=True)

    def __call__(self, *words) -> subprocess.CompletedProcess:
        """Options that end the program, such as -g, must be the last."""
        command = [self.program, words[0], "-d", str(HERE), *words[1:]]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600
        )

    def generate(self, test: Path) -> Path:
        """A copy of a test with the values of this LAMMPS."""
        result = self.folder / "generated.yaml"
        done = self(str(test), "-g", str(result))
        if done.returncode != 0 or not result.exists():
            raise SystemExit(f"{test.name}: test_pair_style -g failed\n{done.stdout}{done.stderr}")
        return result


def outcomes(report: Path) -> dict[str, str]:
    """passed, skipped or failed, by part."""
    result = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.get("result") in ("skipped", "suppressed") or case.find("skipped") is not None:
            result[case.get("name")] = "skipped"
        else:
            result[case.get("name")] = "failed" if case.find("failure") is not None else "passed"
    return result


def expected_parts(case: Case, host: str) -> list[str]:
    # MACE's radial functions are on a GPU from tables alone, as Allegro's are.
    of_tables = "kokkos_gpu" in case.skip.split() or (case.model == "mace" and case.exact)
    if host == "cuda" and ("device" in case.options or of_tables):
        return []
    return [part for part in PARTS[host] if part not in case.skip.split()]


def on_a_gpu(test: Path, folder: Path) -> Path:
    """A copy of the test with `device cuda`."""
    lines = test.read_text().splitlines()
    changed = [
        line.replace("clebsch", "clebsch device cuda", 1) if line.startswith("pair_style:") else line for line in lines
    ]
    copy = folder / test.name
    copy.write_text("\n".join(changed) + "\n")
    return copy


def run_one(harness: Harness, name: str, host: str) -> tuple[str, bool, str]:
    """(line of the table, whether all is well, what the program printed)"""
    case, report = CASES[name], harness.folder / f"{name}.xml"
    test = HERE / f"{name}.yaml"
    test = on_a_gpu(test, harness.folder) if host == "cuda" else test
    words = [str(test), "-s", f"--gtest_output=xml:{report}"]
    if host in ("gpu", "cuda"):  # a LAMMPS with Kokkos, whose other parts are not meant here
        words.append("--gtest_filter=" + ":".join(f"*.{part}" for part in PARTS[host]))
    done = harness(*words)
    printed = done.stdout + done.stderr
    if not report.exists():
        return f"{name:16} test_pair_style ended with {done.returncode}", False, printed
    found, wanted = outcomes(report), expected_parts(case, host)
    well = all(found.get(part) == "passed" for part in wanted) and "failed" not in found.values()
    # A crash after the last part leaves a complete report.
    well = well and done.returncode == 0
    if host == "plain" and NO_SINGLE not in printed:
        well, printed = False, f"{printed}\nexpected '{NO_SINGLE}' of part single, which runs where LAMMPS can\n"
    errors = [float(value) for value in re.findall(r"MaxErr:\s*(\S+)", printed)]
    shown = " ".join(f"{part} {found.get(part, 'missing')}" for part in wanted) or "nothing for this host"
    return f"{name:16} {max(errors, default=0.0):8.1e}  {shown}", well, printed


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--harness", required=True, help="test_pair_style")
    arguments.add_argument("--plugins", required=True, help="folders with the plugins, separated by colons")
    arguments.add_argument("--host", choices=sorted(PARTS), default="plain")
    arguments.add_argument("--out", type=Path, help="file for the table and what failed")
    arguments.add_argument("tests", nargs="*", metavar="TEST")
    given = arguments.parse_args()
    unknown = sorted(set(given.tests) - set(CASES))
    if unknown:
        arguments.error(f"expected tests out of {', '.join(CASES)}, got {', '.join(unknown)}")
    if not Path(given.harness).exists():
        print(f"no test_pair_style: expected {given.harness}; scripts/test conformance builds it")
        return 77
    lines, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(given.harness, given.plugins, Path(folder))
        for name in given.tests or CASES:
            if not expected_parts(CASES[name], given.host):
                continue
            line, well, printed = run_one(harness, name, given.host)
            lines.append(line if well else f"{line}\n{printed}\n{name}: FAILED")
            failed += not well
            print(lines[-1], flush=True)
    lines.append(
        f"{len(lines) - failed} of {len(lines)} tests as expected ({given.host}); second column: largest error"
    )
    print(lines[-1])
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
