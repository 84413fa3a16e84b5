"""Whether initcheck of compute-sanitizer sees what cuBLAS writes: torch's own kernel reads a product and nothing else.

PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool initcheck python tests/gpu/initcheck_control.py TYPE M N K
"""

from __future__ import annotations

import sys

import torch


def main(name: str, *sizes: str) -> None:
    """Rows, columns and length of the product, of numbers of that type, e.g. float16 64 320 48."""
    rows, columns, length = map(int, sizes)
    dtype = getattr(torch, name)
    x = torch.randn(rows, length, device="cuda").to(dtype)
    y = x @ torch.randn(length, columns, device="cuda").to(dtype)
    print("sum", float((y + 1).float().sum()))


if __name__ == "__main__":
    main(*sys.argv[1:])
