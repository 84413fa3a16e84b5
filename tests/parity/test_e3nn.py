"""The committed e3nn values that the C++ core tests use are those of the installed e3nn."""

import json

import pytest

pytest.importorskip("e3nn")

import make_e3nn_golden  # noqa: E402  (needs e3nn)


def assert_same(got, expected, where="golden"):
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), where
        for key in expected:
            if key != "e3nn":
                assert_same(got[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(got) == len(expected), where
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, rel=0, abs=1e-13), where
    else:
        assert got == expected, where


def test_committed_values_are_e3nn_s():
    committed = json.loads(make_e3nn_golden.DEFAULT.read_text())
    assert_same(json.loads(json.dumps(make_e3nn_golden.golden())), committed)
