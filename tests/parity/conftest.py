"""Fixtures of the parity tests. The package is imported from the checkout, libclebsch from CLEBSCH_LIBRARY."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "src" / "python"), str(HERE), str(ROOT / "tests/unit")]
# For the programs that tests start.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src/python"), os.environ.get("PYTHONPATH", "")]))

import torch  # noqa: E402

from clebsch import library  # noqa: E402

library.load()  # for tests that call torch.ops.clebsch themselves


@pytest.fixture(autouse=True)
def _two_threads() -> None:
    torch.set_num_threads(min(2, os.cpu_count() or 1))


@pytest.fixture(scope="session")
def needs_library() -> None:
    """Skips by hand-run tests in a checkout that is not built; where CLEBSCH_LIBRARY is set, a failure is a failure."""
    state = library.load()
    if state.path is None:
        if "CLEBSCH_LIBRARY" in os.environ:
            pytest.fail(state.problem)
        pytest.skip(state.problem)


@pytest.fixture(scope="session")
def upstream_model() -> Callable[[str], torch.nn.Module]:
    """The upstream model of a named case, built once."""
    import cases
    import upstream

    built: dict[tuple[str, str], torch.nn.Module] = {}

    def get(name: str, dtype: str = "float64") -> torch.nn.Module:
        if (name, dtype) not in built:
            built[name, dtype] = upstream.build(**{**cases.CASES[name], "model_dtype": dtype})
        return built[name, dtype]

    return get


@pytest.fixture(scope="session")
def exported(tmp_path_factory, upstream_model) -> Callable[[str], str]:
    """The model file of a named case, written once, not verified by the exporter."""
    from clebsch import export

    folder = tmp_path_factory.mktemp("models")
    done: dict[tuple[str, str], str] = {}

    def get(name: str, dtype: str = "float64") -> str:
        if (name, dtype) not in done:
            path = folder / f"{name}-{dtype}.pt"
            export.nequip(upstream_model(name, dtype), path, verify=False)
            done[name, dtype] = str(path)
        return done[name, dtype]

    return get
