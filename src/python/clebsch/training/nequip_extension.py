"""What nequip loads at its start (entry point ``nequip.extension``): makes the modifier ``enable_Clebsch`` known."""

from __future__ import annotations

import contextlib

# Another release of nequip may keep its convolution elsewhere. It must start all the same; asking for the modifier
# there, or calling clebsch.training.nequip, says what is missing.
with contextlib.suppress(ImportError):
    from . import nequip  # noqa: F401 - importing registers
