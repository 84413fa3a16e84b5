"""Time of attention against the length: spherical attention in linear time and streamed, softmax attention by
FlashAttention-2 and cuDNN; and the picture of docs/attention.md.

  benchmarks/run attention-length                                      # attention_length.json
  python benchmarks/attention/length.py --draw attention_length.json   # docs/images/attention_length.png

Microseconds of forward passes, replays of CUDA graphs, float16; a length at which a contender would take more than
--most microseconds is left to the others. Linear and streamed results are compared with each other before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/attention"), str(ROOT / "src/python")]

import common  # noqa: E402
from timing import error_of, forward_times  # noqa: E402

from clebsch.attention import spherical_attention  # noqa: E402

PICTURE = ROOT / "docs/images/attention_length.png"
HEADS, D = 16, 64
LENGTHS = [2**n for n in range(9, 19)]


def linear(q, k, v):
    return spherical_attention(q, k, v)[0]


def streamed(q, k, v):
    return spherical_attention(q, k, v, method="stream")[0]


def softmax(backend):
    def call(q, k, v):
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return call


CONTENDERS = {
    "spherical, linear": linear,
    "spherical, streamed": streamed,
    "FlashAttention-2 (softmax)": softmax(SDPBackend.FLASH_ATTENTION),
    "cuDNN (softmax)": softmax(SDPBackend.CUDNN_ATTENTION),
}


def measure(repeats: int, most: float) -> dict:
    """Times by contender and length."""
    times: dict[str, dict[int, float]] = {name: {} for name in CONTENDERS}
    left_out: set[str] = set()
    for length in LENGTHS:
        random = torch.Generator(device="cuda").manual_seed(1)
        tensors = [torch.randn(1, HEADS, length, D, generator=random, device="cuda").half() for _ in range(3)]
        error = None
        for name, call in CONTENDERS.items():
            if name != "spherical, linear" and 4 * times[name].get(length // 2, 0.0) > most:
                left_out.add(name)
            if name in left_out:
                continue
            try:
                if name == "spherical, streamed":
                    with torch.no_grad():
                        error = error_of(call(*tensors), linear(*tensors).double())
                    if not error <= 1e-3:
                        raise SystemExit(
                            f"length {length}: linear and streamed differ by {error}, expected 1e-3 at most"
                        )
                times[name][length] = statistics.median(forward_times(call, tensors, repeats)[0])
            except RuntimeError as problem:  # a backend that is not there
                print(f"  {name}: {str(problem).splitlines()[0]}", flush=True)
        shown = ", ".join(f"{name} {row[length]:.1f}" for name, row in times.items() if length in row)
        print(f"{length:7d}: {shown} us{'' if error is None else f', difference {error:.1e}'}", flush=True)
    return {"heads": HEADS, "d": D, "times": times, **common.about("cuda")}


def draw(found: dict, path: Path) -> None:
    """Both axes logarithmic; a straight line has slope 1 or 2."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, row in found["times"].items():
        lengths = sorted(map(int, row))
        values = [row[str(length)] if str(length) in row else row[length] for length in lengths]
        axis.plot(lengths, values, "o-" if name.startswith("spherical") else "s--", label=name, markersize=4)
    axis.set_xscale("log", base=2)
    axis.set(yscale="log", xlabel="length", ylabel="microseconds, forward")
    axis.set_title(f"{found['machine']}: {found['heads']} heads of {found['d']}, float16", fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("attention_length.json"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--most", type=float, default=2e4, help="microseconds that a call may take")
    parser.add_argument("--draw", type=Path, help="draws the picture of the docs from this file, and measures nothing")
    options = parser.parse_args()
    if options.draw:
        draw(json.loads(options.draw.read_text()), PICTURE)
        return
    found = measure(options.repeats, options.most)
    common.save(options.json, found)


if __name__ == "__main__":
    main()
