"""The neutral description of a model: what a front end reads from upstream and the back end turns into a file.

Nothing here knows an upstream package or TorchScript. All tensors are fp64 on the CPU with every normalisation
constant folded in, so that rounding to the training dtype happens once, in the back end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ..grade import Grade
from ..irreps import Irreps


@dataclass
class LinearMap:
    """An equivariant linear map: out[b] += x[a] @ weight for every (a, b, weight) of ``blocks``.

    ``weight`` is (mul_in, mul_out), or (types, mul_in, mul_out) when it depends on the atom's type; ``a`` and ``b``
    index ``irreps_in`` and ``irreps_out``, which need not be simplified.
    """

    irreps_in: Irreps
    irreps_out: Irreps
    blocks: list[tuple[int, int, Tensor]]


@dataclass
class Path:
    """One uvu path of a convolution: block indices and e3nn's path weight (src/core/problem/problem.h)."""

    in1: int
    in2: int
    out: int
    coefficient: float


@dataclass
class Transform:
    """Distance transform of a radial basis (src/core/problem/problem.h): "agnesi" with parameters q, p, a, or "soft"
    with alpha; radii (T,) of the types in Angstrom."""

    name: str
    parameters: list[float]
    radii: Tensor


@dataclass
class NormLayers:
    """What LayerNorm networks have besides matrices: first biases (T, T, width) [centre][neighbour] and, for every
    further layer, LayerNorm's factors and shifts before it and its biases."""

    first: Tensor
    others: list[tuple[Tensor, Tensor, Tensor]]


@dataclass
class Radial:
    """Radial functions of one convolution: basis n is prefactor * sin(roots[n] x) / x * cutoff_p(x), then an MLP.

    The rest is as in src/core/problem/problem.h, RadialDescription; `norms` is absent from bias-free networks
    with silu.
    """

    roots: Tensor
    prefactor: float
    cutoff_p: float
    weights: list[Tensor]
    basis: str = "bessel"
    transform: Transform | None = None
    norms: NormLayers | None = None
    cutoff_last: bool = False
    density: bool = False


@dataclass
class Gate:
    """e3nn.nn.Gate: scalars through silu (even) or tanh (odd), gates likewise, times the gated blocks."""

    scalars: Irreps
    gates: Irreps
    gated: Irreps
    silu: float
    tanh: float
    sigmoid: float | None = None  #: even gates pass sigmoid times this instead of silu

    @property
    def irreps_in(self) -> Irreps:
        return self.scalars + self.gates + self.gated

    @property
    def irreps_out(self) -> Irreps:
        return self.scalars + self.gated


@dataclass
class Layer:
    """One message passing layer:

    h = linear_in(x) * sender_norm[type];  m = convolution(h);  y = linear_out(m) + self_connection(x);  gate(y)
    """

    irreps_in: Irreps
    irreps_harmonics: Irreps
    irreps_mid: Irreps
    paths: list[Path]
    radial: Radial
    linear_in: LinearMap | None
    sender_norm: Tensor | None
    linear_out: LinearMap
    self_connection: LinearMap | None
    gate: Gate


@dataclass
class AllegroNetwork:
    """All of a strictly local Allegro model but scale, shift and pair term (src/core/problem/allegro_problem.h).

    ``basis`` is the text of the radial basis, ``roots`` its numbers. The two-body network is ``pair_weights``
    (T * T, basis, width), a matrix for every ordered pair of types, then ``shared_weights``; its columns are scalars,
    environment weights [degree][channel] and weights of the first tensors [degree][channel]. ``tensors`` are the irreps
    before the first product and after each; ``paths`` (paths, channels) of each product; ``latents`` one MLP a layer;
    ``norm`` (T,) the factor of the environment sum.
    """

    scalars: int
    channels: int
    lmax: int
    tensors: list[Irreps]
    basis: str
    roots: Tensor
    pair_weights: Tensor
    shared_weights: list[Tensor]
    paths: list[Tensor]
    latents: list[list[Tensor]]
    readout: list[Tensor]
    norm: Tensor


@dataclass
class Density:
    """What messages are divided by: alpha + beta * (sum of radial(r) over the neighbours)."""

    radial: Radial
    alpha: float
    beta: float


@dataclass
class GatedMessage:
    """What follows in RealAgnosticResidualNonLinearInteractionBlock: A = linear(gate(message + residual(x)))."""

    residual: LinearMap
    gate: Gate
    linear: LinearMap


@dataclass
class ProductLayer:
    """One MACE layer:

    A = linear_out(convolution(linear_in(x))), divided by the density and gated if there are such parts;
    B = symmetric_contraction(A);  x' = product(B) + self_connection(x)

    x and x' carry one even scalar behind their irreps (x of the first layer does not): the energy so far, to which
    product and self_connection add what this layer's linear readout finds.
    """

    irreps_in: Irreps
    irreps_harmonics: Irreps
    irreps_mid: Irreps
    paths: list[Path]
    radial: Radial
    linear_in: LinearMap
    linear_out: LinearMap
    basis_problem: str
    coefficients: Tensor
    product: LinearMap
    self_connection: LinearMap | None
    density: Density | None = None
    gated: GatedMessage | None = None


@dataclass
class ProductReadout:
    """Atomic energy of MACE: x @ direct + silu(x @ hidden[0]) @ hidden[1]."""

    direct: Tensor
    hidden: tuple[Tensor, Tensor] | None


@dataclass
class PairRepulsion:
    """ZBL: scale * Zi Zj / r * psi * cutoff_p(r / rc), eV, per directed edge (docs/developers/map.md, "Pair term").

    cutoffs (T, T), if they are not those of the model; screening: exponent, length, four times weight and rate.
    """

    charges: Tensor
    scale: float
    cutoff_p: float
    cutoffs: Tensor | None = None
    screening: list[float] | None = None


@dataclass
class Provenance:
    """Where the model came from; every field ends up in clebsch.json."""

    package: str
    version: str
    source: str = ""
    training_note: str = ""
    extra: dict[str, str] = field(default_factory=dict)


@dataclass
class Description:
    """A whole model. ``pair_cutoffs`` (T, T) [centre][neighbour] in Angstrom; energies in eV.

    ``embedding`` (T, channels) is what the first convolution reads: type embedding, first linear map and sender
    normalisation multiplied out (MACE: the type embedding alone). ``readout`` is a bias-free MLP with silu between its
    layers; the energy of an atom is shift[type] + scale[type] * readout(x). An Allegro model has one AllegroNetwork as
    its layer, and neither embedding nor readout besides. ``grade`` is of the
    training set, where the file is to have one.
    """

    family: str
    dtype: str
    type_names: list[str]
    atomic_numbers: list[int]
    r_max: float
    pair_cutoffs: Tensor
    embedding: Tensor
    layers: list[Layer] | list[ProductLayer] | list[AllegroNetwork]
    readout: list[Tensor] | ProductReadout
    scale: Tensor
    shift: Tensor
    pair: PairRepulsion | None
    provenance: Provenance
    grade: Grade | None = None
