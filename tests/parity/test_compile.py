"""clebsch compile: GPU kernels of a model without a GPU. Sources and keys are tested in tests/unit."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from make_models import shared

from clebsch import cli, kernels
from clebsch.runtime import Model

ROOT = Path(__file__).resolve().parents[2]
# With tables a model uses the kernels of `interaction`; the exact path those of the convolution as well.
EXACT = ("--radial", "exact")


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    return shared(tmp_path_factory.mktemp("compile"), "tiny_model.py", "lmax=1")


@pytest.fixture(scope="session")
def filled(needs_library, model, tmp_path_factory) -> Path:
    """A folder with the model's kernels for sm_90."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    try:
        kernels.compile_file(model, [90], cache=str(folder), radial="exact")
    except kernels.ClebschError as error:
        if "libnvrtc" not in str(error) or os.environ.get("CLEBSCH_REQUIRE_NVRTC") == "1":
            raise
        pytest.skip(str(error))
    return folder


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def counts(output: str) -> tuple[int, int]:
    """Kernels compiled and found, of the summary."""
    match = re.search(r"(\d+) compiled, (\d+) found", output)
    assert match, output
    return int(match[1]), int(match[2])


def test_dry_run_lists(needs_library, model, tmp_path, capsys):
    cache = tmp_path / "cache"
    assert cli.main(["compile", model, "--arch", "sm_90,80,90", "--cache", str(cache), "--dry-run", *EXACT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not cache.exists()
    assert "nothing was compiled" in lines[-1]
    kinds = {line.split("  [")[0] for line in lines[:-1]}
    # The first layer's features depend on the types alone: there is no gradient by x.
    for kernel in ("tensor_product_conv float", "tensor_product_conv_backward x harmonics weights float",
                   "tensor_product_conv_backward harmonics weights float"):  # fmt: skip
        assert {f"sm_90  {kernel}", f"sm_80  {kernel}"} <= kinds


def test_options_choose_kernels(needs_library, model):
    def labels(**options) -> set[str]:
        found = kernels.compile_file(model, [90], dry_run=True, **options)
        return {kernel["kernel"] for kernel in found.kernels}

    assert not any(label.endswith(" float") for label in labels(dtype="float64", radial="exact"))
    assert any("atomic" in label for label in labels(radial="exact", deterministic=False))
    assert not any("atomic" in label for label in labels(radial="exact"))
    # A table for every cutoff of the model: one, or several as splines, as the types in use say.
    tables = {label for label in labels() if label.startswith(("interaction", "tensor_product_conv"))}
    # Where there are nodes enough, the last layer goes backward by sender.
    kinds = ("interaction{}", "interaction_backward x edge_vec{}", "interaction_backward edge_vec{}")
    kinds += ("interaction_backward x edge_vec{} turned",)
    assert tables == {f"{kind.format(of_table)} float" for kind in kinds for of_table in ("", " splines")}


def test_any_types_in_use(needs_library, tmp_path):
    """A model with a table for every pair of types: the list has the kernels of runs with one type in use and with all,
    whichever of them is loaded."""
    path = shared(tmp_path, "tiny_mace.py")

    def names(made: list[dict]) -> set[tuple[str, str]]:
        return {(kernel["kernel"], kernel["problem"]) for kernel in made}

    def listed(types: list[str]) -> set[tuple[str, str]]:
        return names(Model(path, dtype="float32", types_in_use=types).compile_kernels(90, list_only=True))

    ahead = names(kernels.compile_file(path, [90], dry_run=True, dtype="float32").kernels)
    assert ahead == listed(["O"]) == listed(["O", "H"])
    labels = [label for label, _ in ahead if label.startswith("interaction")]
    assert labels
    for label in labels:
        assert label.replace(" splines", "") in labels
        assert label.replace(" splines", "").replace(" float", " splines float") in labels


@pytest.mark.parametrize(
    ("name", "types"), [("carbon-mace", ["C"]), ("water-nequip", ["O"]), ("water-nequip", ["O", "H"])]
)
def test_shipped_models(needs_library, name, types):
    """What a run asks for is on the list, also of a first layer that is projected for few types alone."""
    path = str(ROOT / "models" / f"{name}.pt")
    ahead = {(kernel["kernel"], kernel["problem"]) for kernel in kernels.compile_file(path, [90], dry_run=True).kernels}
    asked = Model(path, types_in_use=types).compile_kernels(90, list_only=True)
    assert {(kernel["kernel"], kernel["problem"]) for kernel in asked} <= ahead
    assert any("projected" in kernel["kernel"] for kernel in asked) == (len(types) == 1)
    assert any(kernel["kernel"] == "readout" for kernel in asked)
    assert not any("out=1x0e" in kernel["problem"] for kernel in asked if kernel["kernel"].startswith("linear"))


def test_fills_the_cache_once(filled, model, tmp_path, capsys):
    cache = tmp_path / "with a space" / "cache"
    command = ["compile", model, "--arch", "80", "--cache", str(cache), *EXACT]
    assert cli.main(command) == 0
    first = capsys.readouterr().out
    made = files(cache)
    compiled = [line for line in first.splitlines() if line.startswith("sm_80")]
    assert f"{len(compiled)} kernels in" in first
    new, found = counts(first)
    assert new + found == len(compiled) and new > found  # layers may share a kernel
    assert all("registers, no spills" in line for line in compiled), first
    # A file a kernel, and the small sums that go with it; the same number for another architecture, under other names.
    assert new < len(made) <= 2 * len(compiled)
    assert all(name.endswith(".cubin") for name in made)
    assert len(made) == len(files(filled)) and not made.keys() & files(filled).keys()
    assert cli.main(command) == 0
    assert counts(capsys.readouterr().out) == (0, len(compiled))
    assert files(cache) == made
    # What is damaged is made again, the rest stays.
    victim = cache / sorted(made)[0]
    victim.write_bytes(victim.read_bytes()[:100])
    assert cli.main(command) == 0
    assert counts(capsys.readouterr().out) == (1, len(compiled) - 1)
    after = files(cache)
    assert {name for name in made if made[name] != after[name]} == {victim.name}


def test_standard_folder(filled, model, monkeypatch, capsys):
    monkeypatch.setenv("CLEBSCH_CACHE_DIR", str(filled))
    before = files(filled)
    assert cli.main(["compile", model, "--arch", "90", *EXACT]) == 0
    out = capsys.readouterr().out
    assert str(filled) in out and counts(out)[0] == 0
    assert files(filled) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arch", "70"], "expected architectures out of 75, 80"),
        (["--arch", "hopper"], "got 'hopper'"),
        (["--arch", "90", "--cache", "/dev/null/cache"], "/dev/null/cache cannot be made"),
    ],
)
def test_refusals(needs_library, model, options, message, capsys):
    assert cli.main(["compile", model, *options]) == 1
    assert message in capsys.readouterr().err


def test_missing_model(needs_library, tmp_path, capsys):
    assert cli.main(["compile", str(tmp_path / "absent.pt"), "--arch", "90"]) == 1
    assert "not found" in capsys.readouterr().err


FAKE_NVRTC = """
#include <string.h>
typedef void* P;
int nvrtcVersion(int* a, int* b) { *a = 99; *b = 1; return 0; }
int nvrtcCreateProgram(P* p, const char* s, const char* n, int c, const char* const* h, const char* const* i) {
  *p = (P)(strstr(s, "conv_backward(") ? "broken" : "fine");
  return 0;
}
int nvrtcDestroyProgram(P* p) { *p = 0; return 0; }
int nvrtcCompileProgram(P p, int n, const char* const* o) { return *(char*)p == 'b' ? 6 : 0; }
static const char* kLog = "error: the log of the compiler";
int nvrtcGetProgramLogSize(P p, size_t* n) { *n = strlen(kLog) + 1; return 0; }
int nvrtcGetProgramLog(P p, char* to) { strcpy(to, kLog); return 0; }
int nvrtcGetCUBINSize(P p, size_t* n) { *n = 4; return 0; }
int nvrtcGetCUBIN(P p, char* to) { memcpy(to, "code", 4); return 0; }
const char* nvrtcGetErrorString(int e) { return e ? "COMPILATION FAILED" : "no error"; }
"""


def compile_with_fake(model, tmp_path, **rest):
    """`clebsch compile` into tmp_path / "cache" with a compiler that refuses some kernels."""
    (tmp_path / "fake.c").write_text(FAKE_NVRTC)
    library = tmp_path / "libnvrtc.so"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "expected a C compiler"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "fake.c"], check=True)
    cache = tmp_path / "cache"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "clebsch", "compile", model, "--arch", "90", "--cache", cache, *EXACT],
        env={**os.environ, "CLEBSCH_NVRTC": str(library)},
        capture_output=True,
        text=True,
        timeout=300,
        **rest,
    )


def test_a_full_disk(needs_library, model, tmp_path):
    """Kernels that the folder does not take: no half of a file, and the reason. (Python ignores the limit's signal.)"""
    limit = 1000
    done = compile_with_fake(
        model, tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"compiled kernels cannot be kept: the folder {tmp_path / 'cache'} did not take a file: " in done.stderr
    assert "File too large" in done.stderr
    assert files(tmp_path / "cache") == {}


def test_errors_name_kernel_and_log(needs_library, model, tmp_path):
    """A compiler that refuses some kernels: the others are kept, the exit status is 1, and the log is shown."""
    cache = tmp_path / "cache"
    done = compile_with_fake(model, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "sm_90  tensor_product_conv_backward harmonics weights float" in done.stdout
    assert "FAILED" in done.stdout.splitlines()[-1]
    for part in (
        "sm_90 tensor_product_conv_backward x harmonics weights float of 'conv in1=",
        "the log of the compiler",
    ):
        assert part in done.stderr
    assert any(name.startswith("conv_forward") for name in files(cache))
    assert not any(name.startswith("conv_backward") for name in files(cache))


def test_known_architectures(needs_library):
    assert {80, 90, 120} <= set(kernels.architectures())
    assert torch.classes.clebsch.Model.kernel_cache_problem("/dev/null/x")
