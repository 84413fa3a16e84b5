"""Streamed attention beside softmax attention by FlashAttention-2 and cuDNN and torch's composition, which keeps all
weights; a wrong answer is not timed.

  benchmarks/run attention-stream [--device cuda]

TFLOP/s count 4 N^2 d a head forward, the two products. Times are of graph replays, or of calls in a loop where a
contender cannot be captured, and of forward + backward calls in a loop. Errors are root mean squares of one head
against the formula in float64 on the rounded inputs, in those of the output.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/attention"), str(ROOT / "src/python")]

import common  # noqa: E402
from timing import both_times, error_of, forward_times, peak_memory  # noqa: E402

from clebsch.attention import spherical_attention, stream_attention_reference  # noqa: E402

SEQUENCES, HEADS, LENGTH = 4, 16, 4096
#: head size, dtype, whether there is a mask, name of the record.
CASES = [
    (64, torch.float16, False, "spherical_stream_tflops"),
    (64, torch.float16, True, "spherical_stream_mask_tflops"),
    (128, torch.float16, False, "spherical_stream_d128_tflops"),
    (128, torch.float16, True, "spherical_stream_d128_mask_tflops"),
    (64, torch.bfloat16, False, "spherical_stream_bf16_tflops"),
]
BOUND = {torch.float16: 6e-4, torch.bfloat16: 5e-3}


def ours(mask):
    return lambda q, k, v: spherical_attention(q, k, v, method="stream", mask=mask)[0]


def composition(mask):
    def call(q, k, v):
        w = q @ (k * 2.0**-6).transpose(-1, -2)  # within the range of a half
        if mask is not None:
            w = w * mask
        return (w @ v) / torch.linalg.vector_norm(w, dim=-1, keepdim=True, dtype=torch.float32).to(q.dtype)

    return call


def softmax(backend, mask):
    def call(q, k, v):
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="attention_stream.json")
    parser.add_argument("--records", default="attention_stream_records.json")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    device, repeats = options.device, options.repeats
    rows, records = [], []
    for d, dtype, masked, name in CASES:
        random = torch.Generator(device=device).manual_seed(1)
        tensors = [
            torch.randn(SEQUENCES, HEADS, LENGTH, d, generator=random, device=device).to(dtype) for _ in range(3)
        ]
        mask = torch.rand(LENGTH, LENGTH, generator=random, device=device) < 0.7 if masked else None
        contenders = {"clebsch": ours(mask)}
        if not options.no_peers:
            contenders["torch"] = composition(mask)
            if masked:
                contenders["memory-efficient (softmax)"] = softmax(SDPBackend.EFFICIENT_ATTENTION, mask)
            else:
                contenders["FlashAttention-2 (softmax)"] = softmax(SDPBackend.FLASH_ATTENTION, None)
            contenders["cuDNN (softmax)"] = softmax(SDPBackend.CUDNN_ATTENTION, mask)
        with torch.no_grad():
            expected = stream_attention_reference(*(t[:1, :1].double() for t in tensors), mask=mask)[0]
        operations = 4 * SEQUENCES * HEADS * LENGTH**2 * d
        print(f"({SEQUENCES}, {HEADS}, {LENGTH}, {d}) {dtype}{' with a mask' if masked else ''}", flush=True)
        found = {}
        for label, call in contenders.items():
            try:
                with torch.no_grad():
                    error = None if "softmax" in label else error_of(call(*tensors)[:1, :1], expected)
                if label == "clebsch" and not error <= BOUND[dtype]:
                    raise SystemExit(f"clebsch: expected an error of at most {BOUND[dtype]}, got {error}")
                forward, way = forward_times(call, tensors, repeats)
                both = both_times(call, tensors, repeats)
                memory = peak_memory(call, tensors)[0]
            except RuntimeError as problem:  # a backend that is not there, or no memory for all weights
                print(f"  {label}: {str(problem).splitlines()[0]}", flush=True)
                torch.cuda.empty_cache()
                continue
            found[label] = {"forward": forward, "way": way, "both": both, "error": error, "memory": memory}
            shown = "" if error is None else f", error {error:.1e}"
            print(f"  {label:28s} forward {statistics.median(forward):8.1f} us ({way}), "
                  f"{1e-6 * operations / statistics.median(forward):6.1f} TFLOP/s, with backward "
                  f"{statistics.median(both):8.1f} us, memory {memory / 2**20:.1f} MiB{shown}", flush=True)  # fmt: skip
        rows.append({"shape": [SEQUENCES, HEADS, LENGTH, d], "dtype": str(dtype), "mask": masked, "contenders": found})
        median, spread = common.quartiles([1e-6 * operations / t for t in found["clebsch"]["forward"]])
        peers = {label: statistics.median(x["forward"]) for label, x in found.items() if "softmax" in label}
        best = min(peers, key=peers.get, default=None)
        records.append({
            "name": name, "value": median, "unit": "TFLOP/s", "spread": spread,
            "dtype": str(dtype).removeprefix("torch."), "deterministic": True, "error": found["clebsch"]["error"],
            "peer": None if best is None else
            {"name": best, "version": torch.__version__, "value": 1e-6 * operations / peers[best]},
            **common.about("cuda"),
        })  # fmt: skip
        common.save(options.json, rows)
        common.save(options.records, records)
        del tensors, expected
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
