"""What tests and benchmarks of `interaction_density` share: cases of `interaction` with a density besides."""

import dataclasses

import torch
from interaction_cases import Case, Operands, Radial, make_radial

SUM = "conv in1=1x0e in2=1x0e out=1x0e paths=uvu:0,0,0,1 radial=bessel,0.6,5,8-16-1,silu,density"


@dataclasses.dataclass
class DensityOperands(Operands):
    """`forward()`: [out, density]; `backward(mask)` as of Operands."""

    density: list | None = None
    grad_density: torch.Tensor | None = None

    def rest(self):
        graph, types, radial, layer, text = super().rest()
        return graph, types, radial, self.density, layer, text, SUM

    def forward(self):
        return torch.ops.clebsch.interaction_density(self.x, self.edge_vec, *self.rest())

    def backward(self, mask=(True, True)):
        grads = torch.ops.clebsch.interaction_density_backward(
            self.grad_out, self.grad_density, self.x, self.edge_vec, *self.rest(), mask
        )
        grads = [g if wanted else None for g, wanted in zip(grads, mask, strict=True)]
        if mask[1]:
            grads[1] = grads[1][: self.case.edges]
        return grads

    def results(self, mask=(True, True)):
        """Messages, both gradients, density."""
        out, density = self.forward()
        return [out, *self.backward(mask), density]


@dataclasses.dataclass
class DensityCase(Case):
    density: Radial | None = None
    grad_density: torch.Tensor | None = None

    def operands(self, dtype, device, transpose=True, exact=False):
        made = vars(super().operands(dtype, device, transpose, exact))
        density = self.density.list(dtype, device, exact)
        return DensityOperands(**made, density=density, grad_density=self.grad_density.to(device, dtype))


def with_density(case, seed=5):
    """The case with a density of four times as many pieces and a table of its own for every pair of types."""
    radial = make_radial(SUM, case.radial.cutoffs, 4 * case.radial.pieces, seed, networks=None)
    radial = dataclasses.replace(radial, spline=None)  # its tables stay tables
    above = torch.randn(case.x.shape[0], 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    made = {field.name: getattr(case, field.name) for field in dataclasses.fields(case)}
    return DensityCase(**made, density=radial, grad_density=above.float().double())
