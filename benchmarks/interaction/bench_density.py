"""Times `interaction_density` beside two interactions, and beside the messages alone, on rattled diamond.

    python benchmarks/interaction/bench_density.py --library build/lib/libclebsch.so [--out FOLDER]

ns are per edge, fp32; the fused gradient is compared with the separate ones before anything is timed. Writes
interaction_density.json.
"""

import argparse
from pathlib import Path

import bench_interaction
import torch
from bench_interaction import case_of, common  # puts the other folders on the path
from density_cases import SUM, with_density
from graphs import diamond
from interaction_cases import Operands, make_radial, radial_problems, relative
from measure import time_ns


def bench(name, device):
    """ns an edge of one op for messages and density, of two ops, and of the messages alone."""
    text, records = radial_problems()[name], []
    cutoff = bench_interaction.cutoff_of(name)
    edges = diamond(10 if device == "cuda" else 2, device, cutoff)
    case = with_density(case_of(text, edges, make_radial(text, [[cutoff]])))
    ops = torch.ops.clebsch
    for transpose in (True, False):
        o = case.operands(torch.float32, device, transpose)
        graph, types, radial, layer, _ = Operands.rest(o)
        ones = torch.ones_like(o.grad_density)

        def alone(o=o, graph=graph, types=types, radial=radial, layer=layer):
            return ops.interaction(o.x, o.edge_vec, graph, types, radial, layer, text)

        def summed(o=o, graph=graph, types=types, ones=ones, layer=layer):
            return ops.interaction(ones, o.edge_vec, graph, types, o.density, layer, SUM)

        def alone_back(o=o, graph=graph, types=types, radial=radial, layer=layer):
            return ops.interaction_backward(
                o.grad_out, o.x, o.edge_vec, graph, types, radial, layer, text, (True, True)
            )

        def summed_back(o=o, graph=graph, types=types, ones=ones, layer=layer):
            return ops.interaction_backward(
                o.grad_density, ones, o.edge_vec, graph, types, o.density, layer, SUM, (False, True)
            )

        def separate_back(alone_back=alone_back, summed_back=summed_back):
            # Autograd adds the two gradients of the vectors.
            return alone_back()[1].add_(summed_back()[1])

        error = relative(o.backward()[1], separate_back().double())[0]
        assert error < 2e-6, f"fused and separate differ by {error:.1e}"
        calls = {
            "fused": (o.forward, o.backward),
            "separate": (lambda alone=alone, summed=summed: (alone(), summed()), separate_back),
            "messages alone": (alone, alone_back),
        }
        for what, both in calls.items():
            forward, backward = (time_ns(call, device, 20)[0] / case.edges for call in both)
            record = {"what": what, "problem": name, "deterministic": transpose, "edges": case.edges}
            records.append({**record, "forward_ns": forward, "backward_ns": backward})
            print(
                f"{name}, {case.x.shape[0]} atoms, {'deterministic' if transpose else 'atomic'}, {what:15s}"
                f" forward {forward:.3f} backward {backward:.3f} both {forward + backward:.3f} ns/edge",
                flush=True,
            )
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--problem", default="mace-M")
    parser.add_argument("--out", default="", help="folder of the results")
    options = parser.parse_args()
    torch.ops.load_library(options.library)
    bench_interaction.DEVICE = options.device
    records = bench(options.problem, options.device)
    if options.out:
        Path(options.out).mkdir(parents=True, exist_ok=True)
        result = {**common.about(options.device), "records": records}
        common.save(Path(options.out) / "interaction_density.json", result)


if __name__ == "__main__":
    main()
