"""What an exchange between two GPUs costs: nothing, bytes, and rows taken out and added. Records of constants.json.

    gpu_transports measure LINKS.jsonl on two ranks       (benchmarks/device/pack_transports.sh)
    python3 benchmarks/scaling/links.py OUT.json --measured LINKS.jsonl [--device cuda]

gpus2_round_us and gpus2_link_gb_s are the plugin's own exchange through NCCL, which gpu_transports times with rows
packed and added: the median of forward and reverse of the fewest bytes, and what the most bytes take beyond a quarter
of them. Without --measured two processes, a GPU each, send through NCCL as torch has it, whose calls from Python take
longer than such an exchange. gpus2_pack_gb_s: rows of MACE-M (513 float32) picked by index and added by index, bytes
read and written. What arrives is compared before it is timed. `--device cpu` rehearses it with gloo; its records are no
GPU's.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

SMALL, MIDDLE, LARGE = 4, 17 * 1000 * 1000, 268 * 1000 * 1000  # bytes
REPEATS, ROUNDS = 9, 20
ROWS, COPIES, WIDTH = 32000, 12000, 513


def seconds(work, rounds: int, device: torch.device) -> list[float]:
    """Of one call, from `rounds` enqueued together, REPEATS times."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(3):
        work()
    times = []
    for _ in range(REPEATS):
        wait()
        begin = time.perf_counter()
        for _ in range(rounds):
            work()
        wait()
        times.append((time.perf_counter() - begin) / rounds)
    return times


def exchange(rank: int, size: int, device: torch.device):
    """A call that sends so many bytes to the other process and receives as many."""
    sent = torch.full((size // 4,), float(rank + 1), device=device)
    got = torch.zeros_like(sent)

    def work() -> None:
        calls = [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]
        for call in dist.batch_isend_irecv(calls):
            call.wait()  # with NCCL the stream waits, not the host

    work()
    if not bool((got == 2 - rank).all()):
        raise SystemExit(f"an exchange of {size} bytes: expected {2 - rank} everywhere, got something else")
    return work


def pack(device: torch.device) -> list[float]:
    """GB/s of rows copied out and added back, together."""
    features = torch.randn(ROWS, WIDTH, device=device)
    index = torch.randperm(ROWS, device=device)[:COPIES]
    buffer, sums = torch.empty(COPIES, WIDTH, device=device), torch.zeros_like(features)

    def work() -> None:
        torch.index_select(features, 0, index, out=buffer)
        sums.index_add_(0, index, buffer)

    work()
    if not torch.equal(sums[index], features[index]):
        raise SystemExit("rows picked and added: expected the rows themselves, got others")
    moved = COPIES * WIDTH * 4 * (2 + 3)
    return [moved / t / 1e9 for t in seconds(work, ROUNDS, device)]


def tell(values: dict[str, tuple[str, list[float]]], kind: str) -> list[dict]:
    """Prints and returns the records of (unit, what was measured) by name."""
    records = []
    for name, (unit, found) in values.items():
        value, spread = common.quartiles(found)
        print(f"{name} {value:.4g} {unit} (spread {spread:.2g})")
        records.append({"name": name, "value": value, "unit": unit, "spread": spread, "dtype": "float32",
                        "deterministic": True, "error": 0.0, "peer": None} | common.about(kind))  # fmt: skip
    return records


def process(rank: int, port: int, out: str, kind: str) -> None:
    """One of the two."""
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", init_method=where, rank=rank, world_size=2)
    large = LARGE if kind == "cuda" else MIDDLE * 2
    times = {size: seconds(exchange(rank, size, device), ROUNDS if size < LARGE else 5, device)
             for size in (SMALL, MIDDLE, large)}  # fmt: skip
    if rank == 0:
        rates = [(large - MIDDLE) / (b - a) / 1e9 for a, b in zip(times[MIDDLE], times[large], strict=True)]
        values = {
            "gpus2_round_us": ("us", [1e6 * t for t in times[SMALL]]),
            "gpus2_link_gb_s": ("GB/s", rates),
            "gpus2_pack_gb_s": ("GB/s", pack(device)),
        }
        records = tell(values, kind)
        for size, found in times.items():
            print(f"  {size:>10} bytes: {1e6 * common.quartiles(found)[0]:.1f} us")
        common.save(out, records)
    dist.barrier()
    dist.destroy_process_group()


def measured(path: Path, kind: str) -> list[dict]:
    """Records of the lines that gpu_transports wrote."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    halo = sorted((p for p in lines if (p["transport"], p["way"]) == ("nccl", "halo")), key=lambda p: p["bytes"])
    if len(halo) < 2:
        raise SystemExit(f"{path}: expected exchanges by NCCL of several sizes, got {len(halo)} lines of them")
    few, many = halo[0], halo[-1]
    quarter = next(p for p in halo if 4 * p["bytes"] >= many["bytes"])
    both = ("forward_s", "reverse_s")
    rates = [(many["bytes"] - quarter["bytes"]) / (many[key] - quarter[key]) / 1e9 for key in both]
    values = {"gpus2_round_us": ("us", [1e6 * few[key] for key in both]), "gpus2_link_gb_s": ("GB/s", rates)}
    return tell(values, kind)


def main() -> int:
    """Measures and writes OUT.json; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--measured", type=Path, help="what gpu_transports measure has written")
    args = parser.parse_args()
    if args.device == "cuda" and torch.cuda.device_count() < 2:
        raise SystemExit(f"expected two GPUs, got {torch.cuda.device_count()}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(process, (port, args.out, args.device), nprocs=2)
    if args.measured:
        better = measured(args.measured, args.device)
        names = {row["name"] for row in better}
        rows = [row for row in json.loads(Path(args.out).read_text()) if row["name"] not in names]
        common.save(args.out, rows + better)
    return 0


if __name__ == "__main__":
    sys.exit(main())
