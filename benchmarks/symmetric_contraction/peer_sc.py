"""The symmetric contraction on one GPU: Clebsch beside mace-torch, cuEquivariance and OpenEquivariance, in one run.

usage: as symmetric_contraction.py, whose measure this is. Peers that cannot be imported or refuse the problem are named
and left out.
"""

from __future__ import annotations

import importlib

import symmetric_contraction as bench
import torch
from torch import Tensor


def cuequivariance(case: bench.Case) -> bench.Contestant:
    import cuequivariance as cue
    import cuequivariance_torch as cuet
    from mace.tools.cg import O3_e3nn

    dtype = case.x.dtype
    module = cuet.SymmetricContraction(
        cue.Irreps(O3_e3nn, str(case.irreps_in)),
        cue.Irreps(O3_e3nn, str(case.irreps_out)),
        layout_in=cue.ir_mul,
        layout_out=cue.ir_mul,
        contraction_degree=case.correlation,
        num_elements=case.y.shape[1],
        original_mace=True,
        dtype=dtype,
        math_dtype=dtype,
    ).to(case.x.device)
    # mace-torch's own order of the weights for it (mace.cli.convert_e3nn_cueq), checked by the comparison of answers.
    parts = [w for part in case.module.contractions for w in (part.weights_max, *part.weights)]
    stacked = torch.cat([w.detach() for w in parts], dim=1)
    module.weight.data = stacked.reshape(module.weight.shape)
    module.requires_grad_(False)
    types = case.y.argmax(-1).int()
    atoms, channels, _ = case.x.shape

    def restore(out: Tensor) -> Tensor:
        blocks = out.reshape(atoms, -1, channels).split([2 * ir.l + 1 for _, ir in case.irreps_out], dim=1)
        return torch.cat([block.transpose(1, 2).flatten(1) for block in blocks], dim=1)

    return bench.Contestant(lambda x: module(x, types), lambda x: x.transpose(1, 2).reshape(atoms, -1), restore)


def openequivariance(case: bench.Case) -> bench.Contestant:
    found = None
    for place in (
        "openequivariance",
        "openequivariance._torch.symmetric_contraction.SymmetricContraction",
        "openequivariance._torch.symmetric_contraction.symmetric_contraction",
        "openequivariance.implementations.symmetric_contraction",
    ):
        try:
            found = importlib.import_module(place).SymmetricContraction
            break
        except (ImportError, AttributeError):
            continue
    if found is None:
        raise ImportError("no SymmetricContraction in this openequivariance")
    module = found(case.irreps_in, case.irreps_out, case.correlation, num_elements=case.y.shape[1], dtype=case.x.dtype)
    module = module.to(case.x.device)
    # The same parameters under the same names; its U tensors are its own.
    weights = {name: value for name, value in case.module.state_dict().items() if "weights" in name}
    module.load_state_dict({k: v for k, v in weights.items() if k in module.state_dict()}, strict=False)
    module.requires_grad_(False)
    return bench.Contestant(lambda x: module(x, case.y))


def contestants(case: bench.Case) -> dict[str, bench.Contestant]:
    found = bench.own_contestants(case)
    for name, make in (("cuEquivariance", cuequivariance), ("OpenEquivariance", openequivariance)):
        try:
            peer = make(case)
            bench.error(case, peer)  # some fail at their first call
            found[name] = peer
        except Exception as problem:  # a peer's failure must not cost the others their time on the device
            print(f"  {name}: left out, {type(problem).__name__}: {str(problem).splitlines()[:1]}", flush=True)
    return found


if __name__ == "__main__":
    bench.run(contestants, __doc__)
