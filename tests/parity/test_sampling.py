"""clebsch.sampling in Python: laws, draws, changes, errors, the product law, CP-ALS, what `import clebsch` loads."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading

import pytest
import torch

from clebsch import ClebschError, library, multilinear_library
from clebsch.sampling import KhatriRaoSampler, ProductLawSampler, RowSampler, cp_als

BUILT = library.load().path is not None and multilinear_library.place().is_file()
pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")


def factors(rows, columns: int, seed: int = 1) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(size, columns, dtype=torch.float64, generator=random) for size in rows]


def product(matrices: list[torch.Tensor]) -> torch.Tensor:
    """The Khatri-Rao product, first factor slowest."""
    result = matrices[0]
    for u in matrices[1:]:
        result = (result[:, None] * u[None]).reshape(-1, u.shape[1])
    return result


def leverages(matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.qr(matrix)[0].square().sum(1)


@pytest.mark.parametrize("rows", [(30,), (7, 9), (4, 5, 6), (3, 3, 4, 3)])
def test_law_rows_and_weights(rows):
    u = factors(rows, 4)
    sampler = KhatriRaoSampler(u, leaf_rows=2)
    expected = leverages(product(u))
    torch.testing.assert_close(sampler.law(), expected / 4, rtol=0, atol=1e-12)
    drawn = sampler.draw(500, seed=3)
    assert drawn.rank == 4 and drawn.indices.shape == (500, len(rows))
    torch.testing.assert_close(sampler.scores(drawn.indices) * drawn.weights * 500, torch.full((500,), 4.0).double())
    torch.testing.assert_close(drawn.rows, torch.stack([v[drawn.indices[:, k]] for k, v in enumerate(u)]).prod(0))
    again = KhatriRaoSampler(u, leaf_rows=2).draw(500, seed=3)
    assert torch.equal(drawn.indices, again.indices) and torch.equal(drawn.weights, again.weights)
    assert not torch.equal(drawn.indices, sampler.draw(500, seed=4).indices)
    # The first samples are the same, however many there are.
    assert torch.equal(sampler.draw(100, seed=3).indices, drawn.indices[:100])


def test_exclusion_and_changes():
    u = factors((5, 6, 7), 3)
    sampler = KhatriRaoSampler(u)
    for left_out in range(3):
        rest = [v for k, v in enumerate(u) if k != left_out]
        torch.testing.assert_close(sampler.law(left_out), leverages(product(rest)) / 3, rtol=0, atol=1e-12)
        assert bool((sampler.draw(10, exclude=left_out).indices[:, left_out] == -1).all())
    sampler.set(1, 4, 2, 5.0)
    assert u[1][4, 2] == 5.0
    torch.testing.assert_close(sampler.law(), leverages(product(u)) / 3, rtol=0, atol=1e-12)
    new = factors((9,), 3, seed=5)[0]
    sampler.set_factor(2, new)
    torch.testing.assert_close(sampler.law(), leverages(product([*u[:2], new])) / 3, rtol=0, atol=1e-12)
    assert sampler.bytes() > 0


def test_sparse_factors():
    u = factors((40, 30), 3)
    u[0][torch.rand(40, 3, generator=torch.Generator().manual_seed(2)) < 0.7] = 0
    dense, sparse = KhatriRaoSampler(u), KhatriRaoSampler([u[0].to_sparse_csr(), u[1]])
    torch.testing.assert_close(dense.law(), sparse.law(), rtol=0, atol=1e-13)
    assert torch.equal(dense.draw(1000, seed=1).indices, sparse.draw(1000, seed=1).indices)


def test_sparse_factors_on_every_path():
    """Every sampler and every call gives the same for a sparse factor as for the dense one."""
    random = torch.Generator().manual_seed(3)
    u = factors((300, 40, 30), 5, seed=6)
    for k, share in ((0, 0.8), (2, 0.5)):
        u[k][torch.rand(u[k].shape, generator=random) < share] = 0
    u[0][100:150] = 0  # leaves of rows without entries
    dense = KhatriRaoSampler([v.clone() for v in u], leaf_rows=3)
    sparse = KhatriRaoSampler([u[0].to_sparse_csr(), u[1].clone(), u[2].to_sparse_csr()], leaf_rows=3)

    def compare() -> None:
        for left_out in (None, 0, 1, 2):
            a, b = (sampler.draw(3000, exclude=left_out, seed=5) for sampler in (dense, sparse))
            assert torch.equal(a.indices, b.indices) and torch.equal(a.rows, b.rows) and a.rank == b.rank
            torch.testing.assert_close(a.weights, b.weights, rtol=1e-11, atol=0)
            scores = [sampler.scores(a.indices.clamp(min=0), exclude=left_out) for sampler in (dense, sparse)]
            torch.testing.assert_close(*scores, rtol=1e-11, atol=1e-15)

    compare()
    row, column = u[0].nonzero()[7].tolist()
    for sampler in (dense, sparse):
        sampler.set(0, row, column, -2.5)  # a stored entry
    compare()
    new = factors((50,), 5, seed=9)[0]
    new[new < 0] = 0
    dense.set_factor(1, new.clone())
    sparse.set_factor(1, new.to_sparse_csr())
    compare()
    with pytest.raises(ClebschError, match="not stored"):
        sparse.set(0, 120, 0, 1.0)
    # Numbers that need columns scaled.
    for scale in (1e140, 1e-140):
        a, b = (KhatriRaoSampler([m, u[1]]) for m in (u[0] * scale, (u[0] * scale).to_sparse_csr()))
        assert torch.equal(a.draw(500, seed=2).indices, b.draw(500, seed=2).indices)
    h, uniforms = factors((200,), 5, seed=11)[0], torch.ops.clebsch.philox_uniform(2, 0, 0, 200)
    y = torch.eye(5, dtype=torch.float64) + 1
    for form in (None, y):
        a, b = RowSampler(u[0], y=form), RowSampler(u[0].to_sparse_csr(), y=form)
        torch.testing.assert_close(a.law(h[0]), b.law(h[0]), rtol=0, atol=1e-13)
        assert torch.equal(a.draw(h, uniforms), b.draw(h, uniforms))
    for hybrid in (False, True):
        a, b = (ProductLawSampler(m, hybrid) for m in (u, [u[0].to_sparse_csr(), u[1], u[2].to_sparse_csr()]))
        assert torch.equal(a.draw(2000, seed=1).indices, b.draw(2000, seed=1).indices)


def test_row_sampler():
    u = factors((50,), 4)[0]
    h = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    sampler = RowSampler(u, leaf_rows=3)
    expected = (u @ h).square()
    torch.testing.assert_close(sampler.law(h), expected / expected.sum())
    uniforms = torch.ops.clebsch.philox_uniform(1, 0, 0, 20000)
    index = sampler.draw(h.expand(20000, 4), uniforms)
    # Inversion: rows are in the order of the uniform numbers.
    assert torch.equal(index, torch.searchsorted(sampler.law(h).cumsum(0), uniforms, right=True).clamp(max=49))


def test_product_law():
    u = factors((4, 5), 3)
    u[0][2] *= 20
    own = [leverages(v) / 3 for v in u]
    law = (own[0][:, None] * own[1][None]).reshape(-1)
    plain, hybrid = ProductLawSampler(u), ProductLawSampler(u, hybrid=True)
    drawn = plain.draw(20000, seed=1)
    at = drawn.indices[:, 0] * 5 + drawn.indices[:, 1]
    torch.testing.assert_close(drawn.weights, 1 / (20000 * law[at]))
    found = torch.bincount(at, minlength=20).double() / 20000
    assert (found - law).abs().max() < 0.012
    # Certain rows with weight 1, the others from what is left of the law.
    drawn = hybrid.draw(16, seed=2)
    at = drawn.indices[:, 0] * 5 + drawn.indices[:, 1]
    certain = (law >= 1 / 16).nonzero()[:, 0]
    assert set(at[: len(certain)].tolist()) == set(certain.tolist())
    assert bool((drawn.weights[: len(certain)] == 1).all())
    assert len(drawn.weights) == 16 and not set(at[len(certain) :].tolist()) & set(certain.tolist())
    # Unbiased: the mean of many sums is A'A.
    matrix, mean = product(u), torch.zeros(3, 3).double()
    for seed in range(400):
        one = hybrid.draw(16, seed=seed)
        mean += (one.rows * one.weights[:, None]).T @ one.rows / 400
    gram = matrix.T @ matrix
    assert (mean - gram).abs().max() < 0.1 * gram.diagonal().max()
    # Where certain rows are all of the law nothing is drawn, and nothing waits.
    single = [torch.tensor([[1.0], [0.0]]).double(), torch.tensor([[2.0]]).double()]
    assert ProductLawSampler(single, hybrid=True).draw(5).weights.tolist() == [1.0]


def test_hybrid_law():
    """Draws beside the certain tuples have the law of the rest, at chi-square 1e-6; certain ones are never drawn."""
    u = factors((5, 6, 7), 3, seed=8)
    u[0][1] *= 6
    u[2][3] *= 6
    hybrid, count = ProductLawSampler(u, hybrid=True), 70
    tuples = torch.tensor(list(itertools.product(range(5), range(6), range(7))))
    law = hybrid.scores(tuples)
    certain = law >= 1 / count
    left = count - int(certain.sum())
    assert 5 < left < count - 5
    found = torch.zeros(210, dtype=torch.float64)
    for seed in range(300):
        drawn = hybrid.draw(count, seed=seed).indices[-left:]
        found += torch.bincount(drawn @ torch.tensor([42, 7, 1]), minlength=210)
    assert float(found[certain].sum()) == 0
    rest = (~certain).nonzero()[:, 0]
    rest = rest[law[rest].argsort()]
    expected = law[rest] / law[rest].sum() * found.sum()
    cell = (expected.cumsum(0) / 10).long()  # at least ten draws in each
    cell = cell.unique(return_inverse=True)[1].clamp(max=len(cell.unique()) - 2)
    mean, seen = (torch.zeros(int(cell[-1]) + 1).double().index_add_(0, cell, x) for x in (expected, found[rest]))
    square, freedom = float(((seen - mean) ** 2 / mean).sum()), len(mean) - 1
    # Wilson and Hilferty's approximation of the quantile at 1 - 1e-6.
    assert square < freedom * (1 - 2 / (9 * freedom) + 4.753 * (2 / (9 * freedom)) ** 0.5) ** 3
    # Many samples, many certain tuples: as many as asked for, without a loop over them.
    large = ProductLawSampler(factors((2000, 3000), 4), hybrid=True)
    assert len(large.draw(20000, seed=1).weights) == 20000


@pytest.mark.parametrize("sampler", ["exact", "product"])
def test_cp_als_finds_a_planted_tensor(sampler):
    u = factors((8, 9, 7), 3, seed=4)
    asked = []

    def entries(indices: torch.Tensor) -> torch.Tensor:
        asked.append(len(indices))
        return torch.stack([v[indices[:, k]] for k, v in enumerate(u)]).prod(0).sum(1)

    counts = []
    tensor = cp_als((8, 9, 7), entries, 3, 40, rounds=30, seed=2, sampler=sampler,
                    watch=lambda _, __, known: counts.append(known))  # fmt: skip
    every = torch.tensor(list(itertools.product(range(8), range(9), range(7))))
    expected = entries(every)
    assert (tensor.at(every) - expected).norm() < 1e-5 * expected.norm()
    assert abs(tensor.norm() - float(expected.norm())) < 1e-4 * float(expected.norm())
    assert counts == sorted(counts) and counts[-1] == sum(asked[:-1]) <= 8 * 9 * 7


def test_factors_in_the_same_memory():
    """As of a symmetric tensor: a change of one factor is no change of the other."""
    (u,) = factors((6,), 3)
    for given in ([u, u], [u, u[1:5]]):
        sampler = KhatriRaoSampler(given)
        sampler.set(0, 2, 1, 50.0)
        anew = KhatriRaoSampler([v.clone() for v in sampler.factors])
        torch.testing.assert_close(sampler.law(), anew.law())
        assert u[2, 1] == 50 and float(sampler.factors[1].max()) < 10
        u[2, 1] = 1.0
    sampler = KhatriRaoSampler([u, u.clone()])
    sampler.set_factor(1, u)
    assert sampler.factors[1].data_ptr() != u.data_ptr()


def test_threads_take_turns():
    """Draws without different factors, which a sampler keeps plans of, from four threads."""
    sampler = KhatriRaoSampler(factors((600, 600, 600), 8))
    expected = {exclude: sampler.draw(50, exclude, seed=1).indices for exclude in (0, 1, 2, None)}
    wrong = []

    def many(exclude: int | None) -> None:
        for _ in range(40):
            if not torch.equal(sampler.draw(50, exclude, seed=1).indices, expected[exclude]):
                wrong.append(exclude)

    threads = [threading.Thread(target=many, args=(exclude,)) for exclude in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors():
    u = factors((5, 6), 3)
    for call, words in (
        (lambda: KhatriRaoSampler([u[0], u[1][:, :2]]), "factor 1 has 2 columns, the others 3"),
        (lambda: KhatriRaoSampler([]), "at least one factor"),
        (lambda: KhatriRaoSampler([u[0] * float("nan")]), "row 0, column 0"),
        (lambda: KhatriRaoSampler([u[0], u[1] * 0]).draw(1), "rank 0: every row"),
        (lambda: KhatriRaoSampler(u).draw(0), "count: expected a positive number"),
        (lambda: KhatriRaoSampler(u).draw(1, exclude=2), "exclude: expected a factor of 0 to 1"),
        (lambda: KhatriRaoSampler(u).draw(1, seed=-1), "seed: expected 0"),
        (lambda: KhatriRaoSampler(u).scores(torch.tensor([[0, 6]])), "a row of 0 to 5 of factor 1, got 6"),
        (lambda: KhatriRaoSampler(u[:1]).draw(1, exclude=0), "the only factor"),
        (lambda: cp_als((4, 4), lambda i: i[:, 0] * float("inf"), 2, 4), "entries: expected finite values"),
        (lambda: cp_als((4,), lambda i: i, 2, 4), "two modes"),
        (lambda: cp_als((4, 4), lambda i: i[:, 0], 2, 4, seed=2**32), "seed: expected 0 to 2.32 - 1, got 4294967296"),
        (lambda: cp_als((4, 4), lambda i: i[:, 0], 2, 4, ridge=-1.0), "ridge: expected a number of at least 0, got -1"),
        (lambda: cp_als((4, 4), lambda i: i[:, 0], 2, 4, weigh=lambda v: v - 1), "weigh: .* at least 0"),
        (lambda: KhatriRaoSampler(u).scores([["a"]]), "indices: expected a tensor of int64, got list"),
        (lambda: ProductLawSampler(u).scores(torch.tensor([[-1, 0]])), "a row of 0 to 4 of factor 0, got -1"),
        (lambda: ProductLawSampler(u).scores(torch.tensor([0, 1])), "indices: expected int64 of shape"),
        (lambda: ProductLawSampler(u).set_factor(2, u[0]), "a factor of 0 to 1, got 2"),
    ):
        with pytest.raises(ClebschError, match=words):
            call()


def test_import_loads_nothing_and_a_missing_library_says_how_to_get_it(tmp_path):
    code = (
        "import sys, clebsch\n"
        "assert 'torch' not in sys.modules and 'clebsch.sampling' not in sys.modules\n"
        "import torch\n"
        "from clebsch.sampling import KhatriRaoSampler\n"
        "assert 'libclebsch_multilinear' not in open('/proc/self/maps').read()\n"
        "try: KhatriRaoSampler([torch.ones(2, 2)])\n"
        "except clebsch.ClebschError as error: print(error)\n"
    )
    missing = tmp_path / "none.so"
    environ = {"CLEBSCH_LIBRARY": str(library.load().path), "CLEBSCH_MULTILINEAR_LIBRARY": str(missing)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                          env=os.environ | environ | {"PYTHONPATH": str(library._PACKAGE.parent)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(missing) in done.stdout and "CLEBSCH_MULTILINEAR=ON" in done.stdout
