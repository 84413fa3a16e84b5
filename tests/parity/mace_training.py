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
    return {
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


def losses(model: torch.nn.Module, steps: int = 3) -> list[float]:
    data = frame()
    target = torch.randn(9, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
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
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
