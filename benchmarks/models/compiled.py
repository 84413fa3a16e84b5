"""Upstream's NequIP and Allegro models as `nequip-compile --mode aotinductor` makes them, which is how upstream runs
molecular dynamics with torch 2.10 and later."""

from __future__ import annotations

from pathlib import Path

import torch

#: What upstream's models take, nequip-compile's names.
INPUTS = ["pos", "edge_index", "atom_types", "cell", "edge_cell_shift"]


def compiled(model: torch.nn.Module, data: dict[str, torch.Tensor], outputs: list[str], path: Path):
    """`model`, compiled for any number of atoms and edges of one structure, as a call from INPUTS to `outputs` by name.

    `data`: a structure on the device of the model, with at least two atoms and edges. Generated code on a CPU has as
    many threads as torch has now. `path`, of which the name ends in .nequip.pt2, is read where it is there, and else
    written, which takes minutes.
    Raises what torch's export and upstream's own comparison with the eager model raise.
    """
    from nequip.nn.compile import DictInputOutputWrapper
    from nequip.utils.aot import aot_export_model

    dim = torch.export.Dim
    sizes = {"graph": dim.STATIC, "node": dim("num_nodes", min=2), "edge": dim("num_edges", min=2)}
    if not path.exists():
        aot_export_model(model, data["pos"].device, INPUTS, outputs, data, sizes, str(path))
    return DictInputOutputWrapper(torch._inductor.aoti_load_package(str(path)), INPUTS, outputs)
