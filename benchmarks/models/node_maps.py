"""Dense maps of nodes alone (clebsch::linear, clebsch::species_linear): those of a step of NequIP-M and of MACE-M, each
with its transpose, for ways of the kernel in one run.

    python benchmarks/models/node_maps.py OUT.json [--variants TEXT ...] [--nodes 8000]

A variant is a text of CLEBSCH_CUDA_LINEAR ("" is the default). A map is compared with float64 first, and two calls must
give the same bits. All maps of a model then run one after the other, forward and back, as often as --repeats says, so
that an operand is no nearer than in a step; times are medians of each launch's, from the profiler. Needs
CLEBSCH_LIBRARY.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

from clebsch import library  # noqa: E402

VARIANTS = ("walk=0", "wgmma=0", "", "wgmma=1")
HIDDEN = "128x0e+64x1o+32x2e"
#: Model -> (map, whether weights are by type, how often a step has it each way).
MAPS = {
    "NequIP-M": (
        ("linear in=32x0e+32x1o+32x2e out=224x0e+64x1o+32x2e", False, 1),
        (f"linear in={HIDDEN} out={HIDDEN}", False, 3),
        ("linear in=224x0e+288x1o+256x2e out=224x0e+64x1o+32x2e", False, 2),
        (f"linear in={HIDDEN} out=224x0e+64x1o+32x2e", True, 2),
        ("linear in=224x0e out=128x0e", False, 1),
        (f"linear in={HIDDEN} out=128x0e", True, 1),
    ),
    "MACE-M": (
        ("linear in=136x0e+136x1o+136x2e+136x3o out=128x0e+128x1o+128x2e+128x3o", False, 1),
        ("linear in=128x0e+128x1o out=128x0e+128x1o", False, 4),
        ("linear in=256x0e+384x1o+384x2e+256x3o out=128x0e+128x1o+128x2e+128x3o", False, 1),
        ("linear in=128x0e out=128x0e", False, 1),
    ),
}
TYPES = 2
#: Relative error beyond which nothing is timed: fp32 sums of a few hundred products.
LIMIT = 1e-6


def dimension(irreps: str) -> int:
    """Numbers of a row of '128x0e+64x1o'."""
    return sum(int(part.split("x")[0]) * (2 * int(part.split("x")[1][:-1]) + 1) for part in irreps.split("+"))


def weight_count(text: str) -> int:
    """Weights of a map: channels in times out, by irrep."""
    sides = [{p.split("x")[1]: int(p.split("x")[0]) for p in side.split("+")} for side in sides_of(text)]
    return sum(n * sides[1].get(irrep, 0) for irrep, n in sides[0].items())


def sides_of(text: str) -> list[str]:
    """Irreps in and out of "linear in=... out=..."."""
    return [part.split("=")[1] for part in text.split()[1:]]


class Map:
    """A map with random operands; `run` computes it and its transpose."""

    def __init__(self, text: str, by_type: bool, nodes: int, device: str):
        rows = {"device": device, "generator": torch.Generator(device=device).manual_seed(len(text))}
        width_in, width_out = (dimension(side) for side in sides_of(text))
        self.text, self.by_type = text, by_type
        self.x = torch.randn(nodes, width_in, **rows)
        self.grad = torch.randn(nodes, width_out, **rows)
        shape = (TYPES, weight_count(text)) if by_type else (weight_count(text),)
        self.weight = torch.randn(shape, **rows)
        self.types = torch.randint(0, TYPES, (nodes,), dtype=torch.int32, **rows)
        empty = torch.zeros(0, dtype=torch.int32, device=device)
        self.graph = [empty] * 5 + [torch.tensor([nodes], dtype=torch.int32, device=device), empty]

    def run(self, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
        """x W and grad W^T."""
        x, weight = self.x.to(dtype).requires_grad_(), self.weight.to(dtype)
        if self.by_type:
            out = torch.ops.clebsch.species_linear(x, weight, self.types, self.graph, -1, self.text)
        else:
            out = torch.ops.clebsch.linear(x, weight, self.graph, -1, self.text)
        return out.detach(), torch.autograd.grad(out, x, self.grad.to(dtype))[0]


def launches(maps: list[Map], repeats: int) -> list[float]:
    """Microseconds of every launch of node_linear in a round of all maps, in order."""
    from torch.profiler import DeviceType, ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(repeats):
            for one in maps:
                one.run()
        torch.cuda.synchronize()
    events = [e for e in seen.events() if e.device_type == DeviceType.CUDA and e.name.startswith("node_linear")]
    times = [e.time_range.elapsed_us() for e in sorted(events, key=lambda e: e.time_range.start)]
    each = 2 * len(maps)
    assert len(times) == each * repeats, (len(times), each, repeats)
    return [statistics.median(times[place::each]) for place in range(each)]


def measure(model: str, variant: str, options: argparse.Namespace) -> dict:
    """Errors and times of a model's maps in one way."""
    os.environ["CLEBSCH_CUDA_LINEAR"] = variant
    maps = [Map(text, by_type, options.nodes, options.device) for text, by_type, _ in MAPS[model]]
    row = {"model": model, "variant": variant, "error": 0.0, "maps": []}
    for one in maps:
        got, again, exact = one.run(), one.run(), one.run(torch.float64)
        for value, second, right in zip(got, again, exact, strict=True):
            error = float((value.double() - right).norm() / right.norm())
            row["error"] = max(row["error"], error)
            if not error <= LIMIT or not torch.equal(value, second):
                return row | {"failed": f"{one.text}: error {error:.1e}, same bits {torch.equal(value, second)}"}
    if options.device != "cuda":
        return row | {"failed": "no GPU, not timed"}
    times = launches(maps, options.repeats)
    for i, (text, by_type, count) in enumerate(MAPS[model]):
        forward, back = times[2 * i : 2 * i + 2]
        row["maps"].append({"map": text, "by_type": by_type, "count": count, "us": forward, "transposed_us": back})
    row["step_us"] = sum(m["count"] * (m["us"] + m["transposed_us"]) for m in row["maps"])
    return row


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--models", nargs="*", default=list(MAPS))
    parser.add_argument("--nodes", type=int, default=8000)
    parser.add_argument("--device", default="cuda", help="cpu: a rehearsal without times")
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    library.require()
    rows = []
    for model in options.models:
        for variant in options.variants:
            row = measure(model, variant, options)
            rows.append(row)
            each = ", ".join(f"{m['us']:.1f} {m['transposed_us']:.1f}" for m in row["maps"])
            total = row.get("failed") or f"{row['step_us']:.0f} us a step"
            print(f"{model} '{variant}': {total}, error {row['error']:.1e}; {each}", flush=True)
    options.out.write_text(json.dumps({"about": common.about(options.device), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
