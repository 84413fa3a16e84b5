"""Trains the Allegro water model with upstream's nequip-train, in pieces: each call goes on where the last one stopped.

    python train.py DATA run1 --seconds 540
    python train.py DATA run2 --start run1/last.ckpt --seconds 540

DATA has train.xyz and valid.xyz (../water-nequip/make_data.py). The first line is stage 1 (train.yaml), which the clock
ends, the second stage 2 (finetune.yaml), whose number of epochs is chosen in its first piece. OUT (run1, run2) gets
last.ckpt, written after every epoch, and console.txt; the next piece needs them there. A piece that runs out of time
loses at most one epoch. Prints the validation errors so far.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Epochs of stage 2 for each of stage 1.
SECOND_STAGE = 1.8


def epochs_of(checkpoint: Path) -> int:
    """Epochs that a checkpoint of nequip-train has behind it."""
    import torch

    return 1 + int(torch.load(checkpoint, map_location="cpu", weights_only=False)["epoch"])


def command(args: argparse.Namespace) -> list[str]:
    """nequip-train's command line."""
    start = "from nequip.scripts.train import main; main()"
    words = [sys.executable, "-c", start, "-cp", str(HERE), "-cn", "finetune" if args.start else "train"]
    words += [f"hydra.run.dir={args.out}", *args.more]
    if args.start:
        plan = args.out / "epochs.txt"
        if not plan.is_file():
            plan.write_text(f"{args.epochs or max(1, round(SECOND_STAGE * epochs_of(args.start)))}\n")
        words.append(f"epochs={plan.read_text().strip()}")
    elif args.epochs:
        words.append(f"epochs={args.epochs}")
    if args.compile:
        words.append(f"+{'trained' if args.start else 'fresh'}.compile_mode=compile")
    if (args.out / "last.ckpt").is_file():
        words.append(f"++ckpt_path={args.out / 'last.ckpt'}")
    return words


def run(words: list[str], args: argparse.Namespace, environment: dict[str, str], end: float) -> int | None:
    """Runs until it ends or its time is over; None when it was stopped."""
    with (args.out / "console.txt").open("ab") as console:
        child = subprocess.Popen(
            words, env=environment, stdout=console, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while child.poll() is None and time.time() < end:
                time.sleep(0.5)
            return child.poll()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)  # Lightning renames a checkpoint when it is complete
                child.wait()


def validation(out: Path) -> list[str]:
    """A line for every validation of every piece so far."""
    lines = []
    for path in sorted(out.glob("log/version_*/metrics.csv"), key=lambda p: int(p.parent.name.split("_")[1])):
        for row in csv.DictReader(path.open()):
            if row.get("val0_epoch/forces_rmse"):
                force, energy = (1000 * float(row[f"val0_epoch/{k}_rmse"]) for k in ("forces", "per_atom_energy"))
                lines.append(
                    f"epoch {int(row['epoch']) + 1:4d}  step {int(row['step']) + 1:6d}  "
                    f"force RMSE {force:6.1f} meV/A  energy RMSE {energy:5.2f} meV/atom"
                )
    return lines


def main() -> None:
    """Command line."""
    end = time.time()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the trainer is then stopped as well
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with train.xyz and valid.xyz")
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=Path, help="stage 2, from this checkpoint of stage 1")
    parser.add_argument("--epochs", type=int, default=0, help=f"in all; stage 2: {SECOND_STAGE} times those of stage 1")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this call")
    parser.add_argument("--compile", action="store_true", help="train with torch's compiler; eagerly if that fails")
    parser.add_argument("more", nargs="*", help="further overrides, as nequip-train takes them")
    args = parser.parse_intermixed_args()
    end += args.seconds
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, WATER_DATA=str(args.data.resolve()))
    if args.start:
        # nequip looks for it again in every piece, and when the result is loaded
        kept = args.out / "start.ckpt"
        if not kept.is_file():
            shutil.copy(args.start, kept)
        environment["WATER_START"] = str(kept)
        args.start = kept
    status = run(command(args), args, environment, end)
    if status and args.compile and end - time.time() > 30:
        print("torch's compiler failed (console.txt); on without it", flush=True)
        args.compile = False
        status = run(command(args), args, environment, end)
    print("\n".join(validation(args.out)))
    if status:
        print((args.out / "console.txt").read_text(errors="replace")[-4000:])
        raise SystemExit(status)
    print(f"stopped by the clock: the same call again goes on in {args.out}" if status is None else "done")


if __name__ == "__main__":
    main()
