"""Tensors that begin where no vector of 16 bytes can be read, as views of a user's larger arrays may."""

from __future__ import annotations

import functools

import torch


def misalign_moved_tensors() -> None:
    """From now on what `Tensor.to` makes of floating-point numbers begins one number after a multiple of 16 bytes."""
    to = torch.Tensor.to

    @functools.wraps(to)
    def moved(tensor: torch.Tensor, *given, **named) -> torch.Tensor:
        made = to(tensor, *given, **named)
        if made is tensor or not (made.is_floating_point() and made.is_contiguous() and made.numel() > 0):
            return made
        return torch.cat((made.new_zeros(1), made.flatten()))[1:].view(made.shape)

    torch.Tensor.to = moved
