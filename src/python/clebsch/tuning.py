"""clebsch compile --tune: plans of the GPU kernels, measured on the GPU that is here, and kept for later runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from . import library
from .errors import ClebschError
from .kernels import standard_folder
from .probe import random_structure
from .progress import Progress, silent
from .runtime import Model

#: By the op that an option plans: the option, and texts beside the planner's own choice, which is "".
CANDIDATES = {
    "interaction": (
        "CLEBSCH_CUDA_INTERACTION",
        ("blocks=2", "blocks=3", "blocks=4", "units=8,blocks=2", "prefetch=0", "prefetch=1", "horner=0", "horner=2",
         "lanes=0", "integers=0"),
    ),
    "tensor_product_conv": (
        "CLEBSCH_CUDA_SCHEDULE",
        ("blocks=2", "blocks=3", "stages=0", "stages=2", "stages=4", "prefetch=0", "prefetch=1", "hoist=0"),
    ),
}  # fmt: skip
#: A plan is chosen when it takes less than this part of the planner's own: less is noise.
GAIN = 0.98


@dataclass
class Measurement:
    """Of one plan: milliseconds a step, and the root mean square of its forces' error over that of the forces."""

    ms: float
    error: float


@dataclass
class Choice:
    """`plan` is the fastest that gave right forces; `lines` say how each came out."""

    plan: str
    default: Measurement
    best: Measurement
    lines: list[str] = field(default_factory=list)


def choose(
    candidates: Sequence[str],
    measure: Callable[[str], Measurement],
    *,
    floor: float,
    report: Callable[[str], None] = lambda line: None,
) -> Choice:
    """The plan to keep. The planner's own (\"\") is measured first and again last, and the faster of the two counts;
    another replaces it when it takes less than GAIN of that, and its forces' error is at most twice the planner's or
    `floor`, whichever is larger. A candidate that cannot be planned, compiled or run (RuntimeError, ClebschError) is
    left out. Errors of the planner's own plan are the caller's.
    """
    default = measure("")
    choice = Choice("", default, default)
    allowed = max(floor, 2 * default.error)

    def tell(plan: str, outcome: str) -> None:
        choice.lines.append(f"{plan or 'the planner'}: {outcome}")
        report(choice.lines[-1])

    tell("", f"{default.ms:.3f} ms a step, error of forces {default.error:.1e}")
    found: list[tuple[str, Measurement]] = []
    for plan in candidates:
        try:
            measured = measure(plan)
        except (RuntimeError, ClebschError) as error:
            tell(plan, "left out: " + str(error).strip().splitlines()[0][:150])
            continue
        right = measured.error <= allowed  # false for what is not a number
        if right and measured.ms > 0:
            found.append((plan, measured))
        tell(plan, f"{measured.ms:.3f} ms a step" if right else f"REFUSED: error of forces {measured.error:.1e}")
    again = measure("")
    if 0 < again.ms < default.ms:
        choice.default = choice.best = again
    for plan, measured in found:
        if measured.ms < GAIN * choice.default.ms and measured.ms < choice.best.ms:
            choice.plan, choice.best = plan, measured
    return choice


@contextmanager
def environment(option: str, plan: str) -> Iterator[None]:
    """The option set to a plan; \"\" is the planner's own, whatever is kept."""
    old = os.environ.get(option)
    os.environ[option] = plan
    try:
        yield
    finally:
        if old is None:
            del os.environ[option]
        else:
            os.environ[option] = old


def relative_error(forces: torch.Tensor, reference: torch.Tensor) -> float:
    """Root mean square of the difference over that of the reference; not a number where a force is none."""
    difference = (forces - reference).square().mean().sqrt()
    return float(difference / reference.square().mean().sqrt().clamp_min(1e-12))


@dataclass
class Tuned:
    """What tune_file did: by option the choice, and how many files were written."""

    folder: str
    choices: dict[str, Choice] = field(default_factory=dict)
    kept: int = 0


def tune_file(
    path: str | os.PathLike[str],
    *,
    cache: str | None = None,
    dtype: str | None = None,
    radial: str = "table",
    deterministic: bool = True,
    side: int = 16,
    density: float = 0.1,
    repeats: int = 20,
    report: Callable[[str], None] = lambda line: None,
    progress: Progress = silent,
) -> Tuned:
    """Measures the candidates of every op that the model calls on the current GPU, with side^3 random atoms at
    `density` (atoms per cubic Angstrom), and keeps the choice for each of the op's problems beside the compiled
    kernels. Forces are compared with those of the CPU in fp64. Raises ClebschError without a GPU, or where nothing
    can be kept.
    """
    library.require()
    native = torch.classes.clebsch.Model
    if native.visible_gpus() == 0:
        raise ClebschError("--tune measures kernels on a GPU, and there is none here: run it where the model will run")
    folder = standard_folder() if cache is None else os.path.abspath(cache)
    if problem := native.kernel_cache_problem(folder):
        raise ClebschError(f"measured plans cannot be kept: {problem}")
    exact = Model(path, dtype="float64", radial="exact")
    probe = random_structure(len(exact.type_names), exact.r_max, 0, side, density)
    structure = (probe.vectors, probe.types, probe.receivers, probe.senders)
    reference = exact.compute(*structure)["forces"]

    def load() -> Model:
        return Model(path, dtype=dtype, radial=radial, deterministic=deterministic, device="cuda", progress=progress)

    def measure(option: str, plan: str) -> Measurement:
        with environment(option, plan):
            tried = load()
            for _ in range(3):  # the second step is recorded, the third replays it
                forces = tried.compute(*structure)["forces"]
            return Measurement(tried.time_device(repeats), relative_error(forces, reference))

    result = Tuned(folder)
    model = load()
    floor = 1e-4 if model.dtype == "float32" else 1e-9
    problems = kernel_problems(model.compile_kernels(0, cache_folder=folder, list_only=True))
    for op, (option, candidates) in CANDIDATES.items():
        if not problems.get(op):
            continue
        report(f"{option}, {len(probe.types)} atoms:")
        choice = choose(candidates, lambda plan, o=option: measure(o, plan), floor=floor, report=report)
        result.choices[option] = choice
        for number, problem in problems[op]:
            if refused := native.keep_plan(folder, option, number, problem, choice.plan):
                raise ClebschError(f"measured plans cannot be kept: {refused}")
            result.kept += 1
    return result


def kernel_problems(kernels: Sequence[dict]) -> dict[str, list[tuple[str, str]]]:
    """By op of CANDIDATES the (number type, problem) pairs of its kernels, each once."""
    found: dict[str, list[tuple[str, str]]] = {}
    for kernel in kernels:
        for op in CANDIDATES:
            if kernel["kernel"].startswith(op):
                number = "float64" if kernel["kernel"].endswith(" double") else "float32"
                of_op = found.setdefault(op, [])
                if (number, kernel["problem"]) not in of_op:
                    of_op.append((number, kernel["problem"]))
    return found


def summary(tuned: Tuned) -> str:
    """One line an option."""
    if not tuned.choices:
        return "no kernel of this model has plans to choose from"
    lines = []
    for option, choice in tuned.choices.items():
        gain = 100 * (1 - choice.best.ms / choice.default.ms)
        if choice.plan:
            times = f"{choice.best.ms:.3f} ms a step instead of {choice.default.ms:.3f}, {gain:.0f}% less"
            lines.append(f"{option}: {choice.plan}, {times}")
        else:
            lines.append(f"{option}: no plan is faster than the planner's own")
    return "\n".join([*lines, f"{tuned.kept} choices kept in {tuned.folder}"])
