"""Trains the Allegro water model with upstream's nequip-train, in pieces: each call goes on where the last one stopped.

    python train.py ../water-nequip/data run1 --seconds 540
    python train.py ../water-nequip/data run2 --config finetune --start run1/last.ckpt --epochs 20 --seconds 540

OUT (run1, run2) gets last.ckpt, written after every epoch, and console.txt; the next call needs them there. A piece that
runs out of time loses at most one epoch. Prints the validation errors so far.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def command(args: argparse.Namespace) -> list[str]:
    """nequip-train's command line."""
    start = "from nequip.scripts.train import main; main()"
    words = [sys.executable, "-c", start, "-cp", str(HERE), "-cn", args.config]
    words += [f"hydra.run.dir={args.out}", *args.more]
    if args.epochs:
        words.append(f"epochs={args.epochs}")
    if (args.out / "last.ckpt").is_file():
        words.append(f"++ckpt_path={args.out / 'last.ckpt'}")
    return words


def run(words: list[str], args: argparse.Namespace, environment: dict[str, str]) -> int | None:
    """Runs until it ends or its time is over; None when it was stopped."""
    end = time.time() + args.seconds
    with (args.out / "console.txt").open("ab") as console:
        child = subprocess.Popen(
            words, env=environment, stdout=console, stderr=subprocess.STDOUT, start_new_session=True
        )
        while child.poll() is None and time.time() < end:
            time.sleep(0.5)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)  # last.ckpt is written under another name, then renamed
            child.wait()
            return None
    return child.returncode


def validation(out: Path) -> list[str]:
    """A line for every validation of every piece so far."""
    lines = []
    for path in sorted(out.glob("log/version_*/metrics.csv"), key=lambda p: int(p.parent.name.split("_")[1])):
        for row in csv.DictReader(path.open()):
            if row.get("val0_epoch/forces_rmse"):
                force, energy = (
                    1000 * float(row[f"val0_epoch/{k}_rmse"]) for k in ("forces", "per_atom_energy")
                )
                lines.append(
                    f"epoch {int(row['epoch']) + 1:4d}  step {int(row['step']) + 1:6d}  "
                    f"force RMSE {force:6.1f} meV/A  energy RMSE {energy:5.2f} meV/atom"
                )
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with train.xyz and valid.xyz")
    parser.add_argument("out", type=Path)
    parser.add_argument("--config", default="train", help="train, large or finetune")
    parser.add_argument("--start", type=Path, help="finetune: the checkpoint of stage 1")
    parser.add_argument("--epochs", type=int, default=0, help="instead of the configuration's; the same in all pieces")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this call")
    parser.add_argument("more", nargs="*", help="further overrides, as nequip-train takes them")
    args = parser.parse_intermixed_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, WATER_DATA=str(args.data.resolve()))
    if args.start:
        environment["WATER_START"] = str(args.start.resolve())
    status = run(command(args), args, environment)
    print("\n".join(validation(args.out)))
    if status:
        print((args.out / "console.txt").read_text()[-4000:])
        raise SystemExit(status)
    if status is None:
        print(f"stopped by the clock: call again with the same {args.out} to go on")


if __name__ == "__main__":
    main()
