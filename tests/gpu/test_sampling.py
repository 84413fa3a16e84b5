"""clebsch.sampling on a GPU against the CPU: rows, weights, scores, changes, numbers out of range; the law."""

from __future__ import annotations

import pytest
import torch

from clebsch import ClebschError
from clebsch.sampling import KhatriRaoSampler, ProductLawSampler, RowSampler

pytestmark = pytest.mark.gpu


def factors(rows, columns: int, seed: int = 1) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(size, columns, dtype=torch.float64, generator=random) for size in rows]


def compare(host: KhatriRaoSampler, there: KhatriRaoSampler, count: int, **options) -> None:
    a, b = host.draw(count, **options), there.draw(count, **options)
    same = (a.indices == b.indices.cpu()).all(1)
    assert a.rank == b.rank and same.double().mean() >= 0.9999
    torch.testing.assert_close(a.weights[same], b.weights.cpu()[same], rtol=1e-8, atol=0)
    torch.testing.assert_close(a.rows[same], b.rows.cpu()[same], rtol=1e-12, atol=0)
    scores = there.scores(b.indices, exclude=options.get("exclude"))
    torch.testing.assert_close(scores * b.weights * count, torch.full_like(scores, a.rank), rtol=1e-8, atol=0)


#: Numbers of columns that take every kernel.
@pytest.mark.parametrize("columns", [1, 7, 32, 40, 64, 90, 127, 128, 200])
def test_draws_are_the_cpus(columns, device):
    u = factors((3000, 1500, 40 if columns < 30 else 300), columns)
    compare(KhatriRaoSampler(u), KhatriRaoSampler([v.to(device) for v in u]), 3000, seed=5)


@pytest.mark.sanitize
@pytest.mark.parametrize("columns", [3, 34, 50, 70, 100, 133])
def test_small_problems_and_changes(columns, device):
    u = factors((70, columns + 9), columns, seed=3)
    host, there = KhatriRaoSampler(u, leaf_rows=4), KhatriRaoSampler([v.clone().to(device) for v in u], leaf_rows=4)
    compare(host, there, 50, seed=1)
    compare(host, there, 50, seed=1, exclude=0)
    for row, column, value in ((3, 0, 2.0), (69, 2, -1.0), (40, 1, 0.0)):
        host.set(0, row, column, value)
        there.set(0, row, column, value)
    compare(host, there, 50, seed=2)
    new = factors((33 + columns,), columns, seed=9)[0]
    host.set_factor(1, new)
    there.set_factor(1, new.to(device))
    compare(host, there, 50, seed=3)


@pytest.mark.sanitize
def test_numbers_out_of_range(device):
    u = factors((60, 50), 4)
    u[0] *= 1e150
    u[1][:, 2] *= 1e-150
    compare(KhatriRaoSampler(u), KhatriRaoSampler([v.to(device) for v in u]), 64, seed=1)
    u[1][31, 3] = float("nan")
    with pytest.raises(ClebschError, match="factor 1: expected finite numbers, got nan in row 31, column 3"):
        KhatriRaoSampler([v.to(device) for v in u])


def test_draws_follow_leverages(device):
    u = factors((8, 8, 8), 8)
    drawn = KhatriRaoSampler([v.to(device) for v in u]).draw(50000, seed=7).indices
    found = torch.bincount(64 * drawn[:, 0] + 8 * drawn[:, 1] + drawn[:, 2], minlength=512).double().cpu()
    law = KhatriRaoSampler(u).law()
    expected = 50000 * law
    large = expected > 5
    chi = ((found - expected).square() / expected)[large].sum()
    assert chi < 1.4 * int(large.sum())  # 1e-6 for some 500 degrees of freedom


def test_row_sampler_and_product_law(device):
    u = factors((500,), 6)[0]
    h = torch.randn(400, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    uniforms = torch.rand(400, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    expected = RowSampler(u).draw(h, uniforms)
    found = RowSampler(u.to(device)).draw(h.to(device), uniforms.to(device)).cpu()
    assert (expected == found).double().mean() > 0.995
    both = factors((40, 30), 5)
    a, b = ProductLawSampler(both).draw(100, seed=2), ProductLawSampler([v.to(device) for v in both]).draw(100, seed=2)
    assert (a.indices == b.indices.cpu()).all(1).double().mean() > 0.98


def test_a_refused_factor_changes_nothing(device):
    u = factors((70, 40), 5, seed=3)
    host, there = KhatriRaoSampler(u), KhatriRaoSampler([v.clone().to(device) for v in u])
    compare(host, there, 50, seed=1)
    bad = u[0].clone()
    bad[3, 2] = torch.nan
    for _ in range(2):
        with pytest.raises(ClebschError, match="finite"):
            there.set_factor(0, bad.to(device))
        compare(host, there, 50, seed=1)
        compare(host, there, 50, seed=1, exclude=0)


def test_streams_in_turn(device):
    """Draws on one stream and another, with plans that are made anew between them, are those of one stream."""
    if device == "cpu":
        pytest.skip("streams are a GPU's")
    u = factors((3000, 400), 20, seed=4)
    host, there = KhatriRaoSampler(u), KhatriRaoSampler([v.to(device) for v in u])
    streams = [torch.cuda.Stream() for _ in range(2)]
    for step in range(12):
        exclude = [None, 0, 1][step % 3]
        with torch.cuda.stream(streams[step % 2]):
            found = there.draw(2000, seed=step, exclude=exclude)
            noise = torch.full((1 << 18,), torch.nan, device=device)  # takes memory that was given back too early
            del noise
        streams[step % 2].synchronize()
        same = (host.draw(2000, seed=step, exclude=exclude).indices == found.indices.cpu()).all(1)
        assert same.double().mean() >= 0.999
