"""Run where mace-torch is: exports random MACE models and compares them with upstream. Prints JSON on its last line.

PYTHONPATH=.deps/mace:src/python .venv/bin/python tests/parity/mace_export.py [quick | all | CASE ...]
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import mace  # noqa: E402, F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
import torch  # noqa: E402
from e3nn.o3 import Irreps  # noqa: E402
from mace.modules.blocks import NonLinearReadoutBlock  # noqa: E402
from mace.modules.lora import inject_lora  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.compare import FORCE_FLOOR, compare_file, report, upstream_mace  # noqa: E402
from clebsch.errors import ClebschError  # noqa: E402
from clebsch.probe import random_structure  # noqa: E402
from mace_cases import CASES, OTHER_MODELS, QUICK, REFUSED, model_of  # noqa: E402


def errors_of(name: str, folder: Path) -> dict[str, dict[str, float]]:
    """Errors of the exact radial functions and of tables, in the model's dtype, and of float32."""
    options = CASES[name]
    model = model_of(name)
    heads = options.get("heads")
    head = None if heads is None else options.get("head", heads[-1])
    path = folder / f"{name}.pt"
    made = export.mace(model, path, head=head, elements=options.get("keep"))
    numbers = made.metadata["atomic_numbers"]
    reference = exact_upstream(model)

    def answers(probe):
        return upstream_mace(reference, probe, numbers, head)

    forces = answers(random_structure(len(numbers), made.metadata["r_max"], 0)).forces
    assert float(forces.pow(2).mean().sqrt()) > FORCE_FLOOR, "forces too small to measure errors with"
    dtype = made.metadata["dtype"]
    found = {
        f"{dtype} {radial}": compare_file(path, answers, dtype=dtype, radial=radial) for radial in ("exact", "table")
    }
    if dtype == "float64":
        found["float32 table"] = compare_file(path, answers, dtype="float32", radial="table")
    return found


def message_for(model: torch.nn.Module | Path, folder: Path) -> str:
    """What the exporter says of a model that it must refuse; "" where it does not."""
    try:
        export.mace(model, folder / "refused.pt")
    except ClebschError as error:
        return "" if (folder / "refused.pt").exists() else str(error)
    return ""


def refusals(folder: Path) -> dict[str, str]:
    """What the exporter says of every model it must refuse; "" where it did not. Nothing may be written."""
    said = {}
    for name in REFUSED:
        said[name] = message_for(model_of(name), folder)
    for name in OTHER_MODELS:
        said[name] = message_for(type(name, (torch.nn.Module,), {})(), folder)
    residual = model_of("residual")  # each takes a copy
    early = model_of("three-layers")
    irreps = early.readouts[0].linear.irreps_in
    early.readouts[0] = NonLinearReadoutBlock(irreps, Irreps("4x0e"), torch.nn.functional.silu).double()
    said["NonLinearReadoutBlock"] = message_for(early, folder)
    ungated = copy.deepcopy(residual)
    ungated.readouts[-1].non_linearity.acts[0] = None
    said["got None"] = message_for(ungated, folder)
    other_release = copy.deepcopy(residual)
    del other_release.products[0].linear
    said["unknown structure"] = message_for(other_release, folder)
    lora = copy.deepcopy(residual)
    inject_lora(lora)
    said["LoRA"] = message_for(lora, folder)
    for package in ("cuequivariance_torch", "openequivariance"):
        foreign = copy.deepcopy(residual)
        foreign.products[0].linear = type("Linear", (torch.nn.Module,), {"__module__": f"{package}.layers"})()
        said[package] = message_for(foreign, folder)
    heads = model_of("heads-float32")
    for name, options in (
        ("no head", {}),
        ("wrong head", {"head": "z"}),
        ("wrong element", {"elements": ["Xe"]}),
        ("element text", {"elements": "HO"}),
    ):
        try:
            export.mace(heads, folder / "refused.pt", **options)
            said[name] = ""
        except ClebschError as error:
            said[name] = str(error)
    return said


def save_file(folder: Path) -> dict:
    """A `.model` file as mace_run_train leaves it, and upstream's answer for one structure."""
    model = model_of("residual")
    torch.save(model, folder / "tiny.model")
    probe = random_structure(2, 4.0, 3)
    values = upstream_mace(model, probe, [1, 8])
    return {
        "positions": probe.positions.tolist(),
        "cell": probe.cell.tolist(),
        "numbers": [[1, 8][t] for t in probe.types.tolist()],
        "energy": float(values.atomic.sum()),
        "forces": values.forces.tolist(),
        "virial": values.virial.tolist(),
    }


def from_cueq(folder: Path) -> dict[str, float]:
    """Errors, against the plain model, of what is exported from the same model in cuEquivariance's layout, which is
    left in `folder`. A small one: upstream's converters take seconds for every term of the symmetric contraction."""
    from mace.cli.convert_e3nn_cueq import run

    model, path = model_of("converted"), folder / "converted.model"
    torch.save(run(model, device="cpu", return_model=True), path)
    numbers = export.mace(path, folder / "converted.pt", verify=False).metadata["atomic_numbers"]
    return compare_file(folder / "converted.pt", lambda probe: upstream_mace(model, probe, numbers))


def exact_upstream(model: torch.nn.Module) -> torch.nn.Module:
    """The same weights in float64: what errors of a float32 model are measured against, not upstream's own rounding."""
    if next(model.parameters()).dtype == torch.float64:
        return model
    return copy.deepcopy(model).double()


def compared(names: list[str]) -> dict:
    """Errors of the cases, which are also printed as a table."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            results[name] = errors_of(name, Path(folder))
            print(report({f"{name} {kind}": e for kind, e in results[name].items()}), flush=True)
    return results


def for_tests(folder: Path) -> dict:
    """What test_mace_export.py asks for, by one process: to import mace-torch takes as long as many cases."""
    said = {"file": save_file(folder), "errors": compared(list(QUICK))}
    with tempfile.TemporaryDirectory() as empty:
        return said | {"refused": refusals(Path(empty))}


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:] or ["all"]
    if names[0] == "tests":
        print(json.dumps(for_tests(Path(names[1]))))
        return
    if names[0] == "save":
        export.mace(model_of(names[1]), Path(names[2]) / f"{names[1]}.pt")
        print("{}")
        return
    if names[0] == "cueq":
        print(json.dumps(from_cueq(Path(names[1]))))
        return
    if names[0] == "load":
        print(json.dumps(message_for(Path(names[1]), Path(names[1]).parent)))
        return
    print(json.dumps(compared(list(QUICK) if names == ["quick"] else list(CASES) if names == ["all"] else names)))


if __name__ == "__main__":
    main()
