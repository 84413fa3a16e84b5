"""The fp64 answer of part of a convolution, which every contender's results are compared with before it is timed."""

import torch
from conv_reference import block_errors, reference

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11}


class Operands:
    """Random operands of one problem in the common layout, rounded to dtype: x, y, w, g and tangents tx, ty, tw."""

    def __init__(self, problem, graph, vectors, dtype, tangents):
        from e3nn import o3

        device = vectors.device
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape):  # in pieces: the largest would not fit twice in fp64
            return torch.randn(*shape, device=device, dtype=dtype, generator=generator)

        degrees = [ir.l for _, ir in problem.in2]
        harmonics = o3.spherical_harmonics(degrees, vectors, True, "component")
        order = torch.cat([problem.columns(block, device)[:, 0] for block in problem.blocks(problem.in2)])
        self.y = torch.empty_like(harmonics)
        self.y[:, order] = harmonics
        self.y = self.y.to(dtype)
        self.x = normal(graph.nodes, problem.in1.dim)
        self.w = normal(graph.edges, problem.weight_count)
        self.g = normal(graph.rows, problem.out.dim)
        self.tangents = (
            (normal(*self.x.shape), normal(*self.y.shape), normal(*self.w.shape)) if tangents else (None, None, None)
        )


class Exact:
    """Values of the first rows and their edges, and of one node's gradient: all that they need is a few edges."""

    def __init__(self, problem, graph, operands, edges=None):
        self.problem = problem
        counts = torch.bincount(graph.receivers, minlength=graph.rows).cumsum(0)
        edges = edges or (10000 if operands.x.is_cuda else 1000)
        self.rows = max(1, int((counts <= edges).sum()))
        self.used = int(counts[self.rows - 1])
        self.node = int(graph.senders[0])
        inside = torch.arange(self.used, device=graph.senders.device)
        outgoing = (graph.senders == self.node).nonzero()[:, 0]
        self.values = self._evaluate(graph, operands, inside)
        _, gx, _, _, *second = self._evaluate(graph, operands, outgoing)
        self.values[1] = gx
        if second:
            self.values[4] = second[0]

    def _evaluate(self, graph, operands, edges):
        x, g = (t.double().requires_grad_() for t in (operands.x, operands.g))
        y, w = (t[edges].double().requires_grad_() for t in (operands.y, operands.w))
        out = reference(self.problem, x, y, w, graph.senders[edges], graph.receivers[edges], graph.rows)
        second = operands.tangents[0] is not None
        first = torch.autograd.grad(out, (x, y, w), g, create_graph=second)
        values = [out.detach()] + [t.detach() for t in first]
        if second:
            tangents = [operands.tangents[0].double()] + [t[edges].double() for t in operands.tangents[1:]]
            derivatives = torch.autograd.grad(first, (x, y, w, g), tangents, allow_unused=True)
            values += [
                torch.zeros_like(like) if t is None else t.detach()
                for t, like in zip(derivatives, (x, y, w, g), strict=True)
            ]
        return values

    def errors(self, results, begin=0):
        """Relative errors of results in the order out, x, y, w, then second derivatives x, y, w, g, from `begin` on."""
        kinds = ["out", "x", "y", "w", "x", "y", "w", "out"][begin : begin + len(results)]
        errors = []
        for i, (kind, got) in enumerate(zip(kinds, results, strict=True), begin):
            expected = self.values[i]
            if kind == "out":
                error = block_errors(self.problem, self.problem.out, got[: self.rows], expected[: self.rows])
            elif kind == "x":
                here = slice(self.node, self.node + 1)
                error = block_errors(self.problem, self.problem.in1, got[here], expected[here])
            else:
                expected = expected[: self.used]
                error = float((got[: self.used].double() - expected).norm() / expected.norm())
            errors.append(error if error == error else float("inf"))
        return errors
