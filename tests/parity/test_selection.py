"""Choosing rows and structures: against plain greedy searches and enumerated laws (docs/uncertainty.md)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from clebsch.errors import ClebschError
from clebsch.grade import maxvol_rows, spectrum
from clebsch.sampling import leverage_scores, select, selection


def rows(count: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, width)) * np.geomspace(1, 0.01, width) * rng.exponential(size=(count, 1))


def gain(u: np.ndarray) -> float:
    return float(np.linalg.slogdet(np.eye(u.shape[1]) + u.T @ u)[1])


def test_leverage_scores() -> None:
    f = rows(300, 7)
    inverse = np.linalg.inv(f.T @ f + 300 * 1e-8 * np.linalg.eigvalsh(f.T @ f / 300)[-1] * np.eye(7))
    assert np.allclose(leverage_scores(f), np.einsum("ni,ij,nj->n", f, inverse, f), rtol=1e-9)
    assert leverage_scores(f).sum() == pytest.approx(spectrum(f.T @ f / 300).rank, rel=1e-10)
    flat = np.concatenate([f, f[:, :1]], axis=1)  # of rank 7: the sum is the rank
    assert leverage_scores(flat).sum() == pytest.approx(7, abs=1e-3)  # less what the ridge takes


@pytest.mark.parametrize("pool", [5, 10**9])
def test_doptimal_is_plain_greedy(monkeypatch, pool: int) -> None:
    """With a pool of a few rows, so that bounds and passes matter, and with all rows in it."""
    monkeypatch.setattr(selection, "_POOL", pool)
    f, known = rows(200, 6, 1), rows(50, 6, 2)
    covariance = known.T @ known / 50
    u = f @ spectrum(covariance).whitening(50)
    expected: list[int] = []
    for _ in range(12):
        gains = [-1.0 if i in expected else gain(u[[*expected, i]]) for i in range(len(u))]
        expected.append(int(np.argmax(gains)))
    assert select(f, 12, known=(covariance, 50)).tolist() == expected


@pytest.mark.parametrize("pool", [5, 10**9])
def test_fps_is_plain_farthest_point(monkeypatch, pool: int) -> None:
    monkeypatch.setattr(selection, "_POOL", pool)
    f = rows(150, 4, 3)
    u = f @ spectrum(f.T @ f / 150).whitening(150)
    expected = [int((u * u).sum(1).argmax())]
    for _ in range(9):
        distance = np.min([((u - u[i]) ** 2).sum(1) for i in expected], axis=0)
        expected.append(int(distance.argmax()))
    assert select(f, 10, "fps").tolist() == expected


@pytest.mark.parametrize("per_atom", [False, True])
def test_groups_by_gain(per_atom: bool) -> None:
    f, known = rows(120, 5, 4), rows(40, 5, 5)
    sizes = np.random.default_rng(6).integers(1, 9, 25)
    groups = np.repeat(np.arange(25), sizes)
    f = f[: len(groups)] if len(groups) <= 120 else rows(len(groups), 5, 4)
    covariance = known.T @ known / 40
    u = f @ spectrum(covariance).whitening(40)
    expected: list[int] = []
    for _ in range(8):
        base = u[np.isin(groups, expected)]
        gains = [
            -1.0 if s in expected
            else (gain(np.concatenate([base, u[groups == s]])) - gain(base)) / (sizes[s] if per_atom else 1)
            for s in range(25)
        ]  # fmt: skip
        expected.append(int(np.argmax(gains)))
    found = select(f, 8, groups=groups, known=(covariance, 40), per_atom=per_atom)
    assert found.tolist() == expected


def test_volume_has_its_law() -> None:
    """First and second draw of 4,000 runs against the enumerated probabilities, chi-square at 1e-6."""
    f = rows(6, 3, 7)
    u = f @ spectrum(f.T @ f / 6).whitening(6)
    seen = Counter(tuple(select(f, 2, "volume", seed=k).tolist()) for k in range(4000))
    chi = 0.0
    scores = (u * u).sum(1)
    for i in range(6):
        p = np.eye(3) - np.outer(u[i], u[i]) / (1 + scores[i])
        second = np.einsum("ni,ij,nj->n", u, p, u)
        second[i] = 0.0
        for j in range(6):
            if i != j:
                expected = 4000 * scores[i] / scores.sum() * second[j] / second.sum()
                chi += (seen[i, j] - expected) ** 2 / expected
    assert chi < 29 + 5.5 * np.sqrt(2 * 29)


@pytest.mark.parametrize("method", ["leverage", "volume"])
def test_draws(method: str) -> None:
    """No row twice, the same ones with the same seed, large scores first; groups as well."""
    f = rows(400, 5, 8)
    found = select(f, 40, method, seed=3)
    assert len(set(found.tolist())) == 40 and np.array_equal(found, select(f, 40, method, seed=3))
    assert not np.array_equal(found, select(f, 40, method, seed=4))
    groups = np.repeat(np.arange(40), 10)
    assert len(set(select(f, 15, method, groups=groups, seed=1).tolist())) == 15


def test_maxvol() -> None:
    f = rows(300, 6, 9)
    chosen = maxvol_rows(f)
    assert len(set(chosen.tolist())) == 6
    assert np.abs(np.linalg.solve(f[chosen].T, f.T)).max() <= 1.01 + 1e-9
    assert sorted(select(f, 6, "maxvol").tolist()) == sorted(set(select(f, 6, "maxvol").tolist()))
    with pytest.raises(ClebschError, match="at most the rank, 6, got 7"):
        select(f, 7, "maxvol")
    with pytest.raises(ClebschError, match="expected rows of rank 2, got 1"):
        maxvol_rows(np.ones((5, 2)))


@pytest.mark.parametrize("method", ["doptimal", "volume", "leverage", "maxvol", "fps"])
@pytest.mark.parametrize("grouped", [False, True])
def test_float32_and_tensors(method: str, grouped: bool, monkeypatch) -> None:
    """Features may be kept in float32, or by torch; blocks of a tensor make no difference."""
    import torch

    from clebsch.sampling import selection

    monkeypatch.setattr(selection, "_DEVICE_BLOCK", 37)
    rows = np.random.default_rng(8).normal(size=(300, 6)).astype(np.float32) * np.geomspace(1, 0.1, 6).astype(
        np.float32
    )
    groups = np.repeat(np.arange(60), 5) if grouped else None
    expected = select(rows.astype(np.float64), 4, method, groups=groups).tolist()
    for features in (rows, torch.from_numpy(rows), torch.from_numpy(rows).double()):
        assert select(features, 4, method, groups=groups).tolist() == expected
        scores = leverage_scores(features)
        assert np.abs(scores / leverage_scores(rows.astype(np.float64)) - 1).max() < 1e-10
    bad = torch.from_numpy(rows.copy())
    bad[7, 2] = float("nan")
    for features in (bad, bad.numpy()):
        with pytest.raises(ClebschError, match="in row 7"):
            select(features, 4, method)


def test_refusals() -> None:
    f = rows(10, 3)
    for arguments, match in (
        ((f, 0), "count: expected 1 to 10, got 0"),
        ((f, 11), "count: expected 1 to 10, got 11"),
        ((f, 2, "best"), "method: expected one of"),
        ((np.zeros((4, 3)), 1), "rank 0"),
        ((f[:, :0], 1), "expected rows of atoms"),
    ):
        with pytest.raises(ClebschError, match=match):
            select(*arguments)
    bad = f.copy()
    bad[4, 1] = np.nan
    with pytest.raises(ClebschError, match="row 4"):
        select(bad, 1)
    with pytest.raises(ClebschError, match="ascending"):
        select(f, 1, groups=np.array([1, 0] * 5))


@pytest.mark.usefixtures("needs_library")
def test_command(tmp_path: Path, capsys) -> None:
    """`clebsch select` prefers the strange structures of a pool, by the file's covariance and by a known set."""
    import ase.io

    from clebsch.cli import main
    from graded_models import structures, write_graded

    model = write_graded(tmp_path / "model.pt")
    pool = structures(15, seed=21)
    for strange in pool[3:6]:
        strange.set_cell(0.5 * strange.cell.array, scale_atoms=True)
    ase.io.write(tmp_path / "pool.xyz", pool, format="extxyz")
    ase.io.write(tmp_path / "train.xyz", structures(20), format="extxyz")
    out = tmp_path / "chosen.xyz"
    common = ["select", str(tmp_path / "pool.xyz"), "--model", str(model), "--out", str(out)]
    chosen = []
    for known in ([], ["--known", str(tmp_path / "train.xyz")]):
        assert main([*common, *known, "--count", "3"]) == 0
        chosen.append([atoms.info["pool_index"] for atoms in ase.io.read(out, ":")])
    assert sorted(chosen[0]) == [3, 4, 5] and chosen[0] == chosen[1]
    assert (tmp_path / "chosen.png").stat().st_size > 1000
    assert main([*common, "--count", "4", "--per", "atom", "--method", "fps"]) == 0
    assert sum(int(atoms.arrays["chosen"].sum()) for atoms in ase.io.read(out, ":")) == 4
    text = capsys.readouterr().out
    assert "3 of 15 structures" in text and "with what was chosen" in text
    assert main([*common, "--count", "99"]) == 1
    assert "expected 1 to 15, got 99" in capsys.readouterr().err
