"""The edges of a graph as graph_attention reads them."""

from __future__ import annotations

import functools

import torch

from ..errors import ClebschError

#: Of nodes and of edges, and of edges some fewer: a kernel counts a few past the last.
_MOST = 2**31 - 1


class EdgeRows:
    """Edges sorted by receiver, and the same by sender for gradients; made once and used in every call on the graph.

    senders, receivers: (E,) int32 or int64, in any order; edge e goes from node senders[e] to receivers[e]. Several
    edges between two nodes are several edges. n_receivers: rows of q; n_senders: rows of k and v. They differ where
    some nodes only send (ghosts). Raises ClebschError for numbers out of range, for which a GPU is waited for once.

    Attributes, int32 on the device of the edges, with the names of src/core/graph.h: ``row_ptr`` (n_receivers + 1,),
    ``senders`` and ``receivers`` (E,) sorted by receiver; ``order`` (E,) int64, the given place of every sorted edge,
    or None where they were sorted; ``col_ptr`` (n_senders + 1,), ``col_edge`` and ``col_receivers`` (E,), made when
    they are first asked for.
    """

    def __init__(self, senders: torch.Tensor, receivers: torch.Tensor, n_receivers: int, n_senders: int) -> None:
        for name, tensor in (("senders", senders), ("receivers", receivers)):
            if (
                not isinstance(tensor, torch.Tensor)
                or tensor.dim() != 1
                or tensor.dtype not in (torch.int32, torch.int64)
            ):
                got = (
                    f"{tensor.dtype} {tuple(tensor.shape)}"
                    if isinstance(tensor, torch.Tensor)
                    else type(tensor).__name__
                )
                raise ClebschError(f"edges: {name}: expected int32 or int64 of one dimension, got {got}")
        if senders.shape != receivers.shape or senders.device != receivers.device:
            raise ClebschError(
                f"edges: expected as many senders as receivers on one device, got {senders.shape[0]} on "
                f"{senders.device} and {receivers.shape[0]} on {receivers.device}"
            )
        if not (0 <= n_receivers < _MOST and 0 <= n_senders < _MOST and senders.shape[0] <= _MOST - 64):
            raise ClebschError(
                f"edges: expected fewer than 2^31 receivers, senders and edges, got {n_receivers}, {n_senders}, "
                f"{senders.shape[0]}"
            )
        self.n_receivers, self.n_senders, self.n_edges = int(n_receivers), int(n_senders), senders.shape[0]
        self.order: torch.Tensor | None = None
        if self.n_edges:
            falls = (receivers[1:] < receivers[:-1]).any().to(torch.int64)
            found = torch.stack((senders.min(), senders.max(), receivers.min(), receivers.max(), falls)).tolist()
            for name, low, high, bound in (("senders", *found[:2], n_senders), ("receivers", *found[2:4], n_receivers)):
                if low < 0 or high >= bound:
                    raise ClebschError(f"edges: {name}: expected numbers from 0 to {bound - 1}, got {low} to {high}")
            if found[4]:
                receivers, self.order = torch.sort(receivers, stable=True)
                senders = senders[self.order]
        # Copies, since numbers that were checked must stay what they were.
        self.senders = senders.to(torch.int32, copy=True).contiguous()
        self.receivers = receivers.to(torch.int32, copy=True).contiguous()
        self.row_ptr = _begins(self.receivers, self.n_receivers)

    @functools.cached_property
    def _by_sender(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sorted_senders, edges = torch.sort(self.senders, stable=True)
        return _begins(sorted_senders, self.n_senders), edges.to(torch.int32), self.receivers[edges].contiguous()

    @property
    def col_ptr(self) -> torch.Tensor:
        return self._by_sender[0]

    @property
    def col_edge(self) -> torch.Tensor:
        return self._by_sender[1]

    @property
    def col_receivers(self) -> torch.Tensor:
        return self._by_sender[2]

    @property
    def device(self) -> torch.device:
        return self.row_ptr.device

    def sorted(self, of_edges: torch.Tensor) -> torch.Tensor:
        """Values of the edges, (E, ...), from their given order to that of ``senders``."""
        return of_edges if self.order is None else of_edges[self.order]


def _begins(numbers: torch.Tensor, count: int) -> torch.Tensor:
    """Where each of `count` numbers begins in a sorted list, and the list's end, (count + 1,)."""
    wanted = torch.arange(count + 1, dtype=numbers.dtype, device=numbers.device)
    return torch.searchsorted(numbers, wanted, out_int32=True)
