"""Recovers the signs of a planted gene network from bags of genes, with spherical attention and with softmax.

python gene_network.py [--out FOLDER]      # two minutes on two cores; gene_network.png and gene_network.json

What it does, what came out and why values share one vector: README.md.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from clebsch.attention import SphericalAttention


@dataclass
class Network:
    """weights (genes, genes): how the gene of a column regulates that of a row; few are not zero."""

    weights: torch.Tensor

    @staticmethod
    def planted(genes: int, regulators: int, random: torch.Generator) -> Network:
        """Every gene has so many regulators, other than itself, of weights between 0.5 and 1.5 of either sign."""
        weights = torch.zeros(genes, genes)
        for gene in range(genes):
            others = torch.randperm(genes - 1, generator=random)[:regulators]
            others = others + (others >= gene)
            size = 0.5 + torch.rand(regulators, generator=random)
            sign = 2.0 * torch.randint(2, (regulators,), generator=random) - 1
            weights[gene, others] = sign * size
        return Network(weights)

    def cells(self, count: int, noise: float, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Multiplicities (count, genes), whole numbers of which a third are zero, and what each gene responds."""
        genes = self.weights.shape[0]
        bags = torch.poisson(torch.full((count, genes), 2.0), generator=random)
        bags = bags * (torch.rand(count, genes, generator=random) < 0.75)
        spread = self.weights.square().sum(1).sqrt() * bags.std()
        response = torch.tanh((bags @ self.weights.T - bags.mean() * self.weights.sum(1)) / spread)
        return bags, response + noise * torch.randn(count, genes, generator=random)


class SoftmaxAttention(SphericalAttention):
    """The same layer with softmax, whose weights are positive and add up to one. Values are multiplied by the
    multiplicities: with equal values its output would be the same for every bag."""

    def attend(self, x, multiplicity=None, offsets=None):
        q, k = self.queries_and_keys(x)
        weights = self.weights(x, multiplicity)
        group = self.heads // self.key_heads
        v = self.value.expand(k.shape) * multiplicity[:, None, :, None]
        return (weights @ v.repeat_interleave(group, 1)).transpose(1, 2).flatten(2)

    def weights(self, x, multiplicity=None):
        q, k = self.queries_and_keys(x)
        k = k.repeat_interleave(self.heads // self.key_heads, 1)
        return torch.softmax(q @ k.transpose(-1, -2) * self.head_size**-0.5, -1)


class Model(nn.Module):
    """A gene's response from the bag: what its attention over the genes present sees, read by one vector for all genes.

    The gain is what the reading makes of the shared value, one for all heads or, with gain_a_head, one for each: the
    sign of gain times score is that of the regulation. Free values have a gain for every key, which no score shows;
    it counts as one here.
    """

    def __init__(self, genes: int, kind: type[SphericalAttention], values: str, gain_a_head: bool) -> None:
        super().__init__()
        self.genes = nn.Parameter(torch.randn(genes, genes))
        self.layer = kind(genes, heads=4, key_heads=2, head_size=genes // 2, values=values, residual=False)
        del self.layer.to_out  # the reading is in its place
        self.reading = nn.Parameter(torch.ones(4 if gain_a_head else 1, genes // 2) / genes)
        self.offset = nn.Parameter(torch.zeros(genes))

    def forward(self, bags: torch.Tensor) -> torch.Tensor:
        seen = self.layer.attend(self.genes.expand(bags.shape[0], -1, -1), bags)
        return (seen.unflatten(-1, (4, -1)) * self.reading).sum((-2, -1)) + self.offset

    def gains(self) -> torch.Tensor:
        """(heads,)"""
        if self.layer.value is None:
            return torch.ones(4)
        return (self.reading * self.layer.value).sum(1).expand(4)

    @torch.no_grad()
    def adjacency(self, bags: torch.Tensor) -> torch.Tensor:
        """(genes, genes): weights of a key of multiplicity one times gains, added over heads, averaged over bags."""
        total = 0
        for some in bags.split(64):
            weights = self.layer.weights(self.genes.expand(some.shape[0], -1, -1), some)
            total = total + torch.einsum("h,bhij->ij", self.gains(), weights)
        return total / bags.sum(0).clamp(min=1)


def train(model: Model, network: Network, steps: int, cells: int, random: torch.Generator) -> float:
    """The mean square error of the last tenth of the steps, in the variance of the responses."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-2, total_steps=steps)
    last = []
    for step in range(steps):
        bags, response = network.cells(cells, 0.05, random)
        loss = (model(bags) - response).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step >= steps - steps // 10:
            last.append((loss / response.var()).item())
    return sum(last) / len(last)


def signs_found(found: torch.Tensor, network: Network) -> tuple[float, float, float]:
    """Shares of the planted edges, of those that activate and of those that repress whose sign is found."""
    planted = network.weights
    right = found.sign() == planted.sign()
    return tuple(right[some].float().mean().item() for some in (planted != 0, planted > 0, planted < 0))


def edges_found(found: torch.Tensor, network: Network) -> float:
    """Of as many entries as there are edges, the largest: how many are edges, with their sign."""
    count = int((network.weights != 0).sum())
    largest = found.abs().flatten().topk(count).indices
    return (found.flatten()[largest].sign() == network.weights.flatten()[largest].sign()).float().mean().item()


#: layer, values, whether every head has a gain of its own.
CONTENDERS = {
    "spherical": (SphericalAttention, "shared", False),
    "softmax": (SoftmaxAttention, "shared", False),
    "softmax, a gain a head": (SoftmaxAttention, "shared", True),
    "spherical, free values": (SphericalAttention, "free", False),
}


def run(genes: int, steps: int, cells: int, seed: int, names=tuple(CONTENDERS)) -> tuple[Network, dict]:
    """Trains each contender on the same cells; returns the network and what was found."""
    network = Network.planted(genes, 4, torch.Generator().manual_seed(seed))
    bags, _ = network.cells(512, 0.0, torch.Generator().manual_seed(seed + 1))
    found = {}
    for name in names:
        torch.manual_seed(seed)
        begin = time.process_time()
        model = Model(genes, *CONTENDERS[name])
        error = train(model, network, steps, cells, torch.Generator().manual_seed(seed + 2))
        adjacency = model.adjacency(bags)
        signs, activating, repressing = signs_found(adjacency, network)
        found[name] = {
            "signs": signs, "activating": activating, "repressing": repressing, "error": error,
            "edges": edges_found(adjacency, network), "seconds": time.process_time() - begin, "adjacency": adjacency,
        }  # fmt: skip
        print(f"{name:24s} signs {100 * signs:5.1f}% (activating {100 * activating:.0f}%, repressing "
              f"{100 * repressing:.0f}%), largest entries that are edges {100 * found[name]['edges']:.0f}%, error "
              f"{error:.3f} of the variance, {found[name]['seconds']:.0f} s of a core", flush=True)  # fmt: skip
    return network, found


def picture(network: Network, found: dict, path: Path) -> None:
    """The planted network and what each contender makes of it, in one colour scale a panel."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = {"planted": network.weights} | {name: row["adjacency"] for name, row in found.items()}
    figure, axes = plt.subplots(1, len(panels), figsize=(3.3 * len(panels), 3.6), layout="constrained")
    for axis, (name, matrix) in zip(axes, panels.items(), strict=True):
        limit = matrix.abs().flatten().quantile(0.995).item()
        axis.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        signs = "" if name == "planted" else f"\n{100 * found[name]['signs']:.0f}% of signs"
        axis.set(title=name + signs, xlabel="regulator", xticks=[], yticks=[])
    axes[0].set_ylabel("gene")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the picture and the numbers")
    parser.add_argument("--genes", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--cells", type=int, default=32, help="bags a step")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    network, found = run(options.genes, options.steps, options.cells, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    picture(network, found, options.out / "gene_network.png")
    numbers = {name: {k: v for k, v in row.items() if k != "adjacency"} for name, row in found.items()}
    (options.out / "gene_network.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
