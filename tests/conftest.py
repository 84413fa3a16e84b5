"""For all tests in Python: `scripts/test --minutes N` begins no file of tests later than that."""

import os
import time

import pytest

#: What ctest takes for "skipped" (SKIP_RETURN_CODE); its summary then names the file.
LEFT_OUT = 77


def pytest_sessionstart() -> None:
    until = os.environ.get("CLEBSCH_TEST_UNTIL")
    if until and time.time() > float(until):
        pytest.exit("left out: the time that scripts/test --minutes gives had passed", returncode=LEFT_OUT)
