"""clebsch compile --tune without a GPU: what is chosen from given times, and what the command says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clebsch import tuning
from clebsch.errors import ClebschError
from clebsch.tuning import Measurement

MODEL = Path(__file__).resolve().parents[2] / "models/water-nequip.pt"


def measured(times: dict[str, list], asked: list | None = None):
    """A measurement that answers from a list of results a plan, in turn; an exception is raised."""
    left = {plan: list(results) for plan, results in times.items()}

    def measure(plan: str) -> Measurement:
        if asked is not None:
            asked.append(plan)
        result = left[plan].pop(0)
        if isinstance(result, Exception):
            raise result
        return result if isinstance(result, Measurement) else Measurement(result, 1e-6)

    return measure


def test_the_fastest_is_chosen_and_everything_is_measured_once():
    asked: list[str] = []
    times = {"": [10, 10], "a=1": [9], "b=1": [7], "c=1": [8]}
    choice = tuning.choose(["a=1", "b=1", "c=1"], measured(times, asked), floor=1e-4)
    assert choice.plan == "b=1" and choice.best.ms == 7 and choice.default.ms == 10
    assert asked == ["", "a=1", "b=1", "c=1", ""]
    assert len(choice.lines) == 4


@pytest.mark.parametrize("ms", [10, 9.9, 11])
def test_noise_changes_nothing(ms):
    choice = tuning.choose(["a=1"], measured({"": [10, 10], "a=1": [ms]}), floor=1e-4)
    assert choice.plan == "" and choice.best == choice.default


def test_a_slow_first_measurement_of_the_planner_is_no_gain():
    """The first step of a cold device: another plan must beat the planner's faster time."""
    choice = tuning.choose(["a=1"], measured({"": [20, 10], "a=1": [11]}), floor=1e-4)
    assert choice.plan == "" and choice.best.ms == 10


@pytest.mark.parametrize("error", [1e-3, float("nan"), float("inf")])
def test_wrong_forces_are_refused_however_fast(error):
    times = {"": [10, 10], "a=1": [Measurement(1, error)], "b=1": [9]}
    choice = tuning.choose(["a=1", "b=1"], measured(times), floor=1e-4)
    assert choice.plan == "b=1"
    assert any("REFUSED" in line and "a=1" in line for line in choice.lines)


def test_the_error_of_the_planner_sets_what_is_right():
    times = {"": [Measurement(10, 1e-3)] * 2, "a=1": [Measurement(5, 1.9e-3)], "b=1": [Measurement(4, 2.1e-3)]}
    assert tuning.choose(["a=1", "b=1"], measured(times), floor=1e-4).plan == "a=1"


def test_a_plan_that_fails_is_left_out():
    times = {"": [10, 10], "a=1": [RuntimeError("no such plan\nlog")], "b=1": [ClebschError("refused")], "c=1": [8]}
    choice = tuning.choose(["a=1", "b=1", "c=1"], measured(times), floor=1e-4)
    assert choice.plan == "c=1"
    assert [line for line in choice.lines if "left out" in line] == [
        "a=1: left out: no such plan",
        "b=1: left out: refused",
    ]


def test_an_error_of_the_planners_own_plan_is_the_callers():
    with pytest.raises(RuntimeError, match="broken"):
        tuning.choose(["a=1"], measured({"": [RuntimeError("broken")]}), floor=1e-4)


@pytest.mark.parametrize("before", [None, "blocks=3"])
def test_the_option_is_given_back(before, monkeypatch):
    name = "CLEBSCH_CUDA_INTERACTION"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    with pytest.raises(KeyError), tuning.environment(name, "blocks=2"):
        assert os.environ[name] == "blocks=2"
        raise KeyError
    assert os.environ.get(name) == before


def test_relative_error():
    reference = torch.tensor([[3.0, 4.0, 0.0]], dtype=torch.float64)
    assert tuning.relative_error(reference, reference) == 0
    assert tuning.relative_error(reference * 1.01, reference) == pytest.approx(0.01)
    assert not tuning.relative_error(reference * float("nan"), reference) <= 1


def test_problems_are_listed_once_by_op_and_number_type():
    kernels = [
        {"kernel": "interaction float", "problem": "p"},
        {"kernel": "interaction_backward x edge_vec float", "problem": "p"},
        {"kernel": "interaction_density double", "problem": "q"},
        {"kernel": "linear wide float", "problem": "r"},
    ]
    assert tuning.kernel_problems(kernels) == {"interaction": [("float32", "p"), ("float64", "q")]}


def test_the_command_says_that_there_is_no_gpu(tmp_path):
    if torch.classes.clebsch.Model.visible_gpus() > 0:
        pytest.skip("there is a GPU")
    words = [sys.executable, "-W", "ignore", "-m", "clebsch", "compile", str(MODEL), "--cache", str(tmp_path)]
    done = subprocess.run([*words, "--tune"], capture_output=True, text=True)
    assert done.returncode != 0 and "on a GPU, and there is none here" in done.stderr + done.stdout
    both = subprocess.run([*words, "--tune", "--arch", "90"], capture_output=True, text=True)
    assert both.returncode == 2 and "not allowed with argument" in both.stderr
    neither = subprocess.run(words, capture_output=True, text=True)
    assert neither.returncode == 2 and "--arch" in neither.stderr
    assert not list(tmp_path.glob("plan-*"))


def test_a_plan_cannot_be_kept_without_a_gpu(tmp_path):
    if torch.classes.clebsch.Model.visible_gpus() > 0:
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="on a GPU"):
        problem = "conv in1=32x0e in2=1x0e out=32x0e paths=uvu:0,0,0,1"
        torch.classes.clebsch.Model.keep_plan(str(tmp_path), "CLEBSCH_CUDA_INTERACTION", "float32", problem, "")
