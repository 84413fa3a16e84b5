#pragma once
// A whole strictly local Allegro network as one problem: everything that clebsch::allegro_energy needs besides weights.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/math/irreps.h"
#include "core/problem/problem.h"

namespace clebsch {

/// One tensor product of edge features with the centre's environment, channel by channel (uuu):
///   out[k] += sum over terms of value * w[path] * in[i] * environment[j],  (i, k) = pairs[term.pair], j = term.other
/// Paths are all (block of out, block of in, degree of the environment) that couple, in that nesting order.
struct AllegroProduct {
  struct Term {
    int32_t pair, other, path;
    double value;  ///< wigner_3j; normalisations are folded into the path's weight
  };
  int32_t in_dim = 0, out_dim = 0, paths = 0;
  std::vector<std::pair<int32_t, int32_t>> pairs;  ///< (i, k), sorted by (k, i)
  std::vector<Term> terms;                         ///< sorted by pair
};

/// Text form, one line:
///   allegro scalars=64 channels=32 lmax=2 tensors=1x0e+1x1o+1x2e;1x0e+1x1o+1x2e;1x0e latents=96-64-160;160-64-64
///     readout=192-32-1 basis=bessel,PREFACTOR,P network=8-64-256
/// tensors: irreps of the edge features before the first and after every product; the last are one even scalar, and
/// each begins with one. latents, readout: widths of the bias-free networks with silu between layers. Latent k reads
/// scalars * (k + 1) scalars and `channels` invariants of product k and gives `scalars` and, but for the last, the
/// environment weights [l][channels] of the next layer. network: of the two-body part, its columns are `scalars`, then
/// the first environment weights [l][channels], then the weights [l][channels] of the first edge features.
/// basis=spline,WIDTH instead: basis n is (1 - cos(2 pi (x - b_n) / WIDTH))^2 / 4 where 0 < x - b_n < WIDTH, else 0.
struct AllegroProblem {
  int64_t scalars = 0, channels = 0;
  int lmax = 0;
  std::vector<Irreps> tensors;
  std::vector<std::vector<int64_t>> latents;
  std::vector<int64_t> readout;
  RadialDescription radial;

  // Derived.
  std::vector<AllegroProduct> products;
  int64_t dense_weights = 0;  ///< of all latents and the readout, row-major [in][out], one after the other
  int64_t path_weights = 0;   ///< of all products, [path][channels], one after the other
  int layers() const { return static_cast<int>(latents.size()); }
  int degrees() const { return lmax + 1; }
  /// What the readout's last layer reads, summed over the edges of an atom: its features.
  int64_t features() const { return readout[readout.size() - 2]; }
  int64_t env_weights() const { return degrees() * channels; }
  /// Weights of the first matrix of the two-body network, of which there is one for every ordered pair of types.
  int64_t pair_weights() const { return radial.widths[0] * radial.widths[1]; }
  /// Of the whole two-body part: [types * types] first matrices, [centre][neighbour], then the other layers once.
  int64_t network_weights(int64_t types) const {
    return types * types * pair_weights() + radial.weight_count() - pair_weights();
  }

  /// Throws Error naming the field, what was expected and what came.
  static AllegroProblem parse(const std::string& text);
};

/// parse() with a process-wide, thread-safe cache.
std::shared_ptr<const AllegroProblem> cached_allegro_problem(const std::string& text);

}  // namespace clebsch
