"""The triangle multiplicative update by others: torch's composition, torch.compile of it, cuEquivariance and entries to
GPU MODE's TriMul competition where there are.

CLEBSCH_TRIMUL_ENTRIES names entries, as name=file.py,name=file.py. A file has custom_kernel((x, mask, weights,
config)), as the competition asks; TTT-Discover's is `results/kernel-engineering/trimul.py` of
github.com/test-time-training/discover.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Callable

import torch
from torch.nn.functional import layer_norm, linear

WEIGHTS = ("norm_in_weight", "norm_in_bias", "p_in_weight", "g_in_weight", "norm_out_weight", "norm_out_bias",
           "p_out_weight", "g_out_weight")  # fmt: skip


def composition(x, mask, weights, gate, dtype):
    """Products in 16 bits, norms in the type of x's sums, as a careful user writes it."""
    w = {name: weight.to(dtype) for name, weight in weights.items() if name.startswith(("p_", "g_"))}
    hidden = w["p_in_weight"].shape[0] // 2
    y = layer_norm(x, x.shape[-1:], weights["norm_in_weight"].to(x.dtype), weights["norm_in_bias"].to(x.dtype)).to(
        dtype
    )
    both = linear(y, w["p_in_weight"]) * linear(y, w["g_in_weight"]).sigmoid()
    if mask is not None:
        both = both * mask[..., None].to(dtype)
    if dtype == torch.float16:  # sums over n would overflow; the norm forgets it
        both = both * x.shape[-2] ** -0.25
    left, right = (part.permute(0, 3, 1, 2).contiguous() for part in both.split(hidden, -1))
    o = torch.matmul(left, right.transpose(-1, -2)).permute(0, 2, 3, 1)
    o = layer_norm(o.float(), (hidden,), weights["norm_out_weight"].float(), weights["norm_out_bias"].float()).to(dtype)
    gates = linear(y, w["g_out_weight"]).sigmoid()
    if gate == "before":
        return linear(o * gates, w["p_out_weight"]).to(x.dtype)
    return (linear(o, w["p_out_weight"]) * gates).to(x.dtype)


def cuequivariance() -> tuple[Callable, str] | None:
    """Its function and version; its package wants scipy for first weights alone."""
    try:
        import scipy.stats  # noqa: F401
    except ImportError:
        stats = types.ModuleType("scipy.stats")
        stats.truncnorm = None
        sys.modules.setdefault("scipy", types.ModuleType("scipy"))
        sys.modules["scipy.stats"] = stats
    try:
        import cuequivariance_ops_torch as ops

        return ops.triangle_multiplicative_update, ops.__version__
    except Exception as problem:  # noqa: BLE001 - whatever it is, the peer is not there
        print(f"cuEquivariance: {type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}")
        return None


def entries() -> dict[str, Callable]:
    """Entries to the competition, as calls of (x, mask, weights): its names of weights are those of linears."""
    found = {}
    for named in filter(None, os.environ.get("CLEBSCH_TRIMUL_ENTRIES", "").split(",")):
        name, path = named.split("=", 1)
        spec = importlib.util.spec_from_file_location(f"trimul_{len(found)}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        def call(x, mask, w, kernel=module.custom_kernel):
            hidden = w["p_in_weight"].shape[0] // 2
            of_linears = {
                "norm.weight": w["norm_in_weight"], "norm.bias": w["norm_in_bias"],
                "left_proj.weight": w["p_in_weight"][:hidden], "right_proj.weight": w["p_in_weight"][hidden:],
                "left_gate.weight": w["g_in_weight"][:hidden], "right_gate.weight": w["g_in_weight"][hidden:],
                "out_gate.weight": w["g_out_weight"], "to_out_norm.weight": w["norm_out_weight"],
                "to_out_norm.bias": w["norm_out_bias"], "to_out.weight": w["p_out_weight"],
            }  # fmt: skip
            config = {"dim": x.shape[-1], "hidden_dim": hidden, "nomask": mask is None}
            return kernel((x, mask, of_linears, config))

        found[name] = call
    return found


def contenders(gate: str, dtype: torch.dtype, compiled: bool, direct: bool) -> dict[str, Callable]:
    """Calls of (x, mask, weights) by name. `direct`: cuEquivariance can do the shape."""
    found: dict[str, Callable] = {"torch": lambda x, mask, w: composition(x, mask, w, gate, dtype)}
    if compiled:
        torch._dynamo.reset()
        call = torch.compile(composition, dynamic=False)
        found["torch.compile"] = lambda x, mask, w: call(x, mask, w, gate, dtype)
    if gate == "before":
        found |= entries()
    peer = cuequivariance() if direct and gate == "after" else None
    for campaign, switch in (("auto", 2), ("0", 0)) if peer else ():  # CUEQ_TRIMUL_KF_CAMPAIGN, read at import

        def of_cuequivariance(x, mask, w, switch=switch, update=peer[0], masks={}):  # noqa: B006 - kept from call to call
            sys.modules[update.__module__].CUEQ_TRIMUL_KF_CAMPAIGN = switch
            # It takes masks of numbers, which a user of it has: made once, outside of what is timed.
            if mask is not None and masks.get("of") is not mask:
                masks.update(of=mask, numbers=mask.to(x.dtype))
            return update(x, direction="outgoing", mask=None if mask is None else masks["numbers"], **w)

        found[f"cuEquivariance {campaign}"] = of_cuequivariance
    return found
