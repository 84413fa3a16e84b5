"""Trains the carbon model with upstream's mace_run_train, in pieces: each call goes on where the last one stopped.

    python train.py DATA OUT [--seconds 440] [--total 840 | --epochs 56] [--device cuda] [--first]

DATA has train.xyz and valid.xyz (make_data.py), or data.tar.xz with them. OUT gets state.tar (checkpoints, logs and the
schedule: the next call needs it there), log.txt and, once the last epoch is done, the models.

The first call times an epoch and chooses the number of epochs so that all fit into `--total` seconds, unless it is told
the number. The last part is stage two, with heavier weights on energies and stress. `--until EPOCH --rate RATE` ends
stage two with that epoch, at another learning rate from the newest checkpoint on. Needs mace-torch 0.3.16.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

#: LCBOP ends at 6 A, but beyond 5 A it is worth less than 1 meV a pair. It has features as narrow as 0.05 A; steps of
#: 1 fs at 1500 K jump over them, and LCBOP itself does not conserve energy. So the radial basis cannot follow them.
MODEL = """--model ScaleShiftMACE --r_max 5.0 --num_radial_basis 12 --radial_MLP [64,64,64] --num_cutoff_basis 5
    --max_ell 3 --correlation 3 --hidden_irreps 32x0e+32x1o --num_interactions 2 --default_dtype float32"""
#: Huber losses, and make_data.py's weights: structures far from equilibrium must not count for more than the crystals.
LOSS = """--loss universal --energy_weight 20 --forces_weight 10 --stress_weight 500 --compute_stress True
    --swa_forces_weight 10 --error_table PerAtomRMSEstressvirials"""
STEPS = """--batch_size 16 --valid_batch_size 32 --ema --ema_decay 0.995 --amsgrad --clip_grad 10
    --scheduler ExponentialLR --patience 1000 --eval_interval 1 --seed 7"""
FIRST_RATE, LAST_RATE = 0.01, 0.0003


@dataclass(frozen=True)
class StageTwo:
    """The last epochs: weights on energies and stress, learning rate, share of the epochs."""

    energy: float
    stress: float
    rate: float
    share: float


#: `--first`: the recipe before. It tried to follow LCBOP with more Bessel functions and a wider radial network, and its
#: three epochs of stage two could not lift vacancies that stage one had left 3.3 eV too low in the training data.
#: make_data.py now weights energies of defects so that stage one counts them.
FIRST_MODEL = "--num_radial_basis 24 --radial_MLP [128,128,128]"
FIRST_STAGE_TWO = StageTwo(1000, 5000, 0.0002, 0.2)
STAGE_TWO = StageTwo(200, 2000, 0.0005, 0.3)
EPOCH = re.compile(r"INFO: Epoch (\d+): ")


def command(device: str, last: int, gamma: float, second: int | None, stage: StageTwo, more: list[str]) -> list[str]:
    """mace_run_train's command line: `last` epochs, stage two from `second`."""
    words = [sys.executable, "-m", "mace.cli.run_train", "--name", "carbon", "--work_dir", ".", "--device", device]
    words += ["--train_file", "train.xyz", "--valid_file", "valid.xyz", "--E0s", "{6: 0.0}"]
    words += ["--energy_key", "energy", "--forces_key", "forces", "--stress_key", "stress"]
    words += [*MODEL.split(), *LOSS.split(), *STEPS.split(), "--lr", str(FIRST_RATE), "--swa_lr", str(stage.rate)]
    words += ["--swa_energy_weight", str(stage.energy), "--swa_stress_weight", str(stage.stress)]
    words += ["--lr_scheduler_gamma", f"{gamma:.6f}", "--max_num_epochs", str(last), "--restart_latest"]
    words += ["--plot", "False", "--save_cpu", *more]
    return words if second is None else [*words, "--swa", "--start_swa", str(second)]


def follow(words: list[str], folder: Path, end: float, stop_after: int | None = None) -> tuple[int | None, list[float]]:
    """Runs until it ends, `end` (s of time.time()) comes, or epoch `stop_after` is done. Returns the exit status, None
    when it was stopped, and when each epoch was done."""
    seen: list[float] = []
    with (folder / "console.txt").open("ab") as console:
        child = subprocess.Popen(words, cwd=folder, stdout=console, stderr=subprocess.STDOUT, start_new_session=True)
        position = console.tell()
        text = ""
        while child.poll() is None:
            time.sleep(0.2)
            with (folder / "console.txt").open("rb") as grown:
                grown.seek(position)
                news = grown.read()
            position += len(news)
            text += news.decode(errors="replace")
            epochs = EPOCH.findall(text)
            seen += [time.time()] * (len(epochs) - len(seen))
            if time.time() > end or (stop_after is not None and len(seen) > stop_after):
                time.sleep(2.0)  # the checkpoint of that epoch
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return None, seen
    return child.returncode, seen


def schedule(epochs: int, stage: StageTwo) -> dict:
    """Epochs in all, the first of stage two, and the factor of the learning rate from epoch to epoch."""
    second = max(3, round((1 - stage.share) * epochs))
    return {"epochs": epochs, "stage_two": second, "gamma": (LAST_RATE / FIRST_RATE) ** (1 / second)}


def keep(folder: Path, out: Path) -> None:
    """The newest checkpoint of each stage, the logs and the schedule as state.tar; log.txt and the models."""
    newest: dict[bool, tuple[int, Path]] = {}
    for path in (folder / "checkpoints").glob("*_epoch-*.pt"):
        epoch = int(re.search(r"_epoch-(\d+)", path.name)[1])
        newest[path.stem.endswith("_swa")] = max(newest.get(path.stem.endswith("_swa"), (-1, path)), (epoch, path))
    with tarfile.open(out / "state.tar", "w") as tar:
        for path in [p for _, p in newest.values()] + [*(folder / "logs").glob("*.log"), folder / "schedule.json"]:
            if path.is_file():
                tar.add(path, path.relative_to(folder))
    logs = sorted(path for path in (folder / "logs").glob("*.log") if "debug" not in path.name)
    (out / "log.txt").write_text("".join(path.read_text() for path in logs))
    for name in ("carbon.model", "carbon_stagetwo.model"):
        if (folder / name).is_file():
            (out / name).write_bytes((folder / name).read_bytes())


def leave_out(folder: Path, kind: str) -> None:
    """Takes the frames of a kind out of the training and validation data in `folder`."""
    from ase.io import read, write

    for part in ("train.xyz", "valid.xyz"):
        frames = read(folder / part, ":")
        kept = [frame for frame in frames if frame.info["kind"] != kind]
        if len(kept) == len(frames):
            raise SystemExit(f"{part}: expected frames of kind {kind!r}, got none")
        write(folder / part, kept)


def change_rate(folder: Path, until: int, rate: float) -> None:
    """Stage two ends with epoch `until` and goes on at `rate`, which the newest checkpoint must say too."""
    import torch

    found = (folder / "checkpoints").glob("*_swa.pt")
    newest = max(found, key=lambda path: int(re.search(r"-(\d+)_swa", path.name)[1]))
    checkpoint = torch.load(newest, map_location="cpu", weights_only=False)
    for group in checkpoint["optimizer"]["param_groups"]:
        group["lr"] = group["swa_lr"] = rate
    torch.save(checkpoint, newest)
    plan = folder / "schedule.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"epochs": until, "rate": rate}) + "\n")


def main() -> None:
    """Command line."""
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=440.0, help="of this call")
    parser.add_argument("--total", type=float, default=840.0, help="seconds of training in all calls")
    parser.add_argument("--epochs", type=int, default=0, help="instead of a number that fits into --total")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--first", action="store_true", help="the recipe before this one")
    parser.add_argument("--until", type=int, default=0, help="last epoch of stage two, with --rate")
    parser.add_argument("--rate", type=float, default=0.0, help="learning rate from the newest checkpoint on")
    parser.add_argument("--leave-out", default="", help="kinds of frames that no call trains with: path,cluster")
    parser.add_argument("--more", default="", help="further options of mace_run_train")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    stage = FIRST_STAGE_TWO if args.first else STAGE_TWO
    end, more = started + args.seconds, (FIRST_MODEL if args.first else "").split() + args.more.split()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if (args.data / "data.tar.xz").is_file():
            with tarfile.open(args.data / "data.tar.xz") as tar:
                tar.extractall(folder, filter="data")
        else:
            for part in ("train.xyz", "valid.xyz"):
                (folder / part).write_bytes((args.data / part).read_bytes())
        if (args.out / "state.tar").is_file():
            with tarfile.open(args.out / "state.tar") as tar:
                tar.extractall(folder, filter="data")
        status: int | None = 0
        plan = folder / "schedule.json"
        if plan.is_file():
            args.leave_out = json.loads(plan.read_text()).get("leave_out", args.leave_out)
        for kind in filter(None, args.leave_out.split(",")):
            leave_out(folder, kind)
        if args.until and args.rate:
            change_rate(folder, args.until, args.rate)
        if args.epochs and not plan.is_file():
            plan.write_text(json.dumps(schedule(args.epochs, stage) | {"leave_out": args.leave_out}) + "\n")
        if not plan.is_file():
            status, seen = follow(command(args.device, 1000, 1.0, None, stage, more), folder, end, stop_after=1)
            if len(seen) >= 2:
                epochs = max(5, int(args.total / (seen[1] - seen[0])))
                plan.write_text(json.dumps(schedule(epochs, stage) | {"leave_out": args.leave_out}) + "\n")
            # a checkpoint keeps the factor of the learning rate, so this one is of no use
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        if plan.is_file():
            chosen = json.loads(plan.read_text())
            print(chosen, flush=True)
            stage = replace(stage, rate=chosen.get("rate", stage.rate))
            words = command(args.device, chosen["epochs"], chosen["gamma"], chosen["stage_two"], stage, more)
            status, _ = follow(words, folder, end)
            keep(folder, args.out)
            print("\n".join((args.out / "log.txt").read_text().splitlines()[-25:]))
        if status not in (0, None) or not plan.is_file():
            print((folder / "console.txt").read_text()[-4000:])
            raise SystemExit(status or 1)
        if status is None:
            print(f"not done: call again with the same {args.out}")


if __name__ == "__main__":
    main()
