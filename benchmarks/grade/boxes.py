"""Batches of equal structures for retraining.py: edges that are found once, and a model's forces on a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CUTOFF = 5.0
Data = dict[str, NDArray[Any]]


def part(packed: Data, name: str) -> Data:
    """A part's arrays, with the `edges` of its structures."""
    found = {key.split("/")[1]: packed[key] for key in packed if key.startswith(f"{name}/")}
    edges = np.empty(len(found["box"]), dtype=object)
    for k, (x, box) in enumerate(zip(found["positions"], found["box"], strict=True)):
        edges[k] = edges_of(x.astype(float), box)
    return {**found, "edges": edges}


def joined(parts: list[Data]) -> Data:
    return {key: np.concatenate([one[key] for one in parts]) for key in parts[0]}


def edges_of(x: NDArray[Any], box: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Receivers, senders and Cartesian shifts of a cubic box: |x[sender] + shift - x[receiver]| < CUTOFF."""
    reach = int(np.ceil((CUTOFF + np.ptp(x)) / box))
    images = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 1, 3)
    gaps = x[None, None, :] - x[None, :, None] + box * images
    near = (gaps**2).sum(-1) < CUTOFF**2
    near &= (images != 0).any(-1) | ~np.eye(len(x), dtype=bool)[None]
    image, receiver, sender = np.nonzero(near)
    order = np.argsort(receiver, kind="stable")
    return receiver[order], sender[order], box * images[image[order], 0, 0]


def padded(edges: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], width: int, atoms: int) -> tuple[Any, Any]:
    """Receivers and senders (2, width), shifts (width, 3): with edges from an atom to itself that are longer than the
    cutoff and add nothing, as many of each atom. Receivers stay in order, which saves the convolution a sort."""
    receivers, senders, shifts = edges
    more = np.arange(width - len(shifts)) % atoms
    far = np.tile([2 * CUTOFF, 0.0, 0.0], (len(more), 1))
    lists = np.stack([np.concatenate([receivers, more]), np.concatenate([senders, more])])
    order = np.argsort(lists[0], kind="stable")
    return lists[:, order], np.concatenate([shifts, far])[order]


class Boxes:
    """Structures of one size, as batches of `size` with as many edges each."""

    def __init__(self, data: Data, device: str, size: int) -> None:
        self.size = size
        self.atoms = data["positions"].shape[1]
        self.width = max(len(one[0]) for one in data["edges"])
        both = [padded(one, self.width, self.atoms) for one in data["edges"]]
        lists, shifts = (np.stack(values) for values in zip(*both, strict=True))
        put = lambda values, dtype: torch.as_tensor(values).to(device, dtype)  # noqa: E731
        self.lists, self.shifts = put(lists, torch.int64), put(shifts, torch.float64)
        self.positions, self.forces = put(data["positions"], torch.float64), put(data["forces"], torch.float32)
        self.energies = put(data["energies"], torch.float32)
        self.types = put(np.tile([0, 1, 1], size * self.atoms // 3), torch.int64)
        self.owner = put(np.repeat(np.arange(size), self.atoms), torch.int64)
        self.sizes = put(np.full(size, self.atoms), torch.int64)
        self.starts = put(self.atoms * np.arange(size)[:, None, None], torch.int64)

    def __len__(self) -> int:
        return len(self.positions)

    def batch(self, which: Tensor) -> dict[str, Tensor]:
        """which (size,) on the device."""
        lists = self.lists[which] + self.starts
        return {"positions": self.positions[which].flatten(0, 1), "receivers": lists[:, 0].flatten(),
                "senders": lists[:, 1].flatten(), "shifts": self.shifts[which].flatten(0, 1),
                "forces": self.forces[which].flatten(0, 1), "energies": self.energies[which]}  # fmt: skip

    def predict(self, energy_model: torch.nn.Module, batch: dict[str, Tensor], train: bool) -> tuple[Tensor, Tensor]:
        """Energies an atom (size,) and forces."""
        x = batch["positions"].detach().requires_grad_()
        receivers, senders = batch["receivers"], batch["senders"]
        # The node that comes first in edge_index is the one that sums.
        vectors = x[senders] - x[receivers] + batch["shifts"]
        found = energy_model({"pos": x, "edge_index": torch.stack([receivers, senders]), "edge_vectors": vectors,
                              "atom_types": self.types, "batch": self.owner, "num_atoms": self.sizes})  # fmt: skip
        energy = found["total_energy"]
        (gradient,) = torch.autograd.grad(energy.sum(), x, create_graph=train)
        return (energy.flatten() / self.atoms).float(), -gradient.float()
