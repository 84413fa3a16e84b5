#pragma once
// A *problem* names one equivariant operation: irreps, paths, radial description. One small validated value with a
// text form; it names the generated kernel, keys caches, and is what tests and benchmarks list.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/math/irreps.h"

namespace clebsch {

/// How a path joins the multiplicities of its operands (e3nn's names).
/// uvu: out[u] += W[u] x[u] y (second operand has multiplicity 1); uvw: out[w] += sum_u W[u,w] x[u] y.
enum class Connection { uvu, uvw };

/// One path: out-block += coefficient * W * sum C[m1,m2,m3] x[m1] y[m2], C = wigner_3j.
/// `coefficient` holds e3nn's path weight (for irrep normalisation 'component': sqrt(2 l3 + 1) and so on).
struct Path {
  int in1 = 0, in2 = 0, out = 0;  ///< block indices into in1, in2, out
  Connection mode = Connection::uvu;
  bool weighted = true;
  double coefficient = 1.0;
  int64_t weight_offset = 0;  ///< derived: first column of this path in W (order of paths)
  int64_t weight_count = 0;   ///< derived: mul_in1 (uvu, second mul 1), mul_in1*mul_in2*mul_out (uvw), 0 if weightless
};

enum class RadialBasis { bessel, gaussian, spline };  ///< spline: core/problem/allegro_problem.h alone
/// silu: plain x*sigmoid(x) between bias-free layers; any normalising constant is folded into the next layer.
/// norm_silu: layers with biases, LayerNorm and silu between them; the first bias belongs to the ordered pair of types.
enum class Activation { silu, norm_silu };
/// What stands in the place of r in the basis (not in the cutoff); r0 belongs to the pair of types (i, j), whose radii
/// are s_i and s_j. agnesi: 1 / (1 + a u^q / (1 + u^(q-p))), u = r / r0, r0 = (s_i + s_j) / 2 (Witt et al. 2023,
/// doi:10.1063/5.0158783). soft: t + (r - t) (1 + tanh(k (r - m))) / 2 with t = 3/4 r0, b = 4/3 r0, m = (t + b) / 2,
/// k = alpha / (b - t), r0 = s_i + s_j.
enum class DistanceTransform { none, agnesi, soft };

/// Radial functions W(r) of one convolution: basis, cutoff, MLP.
///
/// x = r / rc with rc the cutoff of the (centre type, neighbour type) pair, or transformed r / rc;
/// basis n (0-based): bessel prefactor * sin(b_n x) / x, gaussian exp(prefactor (x - b_n)^2), times f(r / rc), the
/// polynomial cutoff of degree p (Gasteiger et al. 2020, arXiv:2003.03123, eq. 8):
/// 1 - (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) - p(p+1)/2 x^(p+2), and 0 for x >= 1.
/// MLP: widths[0] = basis size, ..., widths.back() = weight columns; activation between layers, none after the
/// last; all normalisation factors are folded into the stored weights. Weights in order, row-major [in][out]: for silu
/// the layers; for norm_silu the first biases of the ordered pairs [centre][neighbour][width], first matrix, then for
/// every other layer LayerNorm's factors and shifts, the matrix, the biases.
struct RadialDescription {
  RadialBasis basis = RadialBasis::bessel;
  double prefactor = 1.0;
  double cutoff_p = 6.0;  ///< real, >= 2
  std::vector<int64_t> widths;
  Activation activation = Activation::silu;
  DistanceTransform transform = DistanceTransform::none;
  bool cutoff_last = false;  ///< f multiplies W, not the basis
  bool density = false;      ///< the last layer's y becomes tanh(y^2), before a last f
  int64_t basis_size() const { return widths.front(); }
  int64_t columns() const { return widths.back(); }
  int64_t weight_count() const;  ///< of the flat weight vector of the MLP, for one pair of types
  int64_t pair_weights() const { return activation == Activation::norm_silu ? widths[1] : 0; }  ///< of them, a pair's
  /// Numbers in the `basis` tensor: b_n, then q, p, a (agnesi) or alpha (soft) and the types' radii.
  int64_t basis_values(int64_t types) const;
  /// Weights in the `network` tensor.
  int64_t network_values(int64_t types) const;
  /// The common case: bessel, bias-free silu, nothing else. edge_embedding computes this one alone.
  bool plain() const;
  /// W, its slope and curvature are zero at the cutoff.
  bool smooth_end() const { return cutoff_last || activation == Activation::silu; }
};

/// See the file comment. in2 is the harmonics' irreps (for interaction: 1x0e+1x1o+...).
struct Problem {
  Irreps in1, in2, out;
  std::vector<Path> paths;
  std::optional<RadialDescription> radial;
  int64_t weight_count = 0;  ///< derived: columns of W
  int lmax_in2 = 0;          ///< derived

  /// Text form, one line, fields in this order, numbers with 17 digits:
  ///   conv in1=64x0e+64x1o in2=1x0e+1x1o out=64x0e+64x1o+64x1o paths=uvu:0,0,0,1;uvu:0,1,1,1.7320508075688772
  ///   [radial=bessel|gaussian,PREFACTOR,P,WIDTH0-WIDTH1-...,silu|norm-silu[,agnesi|,soft][,cutoff-last][,density]]
  /// A weightless path has mode "uvu0" (uvw must have weights). Every block has at least one channel. parse() throws
  /// Error naming the field, what was expected and what came; it bounds every count (blocks and paths <= 1024, columns
  /// <= 2^20, dims <= 2^24).
  static Problem parse(const std::string& text);
  std::string str() const;
  /// Checks consistency and fills the derived members. Throws Error.
  void finish();
};

/// parse() with a process-wide, thread-safe cache: the same text gives the same object.
std::shared_ptr<const Problem> cached_problem(const std::string& text);

}  // namespace clebsch
