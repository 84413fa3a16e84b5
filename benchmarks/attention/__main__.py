"""spherical_attention beside torch: three lines of torch, torch.compile of them, and softmax attention by
FlashAttention-2 and cuDNN; a wrong answer is not timed.

  benchmarks/run attention [--device cuda] [-- --only 41472]

Times are of graph replays (what the device takes, without Python), forward and forward + backward, or of calls in a
loop where a contender cannot be captured. Errors are root mean squares against the formula in float64 on the rounded
inputs, in those of the output.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/attention"), str(ROOT / "src/python")]

import common  # noqa: E402
from timing import both_times, error_of, forward_times, peak_memory  # noqa: E402

from clebsch.attention import spherical_attention, spherical_attention_reference  # noqa: E402

#: sequences, heads, length, head size, dtype; name of the record of its forward pass.
CASES = [
    (1, 1, 41472, 64, torch.float16, "spherical_linear_41472_us"),
    (4, 16, 4096, 64, torch.float16, "spherical_linear_batch_us"),
    (4, 16, 4096, 128, torch.float16, "spherical_linear_batch_d128_us"),
    (4, 16, 4096, 64, torch.bfloat16, "spherical_linear_batch_bf16_us"),
    (4, 16, 4096, 64, torch.float32, "spherical_linear_batch_fp32_us"),
]
BOUND = {torch.float16: 5e-4, torch.bfloat16: 4e-3, torch.float32: 1e-6}


def ours(q, k, v):
    return spherical_attention(q, k, v)[0]


def with_norm(q, k, v):
    return spherical_attention(q, k, v)


def composition(q, k, v):
    gram = k.transpose(-1, -2) @ k
    return (q @ (k.transpose(-1, -2) @ v)) * ((q @ gram) * q).sum(-1, keepdim=True).rsqrt()


def composition_scaled(q, k, v):
    """As composition, with keys scaled so that 16-bit sums do not overflow."""
    k = k * k.shape[-2] ** -0.5
    gram = k.transpose(-1, -2) @ k
    return (q @ (k.transpose(-1, -2) @ v)) * ((q @ gram) * q).sum(-1, keepdim=True).rsqrt()


def causal_ours(q, k, v):
    return spherical_attention(q, k, v, causal=True)[0]


def causal_composition(q, k, v, rows=128):
    """Chunks of rows by torch's batched products: sums before a chunk, scores within it; keys scaled for 16 bits."""
    batch, heads, length, d = q.shape
    q, k, v = (x.view(batch, heads, length // rows, rows, -1) for x in (q, k * length**-0.5, v))
    sums = torch.nn.functional.pad((k.transpose(-1, -2) @ torch.cat((k, v), -1))[:, :, :-1], (0, 0, 0, 0, 1, 0))
    gram, values = sums.float().cumsum(2).to(q.dtype).split((d, v.shape[-1]), -1)
    scores = (q @ k.transpose(-1, -2)).tril()
    z = ((q @ gram) * q).sum(-1, keepdim=True) + scores.square().sum(-1, keepdim=True)
    return ((q @ values + scores @ v) * z.rsqrt()).view(batch, heads, length, -1)


def chunked_linear_attention():
    """flash-linear-attention's causal linear attention of (sequences, length, heads, d), or None. It has no norm: less
    than what is computed here."""
    try:
        from fla.ops.linear_attn import chunk_linear_attn
    except ImportError:
        return None

    return lambda q, k, v: chunk_linear_attn(q, k, v, scale=1.0, normalize=False)[0]


def causal_case(device: str, d: int, repeats: int, forward_only: bool) -> dict:
    """Causal attention of (4, 16, 4096, d) in float16; the error is of the first 1024 rows of two heads."""
    random = torch.Generator(device=device).manual_seed(1)
    tensors = [torch.randn(4, 16, 4096, d, generator=random, device=device).half() for _ in range(3)]
    first = [x[:1, :2, :1024] for x in tensors]
    expected, _ = spherical_attention_reference(*(x.double() for x in first), causal=True)
    contenders = {
        "clebsch": causal_ours,
        "torch": causal_composition,
        "flash-linear-attention": chunked_linear_attention(),
    }
    found = {}
    for label, call in contenders.items():
        if call is None:
            continue
        theirs, error = tensors, None
        if label == "flash-linear-attention":
            theirs = [x.transpose(1, 2).contiguous() for x in tensors]
        else:
            with torch.no_grad():
                error = error_of(call(*tensors)[:1, :2, :1024], expected)
        if label == "clebsch" and not error <= BOUND[torch.float16]:
            raise SystemExit(f"causal: expected an error of at most {BOUND[torch.float16]}, got {error}")
        found[label] = {"forward": forward_times(call, theirs, repeats)[0], "error": error}
        if not forward_only:
            found[label]["both"] = both_times(call, theirs, repeats, True)
        parts = [part for part in ("forward", "both") if part in found[label]]
        shown = ", ".join(f"{part} {statistics.median(found[label][part]):9.1f} us" for part in parts)
        print(f"  causal d = {d} {label:24s} {shown}", flush=True)
    return {"case": "causal", "shape": [4, 16, 4096, d], "contenders": found}


def softmax(backend):
    def call(q, k, v):
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return call


def exact(q, k, v):
    q, k, v = q.double(), k.double(), v.double()
    return composition(q, k, v)


def low_rank_case(device: str, repeats: int) -> dict:
    """Rank-8 keys with 1e-2 noise, queries that the guard flags, against plain queries."""
    random = torch.Generator(device=device).manual_seed(4)
    new = {"device": device, "generator": random}
    k = torch.randn(41472, 8, **new) @ torch.randn(8, 64, **new) + 1e-2 * torch.randn(41472, 64, **new)
    k = k.half()[None, None]
    _, w = torch.linalg.eigh(k[0, 0].double().T @ k[0, 0].double())
    q = (torch.randn(41472, 56, **new).double() @ w[:, :56].T).half()[None, None]
    v = torch.randn(1, 1, 41472, 64, **new).half()
    error = error_of(ours(q, k, v), exact(q, k, v))
    plain = composition_scaled(q, k, v)
    return {
        "case": "rank 8", "error": error, "error_of_composition": error_of(plain, exact(q, k, v)),
        "forward": forward_times(ours, [q, k, v], repeats)[0], "both": both_times(ours, [q, k, v], repeats, True),
    }  # fmt: skip


def record(name: str, times: list[float], error: float, dtype: torch.dtype, peer: tuple[str, float] | None) -> dict:
    median, spread = common.quartiles(times)
    other = None
    if peer is not None:
        theirs = importlib.metadata.version("fla-core") if peer[0] == "flash-linear-attention" else torch.__version__
        other = {"name": peer[0], "version": theirs, "value": peer[1]}
    return {
        "name": name, "value": median, "unit": "us", "spread": spread, "dtype": str(dtype).removeprefix("torch."),
        "deterministic": True, "error": error, "peer": other, **common.about("cuda"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="attention.json")
    parser.add_argument("--records", default="attention_records.json")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", type=int, default=0, help="only the cases of this length")
    parser.add_argument("--causal", action="store_true", help="only the causal cases")
    parser.add_argument("--d", type=int, default=0, help="of the causal cases only that of this head size")
    parser.add_argument("--forward", action="store_true", help="causal cases: forward passes alone")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    device, repeats = options.device, options.repeats
    rows, records = [], []
    for batch, heads, length, d, dtype, name in CASES:
        if options.causal or options.only not in (0, length):
            continue
        random = torch.Generator(device=device).manual_seed(1)
        tensors = [torch.randn(batch, heads, length, d, generator=random, device=device).to(dtype) for _ in range(3)]
        expected = exact(*tensors)
        contenders = {"clebsch": ours, "torch": composition_scaled}
        if not options.no_compile:
            contenders["torch.compile"] = torch.compile(composition_scaled)
        if dtype != torch.float32:
            contenders["FlashAttention-2 (softmax)"] = softmax(SDPBackend.FLASH_ATTENTION)
            contenders["cuDNN (softmax)"] = softmax(SDPBackend.CUDNN_ATTENTION)
        found = {}
        of_forward = sum(t.numel() * t.element_size() for t in tensors)
        of_inputs = of_forward, of_forward * 4 // 3  # backward, the gradient of the output too
        print(f"({batch}, {heads}, {length}, {d}) {dtype}", flush=True)
        for label, call in contenders.items():
            try:
                with torch.no_grad():
                    result = call(*tensors)
                error = None if "softmax" in label else error_of(result, expected)
                if label == "clebsch" and not error <= BOUND[dtype]:
                    raise SystemExit(f"clebsch: expected an error of at most {BOUND[dtype]}, got {error}")
                forward, way = forward_times(call, tensors, repeats)
                both = both_times(call, tensors, repeats, True)
                memory = peak_memory(with_norm if label == "clebsch" else call, tensors)
            except RuntimeError as problem:  # a backend that is not there
                print(f"  {label}: {str(problem).splitlines()[0]}", flush=True)
                continue
            found[label] = {"forward": forward, "way": way, "both": both, "error": error, "memory": memory}
            shown = "" if error is None else f", error {error:.1e}"
            percent = ", ".join(f"{100 * m / n:.2f}%" for m, n in zip(memory, of_inputs, strict=True))
            print(f"  {label:28s} forward {statistics.median(forward):9.1f} us ({way}), with backward "
                  f"{statistics.median(both):9.1f} us, memory {percent} of the inputs{shown}", flush=True)  # fmt: skip
        rows.append({"shape": [batch, heads, length, d], "dtype": str(dtype), "contenders": found})
        if "clebsch" in found and dtype == torch.float16:
            of_parts = zip(("forward", "backward"), found["clebsch"]["memory"], of_inputs, strict=True)
            for part, bytes_taken, of_all in of_parts:
                row = record(f"{name.removesuffix('_us')}_{part}_memory_percent", [100 * bytes_taken / of_all] * 3,
                             found["clebsch"]["error"], dtype, None)  # fmt: skip
                records.append(row | {"unit": "% of inputs"})
        peers = [label for label in ("torch", "torch.compile") if label in found]
        if "clebsch" not in found:
            raise SystemExit("clebsch did not run")
        for part, end in (("forward", ""), ("both", "_backward")):
            best = min(peers, key=lambda label: statistics.median(found[label][part]), default=None)
            peer = None if best is None else (best, statistics.median(found[best][part]))
            records.append(
                record(name.replace("_us", f"{end}_us"), found["clebsch"][part], found["clebsch"]["error"], dtype, peer)
            )
        common.save(options.json, rows)
        common.save(options.records, records)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    if options.only in (0, 41472) and not options.causal:
        hard = low_rank_case(device, repeats)
        print(f"rank-8 keys, flagged queries: forward {statistics.median(hard['forward']):.1f} us, with backward "
              f"{statistics.median(hard['both']):.1f} us, error {hard['error']:.1e} (torch's composition "
              f"{hard['error_of_composition']:.1e})", flush=True)  # fmt: skip
        if not hard["error"] <= 1e-3:
            raise SystemExit(f"flagged queries: expected an error of at most 1e-3, got {hard['error']}")
        records.append(record("spherical_flagged_41472_us", hard["forward"], hard["error"], torch.float16, None))
        plain = next(r for r in records if r["name"] == "spherical_linear_41472_us")["value"]
        ratio = record(
            "spherical_flagged_ratio", [t / plain for t in hard["forward"]], hard["error"], torch.float16, None
        )
        records.append(ratio | {"unit": "times plain"})
        plain = next(r for r in records if r["name"] == "spherical_linear_41472_backward_us")["value"]
        ratio = record(
            "spherical_flagged_backward_ratio", [t / plain for t in hard["both"]], hard["error"], torch.float16, None
        )
        records.append(ratio | {"unit": "times plain"})
        rows.append(hard)
    if options.only in (0, 4096):
        for d in [options.d] if options.d else [64, 128]:
            case = causal_case(device, d, repeats, options.forward)
            rows.append(case)
            mine = case["contenders"].pop("clebsch")
            for part, end in (("forward", ""), ("both", "_backward")):
                if part not in mine:
                    continue
                times = {label: statistics.median(row[part]) for label, row in case["contenders"].items()}
                best = min(times, key=times.get)
                records.append(record(f"spherical_causal_d{d}{end}_us", mine[part], mine["error"], torch.float16,
                                      (best, times[best])))  # fmt: skip
            case["contenders"]["clebsch"] = mine
    common.save(options.json, rows)
    common.save(options.records, records)


if __name__ == "__main__":
    main()
