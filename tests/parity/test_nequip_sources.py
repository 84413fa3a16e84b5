"""Export from files: a checkpoint of nequip-train (averaged weights) and a package of nequip-package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

import structures
from clebsch.model_file import read_metadata

CONFIG = """
run: [train]
data:
  _target_: nequip.data.datamodule.ASEDataModule
  seed: 1
  train_file_path: data.xyz
  val_file_path: data.xyz
  transforms:
    - _target_: nequip.data.transforms.ChemicalSpeciesToAtomTypeMapper
      model_type_names: [O, H]
    - _target_: nequip.data.transforms.NeighborListTransform
      r_max: 4.0
  train_dataloader: {_target_: torch.utils.data.DataLoader, batch_size: 2}
  val_dataloader: {_target_: torch.utils.data.DataLoader, batch_size: 2}
trainer:
  _target_: lightning.Trainer
  accelerator: cpu
  max_epochs: 2
  enable_progress_bar: false
  logger: false
  callbacks:
    - {_target_: lightning.pytorch.callbacks.ModelCheckpoint, dirpath: ., save_last: true}
training_module:
  _target_: nequip.train.EMALightningModule
  ema_decay: 0.5
  loss: {_target_: nequip.train.EnergyForceLoss}
  val_metrics: {_target_: nequip.train.EnergyForceMetrics}
  optimizer: {_target_: torch.optim.Adam, lr: 0.01}
  model:
    _target_: nequip.model.NequIPGNNModel
    seed: 3
    model_dtype: float32
    type_names: [O, H]
    r_max: 4.0
    num_layers: 2
    l_max: 1
    num_features: 4
    radial_mlp_width: 8
    avg_num_neighbors: 10.0
    per_type_energy_scales: 2.0
    per_type_energy_shifts: {O: -2.0, H: -1.0}
"""


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def clebsch(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "ignore", "-m", "clebsch", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> Path:
    """A folder with last.ckpt and model.nequip.zip of two epochs of training."""
    folder = tmp_path_factory.mktemp("training")
    frames = []
    for seed in range(4):
        atoms = structures.periodic(["O", "H"], seed, 2)
        atoms.calc = LennardJones(epsilon=0.1, sigma=1.5, rc=4)
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        frames.append(atoms)
    write(folder / "data.xyz", frames)
    (folder / "train.yaml").write_text(CONFIG)
    programs = Path(sys.executable).parent
    run([str(programs / "nequip-train"), "-cp", str(folder), "-cn", "train", f"hydra.run.dir={folder}"], folder)
    run([str(programs / "nequip-package"), "build", "last.ckpt", "model.nequip.zip"], folder)
    return folder


def buffers(path: Path) -> dict[str, torch.Tensor]:
    return dict(torch.jit.load(str(path)).named_buffers())


def test_checkpoint_package_and_object_give_the_same_file(training):
    from clebsch import export
    from clebsch.export import from_nequip

    for source, out in (("last.ckpt", "a.pt"), ("model.nequip.zip", "b.pt")):
        refused = clebsch(training, "export", "nequip", source, out)
        assert refused.returncode == 1 and "--trust" in refused.stderr and not (training / out).exists()
        done = clebsch(training, "export", "nequip", source, out, "--trust", "--note", "two epochs")
        assert done.returncode == 0, done.stderr
    model = from_nequip.load(training / "last.ckpt")
    result = export.nequip(model, training / "c.pt", verify=False)
    first = buffers(training / "a.pt")
    for other in ("b.pt", "c.pt"):
        values = buffers(training / other)
        assert values.keys() == first.keys()
        assert all(torch.equal(values[k], first[k]) for k in first)
    meta = read_metadata(training / "a.pt")
    assert meta["training_note"] == "two epochs" and meta["upstream"]["source"] == "last.ckpt"
    assert result.metadata["layers"] == 2 and os.path.getsize(training / "a.pt") < 100_000


def test_averaged_weights_are_exported(training):
    from nequip.train import EMALightningModule

    from clebsch.export import from_nequip

    trained = EMALightningModule.load_from_checkpoint(training / "last.ckpt", weights_only=False)
    raw = from_nequip.select_model(trained.model).model.func.type_embed.embed_module.weight
    averaged = from_nequip.describe(from_nequip.load(training / "last.ckpt")).embedding
    fresh = from_nequip.describe(trained.model).embedding
    assert raw.abs().max() > 0 and not torch.equal(averaged, fresh)


def test_check_against_the_checkpoint(training, needs_library):
    done = clebsch(training, "export", "nequip", "last.ckpt", "d.pt", "--trust", "--radial-tolerance", "1e-4")
    assert done.returncode == 0, done.stderr
    assert "compared with upstream" in done.stdout
    done = clebsch(training, "check", "d.pt", "--against", "last.ckpt", "--trust")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout and "against upstream, float32, radial table" in done.stdout


@pytest.mark.nightly
def test_a_tolerance_out_of_reach(training, needs_library):
    done = clebsch(training, "export", "nequip", "last.ckpt", "e.pt", "--trust", "--radial-tolerance", "1e-13")
    assert done.returncode == 1 and "radial_tolerance" in done.stderr and not (training / "e.pt").exists()


def test_export_in_another_python(training):
    done = clebsch(training, "export", "nequip", "last.ckpt", "f.pt", "--trust", "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    assert read_metadata(training / "f.pt")["dtype"] == "float32"
    done = clebsch(training, "export", "nequip", "last.ckpt", "g.pt", "--trust", "--python", "/no/such/python")
    assert done.returncode == 1 and "/no/such/python" in done.stderr
