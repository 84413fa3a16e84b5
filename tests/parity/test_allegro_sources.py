"""Export of Allegro models from files: a checkpoint of nequip-train and a package of nequip-package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

import allegro_cases
import structures
from test_nequip_sources import CONFIG, clebsch, run

MODEL = """
    _target_: allegro.model.AllegroModel
    seed: 3
    model_dtype: float32
    type_names: [O, H]
    r_max: 4.0
    num_layers: 2
    l_max: 1
    num_scalar_features: 8
    num_tensor_features: 4
    radial_chemical_embed: {_target_: allegro.nn.TwoBodyBesselScalarEmbed}
    avg_num_neighbors: 10.0
    per_type_energy_scales: 2.0
    per_type_energy_shifts: {O: -2.0, H: -1.0}
"""

#: By day test_nequip_sources.py trains and packages, and test_allegro_export.py exports.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> Path:
    """A folder with last.ckpt and model.nequip.zip of two epochs of training."""
    allegro_cases.require_allegro()
    if "CLEBSCH_ALLEGRO_PATH" in os.environ:  # for the programs that are started
        paths = [os.environ["CLEBSCH_ALLEGRO_PATH"], os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    folder = tmp_path_factory.mktemp("training")
    frames = []
    for seed in range(4):
        atoms = structures.periodic(["O", "H"], seed, 2)
        atoms.calc = LennardJones(epsilon=0.1, sigma=1.5, rc=4)
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        frames.append(atoms)
    write(folder / "data.xyz", frames)
    (folder / "train.yaml").write_text(CONFIG.split("    _target_: nequip.model.NequIPGNNModel")[0] + MODEL)
    programs = Path(sys.executable).parent
    run([str(programs / "nequip-train"), "-cp", str(folder), "-cn", "train", f"hydra.run.dir={folder}"], folder)
    run([str(programs / "nequip-package"), "build", "last.ckpt", "model.nequip.zip"], folder)
    return folder


def test_command_line(training, needs_library):
    """export, info and check; checkpoint and package give the same weights."""
    for source, out in (("last.ckpt", "a.pt"), ("model.nequip.zip", "b.pt")):
        refused = clebsch(training, "export", "allegro", source, out)
        assert refused.returncode == 1 and "--trust" in refused.stderr and not (training / out).exists()
        done = clebsch(training, "export", "allegro", source, out, "--trust", "--radial-tolerance", "1e-5")
        assert done.returncode == 0 and "compared with upstream" in done.stdout, done.stdout + done.stderr
    first, second = (dict(torch.jit.load(str(training / out)).named_buffers()) for out in ("a.pt", "b.pt"))
    assert first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)
    done = clebsch(training, "info", "a.pt")
    assert done.returncode == 0, done.stderr
    assert "strictly local, 2 layers: 8 scalars, 4 channels of 1x0e+1x1o -> " in done.stdout, done.stdout
    assert "from nequip-allegro 0.8.3 last.ckpt" in done.stdout and "4 radial tables of 128 pieces" in done.stdout
    done = clebsch(training, "check", "a.pt", "--against", "last.ckpt", "--trust")
    assert done.returncode == 0 and "FAIL" not in done.stdout, done.stdout + done.stderr
