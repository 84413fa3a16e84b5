"""edge_embedding on a CUDA device against the CPU op: harmonics, basis, and derivatives to the third order."""

import pytest
import torch

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
CUTOFFS = [[4.0, 3.1], [3.6, 2.7]]
#: Arguments of Edges: nodes, edges, padding, rows computed.
CASES = {"many": (60, 1500, 0, None), "padded, fewer rows": (40, 500, 37, 31), "no edges": (3, 0, 5, None)}
RESULTS = ("harmonics", "basis", "gradient", "first", "second", "third")


def problem(lmax, p):
    harmonics = "+".join(f"1x{degree}{'eo'[degree % 2]}" for degree in range(lmax + 1))
    return f"conv in1=2x0e in2={harmonics} out=2x0e paths=uvu:0,0,0,1 radial=bessel,0.4,{p},8-2,silu"


class Edges:
    """Random edges of two types, some beyond their cutoff; unused capacity; fewer rows computed than there are."""

    def __init__(self, nodes, edges, padding, layer_rows):
        torch.manual_seed(5)
        receivers, senders = torch.randint(nodes, (edges,)).sort().values, torch.randint(nodes, (edges,))
        row_ptr = torch.zeros(nodes + 1, dtype=torch.int32)
        row_ptr[1:] = torch.cumsum(torch.bincount(receivers, minlength=nodes), 0)
        unread = torch.full((padding,), 2**30, dtype=torch.int32)
        empty = torch.empty(0, dtype=torch.int32)
        rows = torch.tensor([nodes if layer_rows is None else layer_rows], dtype=torch.int32)
        self.graph = [row_ptr, torch.cat([senders.int(), unread]), torch.cat([receivers.int(), unread]), empty, empty,
                      rows, rows.clone()]  # fmt: skip
        self.types = torch.randint(2, (nodes,), dtype=torch.int32)
        direction = torch.nn.functional.normalize(torch.randn(edges, 3, dtype=torch.float64), dim=1)
        self.vectors = direction * (0.6 + 4 * torch.rand(edges, 1, dtype=torch.float64))
        self.padding = torch.full((padding, 3), float("nan"), dtype=torch.float64)
        float64 = torch.float64
        self.radial = [torch.empty(0, dtype=float64), torch.empty(0, dtype=torch.int32),
                       torch.tensor(CUTOFFS, dtype=float64), 3.14 * torch.arange(1.0, 9.0, dtype=float64),
                       torch.empty(0, dtype=float64)]  # fmt: skip

    def derivatives(self, text, dtype, device):
        """Harmonics, basis and three orders of derivatives of a scalar of them, on the CPU."""
        graph, radial = [t.to(device) for t in self.graph], [t.to(device) for t in self.radial]
        vectors = self.vectors.to(device).requires_grad_()
        harmonics, basis = torch.ops.clebsch.edge_embedding(
            torch.cat([vectors, self.padding.to(device)]), graph, self.types.to(device), radial, 0, text, dtype
        )
        weights = [torch.cos(torch.arange(t.numel(), device=device, dtype=torch.float64)).view_as(t).to(dtype)
                   for t in (harmonics, basis)]  # fmt: skip
        value = (harmonics * weights[0]).square().sum() + (basis * weights[1]).square().sum()
        made = [harmonics, basis]
        direction = torch.sin(torch.arange(vectors.numel(), device=device, dtype=torch.float64)).view_as(vectors)
        made.append(torch.autograd.grad(value, [vectors], retain_graph=True)[0])
        for order in range(3):
            (first,) = torch.autograd.grad(value, [vectors], create_graph=order < 2, retain_graph=True)
            made.append(first)
            value = (first * direction).sum()
        return [t.detach().double().cpu() for t in made]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda t: str(t)[6:])
@pytest.mark.parametrize(
    ("lmax", "p"), [(0, 6), pytest.param(1, 5, marks=pytest.mark.sanitize), (3, 5), (3, 4.5), (7, 6)]
)
def test_as_on_the_cpu(lmax, p, dtype, case, device, within):
    edges, text = Edges(*CASES[case]), problem(lmax, p)
    expected = edges.derivatives(text, torch.float64, "cpu")
    got, again = (edges.derivatives(text, dtype, device) for _ in range(2))
    errors = {}
    for name, a, b in zip(RESULTS, got, expected, strict=True):
        errors[name] = float((a - b).norm() / b.norm()) if b.norm() > 0 else float(a.abs().sum())
    within(errors, TOLERANCE[dtype])
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True)), "differs from run to run"
