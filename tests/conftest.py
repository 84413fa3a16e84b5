"""For all tests in Python: `scripts/test --minutes N` begins no file of tests later than that, and leaves those marked
`nightly` to `scripts/test --nightly`. pytest by hand runs all."""

import os
import time

import pytest

#: What ctest takes for "skipped" (SKIP_RETURN_CODE); its summary then names the file.
LEFT_OUT = 77


def pytest_sessionstart() -> None:
    until = os.environ.get("CLEBSCH_TEST_UNTIL")
    if until and time.time() > float(until):
        pytest.exit("left out: the time that scripts/test --minutes gives had passed", returncode=LEFT_OUT)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not os.environ.get("CLEBSCH_TEST_USUAL"):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
