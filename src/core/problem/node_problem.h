#pragma once
// Text forms of the node-wise ops: linear, species_linear, gate, zbl. Same rules as core/problem/problem.h.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/math/irreps.h"

namespace clebsch {

/// "linear in=128x0e+64x1o out=128x0e+64x1o": per irrep a dense map between all channels of that irrep.
/// Weight: concatenation over the blocks of out.simplify() of [mul_in][mul_out] row-major; a block of `out` without a
/// counterpart in `in` is zero and has no weight. Normalisation (e3nn: 1/sqrt(fan in)) is folded into the weight.
/// Irreps that appear in several blocks of `in` give several maps into one block of `out`: their results add up, and
/// their weights follow each other (rows of one [sum mul_in][mul_out]). species_linear uses the same text; its weight
/// is (types, weight_count).
struct LinearProblem {
  struct Map {
    int l;
    int64_t in_offset, in_mul, out_offset, out_mul, weight_offset;
  };
  Irreps in, out;  ///< simplified
  std::vector<Map> maps;
  int64_t weight_count = 0;
  static LinearProblem parse(const std::string& text);
};

/// "gate scalars=128x0e+16x0o gates=96x0e gated=64x1o+32x2e silu=C tanh=C [sigmoid=C]": input irreps are
/// scalars+gates+gated (in channel-fastest layout of that concatenation, simplified), output scalars+gated. Even
/// scalars pass C_silu*silu(x), odd ones C_tanh*tanh(x); with `sigmoid` even gates pass C_sigmoid/(1+exp(-x)) instead
/// of silu; gate channel i (same activations by parity) multiplies gated channel i. `in` and `out` are the plain
/// concatenations, blocks as written: channel_fastest_layout(in) gives the place of every block of scalars, gates and
/// gated in turn. An odd gate flips the parity of what it multiplies in `out`. Source: e3nn.nn.Gate; the constants are
/// e3nn's normalize2mom values, read from the upstream model.
struct GateProblem {
  Irreps scalars, gates, gated, in, out;
  double silu = 1.0, tanh = 1.0;
  std::optional<double> sigmoid;
  static GateProblem parse(const std::string& text);
};

/// "zbl p=6 scale=7.1998225 [screening=EXPONENT,LENGTH,W,K,W,K,W,K,W,K]": E(r) of a directed edge (half a pair, scale =
/// e^2/(8 pi eps0) in eV Angstrom) is
///   scale * Zi Zj / r * psi((Zi^EXPONENT + Zj^EXPONENT) r / LENGTH) * f(r / rc), psi(u) = sum of W exp(-K u)
/// with f the polynomial cutoff of degree p (core/problem/problem.h). Without `screening` psi is the universal function
/// of J. F. Ziegler, J. P. Biersack, U. Littmark, The Stopping and Range of Ions in Matter (1985) with the constants of
/// LAMMPS's pair_style zbl and nequip's ZBL.
struct ZblProblem {
  double p = 6.0;  ///< real, >= 2
  double scale = 0.0;
  double exponent = 0.23, length = 0.46850;  ///< Angstrom
  double weights[4] = {0.02817, 0.28022, 0.50986, 0.18175};
  double rates[4] = {0.20162, 0.40290, 0.94229, 3.19980};
  /// Throws Error naming the field.
  static ZblProblem parse(const std::string& text);
};

std::shared_ptr<const LinearProblem> cached_linear_problem(const std::string& text);
std::shared_ptr<const GateProblem> cached_gate_problem(const std::string& text);

}  // namespace clebsch
