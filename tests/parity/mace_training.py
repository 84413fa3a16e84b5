"""Run by test_mace_training.py where mace-torch is: trains a small MACE with and without Clebsch, prints JSON."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

warnings.simplefilter("ignore")

import mace  # noqa: E402, F401 - before e3nn: it allows e3nn 0.4.4 to load its constants
import numpy as np  # noqa: E402
import torch  # noqa: E402
from ase.neighborlist import primitive_neighbor_list  # noqa: E402
from e3nn import o3  # noqa: E402
from mace import modules  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.compare import compare_file, upstream_mace  # noqa: E402
from clebsch.errors import ClebschError  # noqa: E402
from clebsch.training.mace import ClebschConv, ClebschSymmetricContraction, enable_clebsch  # noqa: E402

AGNOSTIC, RESIDUAL = "RealAgnosticInteractionBlock", "RealAgnosticResidualInteractionBlock"
DENSITY, DENSITY_RESIDUAL = "RealAgnosticDensityInteractionBlock", "RealAgnosticDensityResidualInteractionBlock"

#: name -> blocks, correlation and hidden irreps. The last two have paths such as 1e x 2e -> 2e, of l1 + l2 + l3 odd
#: and two equal degrees, whose coupling has another sign in e3nn 0.4.4.
CASES = {
    "residual": (AGNOSTIC, RESIDUAL, 3, "5x0e+5x1o"),
    "density": (DENSITY, DENSITY_RESIDUAL, 2, "5x0e+5x1o"),
    "use_so3": (RESIDUAL, RESIDUAL, 2, "5x0e+5x1e"),
    "both-parities": (RESIDUAL, RESIDUAL, 3, "3x0e+3x0o+3x1e+3x1o+3x2e+3x2o"),
}


def model_of(name: str) -> torch.nn.Module:
    first, later, correlation, hidden = CASES[name]
    torch.manual_seed(1)
    return modules.ScaleShiftMACE(
        r_max=4.0,
        num_bessel=4,
        num_polynomial_cutoff=5,
        max_ell=2,
        interaction_cls=modules.interaction_classes[later],
        interaction_cls_first=modules.interaction_classes[first],
        num_interactions=2,
        num_elements=2,
        hidden_irreps=o3.Irreps(hidden),
        use_so3=name == "use_so3",
        MLP_irreps=o3.Irreps("4x0e"),
        atomic_energies=np.zeros(2),
        avg_num_neighbors=8.0,
        atomic_numbers=[1, 8],
        correlation=correlation,
        gate=torch.nn.functional.silu,
        radial_MLP=[8, 8],
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
    )


def frame() -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(5)
    positions = rng.uniform(0, 4.5, (9, 3))
    cell = np.eye(3) * 4.5
    i, j, shifts = primitive_neighbor_list("ijS", (True,) * 3, cell, positions, 4.0, self_interaction=False)
    species = torch.tensor(rng.integers(0, 2, 9))
    data = {
        "positions": torch.tensor(positions),
        # MACE: (sender, receiver), vector from the first to the second.
        "edge_index": torch.tensor(np.stack([i, j])),
        "shifts": torch.tensor(shifts @ cell),
        "unit_shifts": torch.tensor(shifts, dtype=torch.float64),
        "cell": torch.tensor(cell),
        "node_attrs": torch.nn.functional.one_hot(species, 2).double(),
        "batch": torch.zeros(9, dtype=torch.int64),
        "ptr": torch.tensor([0, 9]),
    }
    kind = torch.get_default_dtype()
    return {key: value.to(kind) if value.is_floating_point() else value for key, value in data.items()}


def losses(model: torch.nn.Module, steps: int = 3) -> list[float]:
    data = frame()
    target = torch.randn(9, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(data["cell"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(dict(data), training=True)
        loss = (out["forces"] - target).square().mean() + 0.01 * out["energy"].square().sum()
        loss.backward()
        optimizer.step()
        values.append(float(loss))
    return values


def energies_of(model: torch.nn.Module) -> list[float]:
    return model(frame(), training=False)["node_energy"].tolist()


def saved(name: str) -> dict:
    """What is left of a model that trains on Clebsch's operations after a round trip through a file, as mace_run_train
    makes one at its end, and the errors of an export from that file."""
    model = enable_clebsch(model_of(name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "enabled.model"
        energies_of(model)
        torch.save(model, path)
        again = torch.load(path, weights_only=False)
        # Copies on a device would come back under that device's name from wherever the file is read to.
        assert not any(block.symmetric_contractions.basis._converted for block in again.products)
        made = export.mace(path, Path(folder) / "enabled.pt", verify=False)
        plain = model_of(name)
        answers = partial(upstream_mace, plain, numbers=made.metadata["atomic_numbers"])
        errors = compare_file(made.path, answers, seeds=1)
    return {
        "same_state_dict": list(again.state_dict()) == list(model.state_dict()),
        "energies": [energies_of(m) for m in (model, again, pickle.loads(pickle.dumps(again)))],
        "plain": energies_of(plain),
        "trained": losses(again) == losses(model),
        "export": errors,
    }


def modes() -> dict:
    """Losses in float32 of a model that was evaluated under inference_mode, or whose contraction was exported, before:
    what these leave must not be trained on. And of one in validation's modes, exported to a file."""
    torch.set_default_dtype(torch.float32)
    found = {}
    try:
        for name in ("none", "inference", "export"):
            model = enable_clebsch(model_of("residual"))
            if name == "inference":
                with torch.inference_mode():
                    model(frame(), training=False, compute_force=False)
            elif name == "export":
                block = model.products[0].symmetric_contractions
                irreps = block.irreps_in
                given = torch.randn(4, irreps[0].mul, irreps.dim // irreps[0].mul), torch.eye(2)[[0, 1, 1, 0]]
                torch.export.export(block, given)
            found[name] = losses(model)
    finally:
        torch.set_default_dtype(torch.float64)
    model = model_of("residual").train()
    model.readouts.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        export.mace(model, Path(folder) / "one.pt")
        with torch.inference_mode():
            export.mace(model, Path(folder) / "two.pt")
    return found | {"training": [model.training, model.readouts.training, model.interactions.training]}


def loaded() -> dict:
    """Energies of a state_dict in another basis of paths (U Q, Q' W: the same function), loaded before and after."""
    plain = model_of("residual")
    state, generator = plain.state_dict(), torch.Generator().manual_seed(5)
    for name in [name for name in state if "U_matrix_" in name]:
        order, part = int(name.rsplit("_", 1)[1]), name.rsplit(".", 1)[0]
        orders = len([other for other in state if other.startswith(f"{part}.U_matrix_")])
        weights = f"{part}.weights_max" if order == orders else f"{part}.weights.{orders - 1 - order}"
        paths = state[name].shape[-1]
        turn = torch.linalg.qr(torch.randn(paths, paths, generator=generator))[0]
        state[name] = state[name] @ turn
        state[weights] = torch.einsum("pq,zpc->zqc", turn, state[weights])
    before, after = model_of("residual"), enable_clebsch(model_of("residual"))
    before.load_state_dict(state)
    after.load_state_dict(state)
    return {"expected": energies_of(plain), "got": [energies_of(m) for m in (enable_clebsch(before), after)]}


def hooked() -> list[str]:
    """What is said of hooks on what would be swapped."""
    said = []
    for part in ("interactions", "products"):
        model = model_of("residual")
        block = getattr(model, part)[1]
        (block.conv_tp if part == "interactions" else block.symmetric_contractions).register_forward_hook(print)
        before = [type(module).__name__ for module in model.modules()]
        try:
            enable_clebsch(model)
        except ClebschError as error:
            said.append(str(error))
        assert [type(module).__name__ for module in model.modules()] == before
    return said


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    results = {}
    for name in CASES:
        model = model_of(name)
        ours = enable_clebsch(model_of(name))  # not a copy: mace-torch's empty parameters cannot be copied
        results[name] = {
            "converted": sum(isinstance(m, ClebschConv) for m in ours.modules()),
            "products": sum(isinstance(m, ClebschSymmetricContraction) for m in ours.modules()),
            "same_state_dict": list(ours.state_dict()) == list(model.state_dict()),
            "expected": losses(model),
            "got": losses(ours),
        }
    results["saved"] = {name: saved(name) for name in ("residual", "use_so3")}
    try:
        enable_clebsch(torch.nn.Linear(1, 1))
    except ClebschError as error:
        results["refused"] = str(error)
    results |= {"modes": modes(), "loaded": loaded(), "hooked": hooked()}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
