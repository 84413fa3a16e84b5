"""Runs a plan in LAMMPS and judges what it gave."""

from __future__ import annotations

import argparse

import check
import engine
import numpy as np

from cases import BASES, Case


def reference(case: Case, args: argparse.Namespace, program: engine.Program) -> engine.Outcome:
    """Forces and energy of the base cell: float64, radial networks themselves, CPU."""
    style = engine.styles(program, None, 1)["cpu"]
    plan = engine.Plan(case, BASES[case.base](), (1, 1, 1), style, "float64", radial="exact")
    outcome = engine.run(plan, args.threads, args.limit)
    if not outcome.failure and not np.sqrt((outcome.forces**2).mean()) > 1e-3:
        outcome.failure = "the base cell's forces are nearly zero: nothing to compare with"
    return outcome


def measure(plan: engine.Plan, exact: engine.Outcome, args: argparse.Namespace) -> dict:
    """Runs a plan and judges it: a point, with `failure` where something is wrong."""
    point = {
        "case": plan.case.name, "style": plan.style.name, "dtype": plan.dtype, "atoms": plan.atoms,
        "copies": list(plan.copies), "deterministic": True, "timestep_fs": plan.timestep,
        "ranks": plan.ranks, "comm": plan.comm or "auto", "gpus": args.gpus if "g" in plan.style.flags else 0,
    }  # fmt: skip
    keep = args.logs / f"{plan.case.name}-{plan.style.name}-{plan.dtype}-{plan.atoms}.log" if args.logs else None
    outcome = engine.run(plan, args.threads, args.limit, keep)
    point |= {
        "host_mb": outcome.host_mb,
        "device_mb": outcome.device_mb,
        "wall_s": outcome.wall,
        "failure": outcome.failure,
    }
    if outcome.failure:
        return point
    point["error"], point["energy_error"] = check.start_errors(outcome, exact, int(np.prod(plan.copies)))
    parts, rest = outcome.loops[2 : 2 + plan.chunks], outcome.loops[2 + plan.chunks :]
    timed = engine.join(parts) if parts else None
    point["drift"] = check.drift(timed) if timed else None
    point["failure"] = check.verdict(point["error"], point["energy_error"], point["drift"], plan.dtype)
    if point["failure"] or not timed or not timed.steps:
        return point
    rate = timed.steps / timed.seconds
    point |= {
        "steps": timed.steps, "builds": timed.builds, "step_ms": 1e3 / rate, "steps_s": rate,
        "katom_steps_s": rate * plan.atoms / 1e3, "ns_day": rate * plan.timestep * 1e-6 * 86400,
        "sections_percent": {k: 100 * v / timed.seconds for k, v in timed.sections.items()},
    }  # fmt: skip
    if len(parts) >= 5:  # the middle half of the parts' speeds, relative
        cuts = np.quantile([part.seconds / part.steps for part in parts if part.steps], [0.25, 0.75])
        point["relative_spread"] = float((cuts[1] - cuts[0]) * rate)
    if rest and rest[-1].style:
        phases = rest[-1].style
        point["phases_ms"] = {("rest" if k == "LAMMPS" else k): v for k, v in phases.items()}
        point["overhead_percent"] = 100 * (1 - phases["model"] / sum(phases.values()))
    return point
