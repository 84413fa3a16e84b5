#pragma once
// The incoming gradient of a backward kernel in registers, its coupled sums
// G[i][j] = sum_k C[i][j][k] g[k], and the gradients of an edge that these give.
#include <string>

#include "cuda/emit/emit_common.h"

namespace clebsch::cuda {

/// g of a unit's tiles, one register a component and channel.
class IncomingGradient {
 protected:
  IncomingGradient(const EmitContext& context, SourceWriter& w) : context_(context), problem_(context.problem), w_(w) {}

  std::string g(int t, int path, int k) const { return fmt::format("g{}_{}_{}", t, problem_.paths[path].out, k); }
  std::string x(int t, int path, int i) const { return input_name(t, problem_.paths[path].in1, i); }

  /// Reads g of the tile's outputs, scaled, before the loop over edges; times the variable `factor` if one is named.
  /// With Schedule::stored it goes to shared memory: behind `held`, of this lane.
  void load_gradient(const UnitKind& kind, int t, const std::string& factor = "");
  /// With Schedule::stored: reads g of path p's output, in a scope of the path's own.
  void read_gradient(const UnitKind& kind, int t, int p);
  /// Keeps the compiler from computing the sums G before the loop over edges, where they are the same for every edge:
  /// it would run out of registers and spill. An empty statement that claims to change g holds them inside the loop.
  void keep_in_loop(const UnitKind& kind);
  /// Emits G[i][j] of a pair, or names the g it is equal to (up to the sign).
  std::string coupled_gradient(int t, int p, const PairTerms& pair);

  /// "real dx<t>_<block>_<i> = 0;" for the tile's inputs.
  void declare_input_gradients(int t, const Tile& tile);
  /// The gradients of one edge by path p's operands, in a scope of the path's own. First a[i] = sum_j G[i][j] Y[j],
  /// which the others use.
  void couple_harmonics(int t, int p);
  /// dW = sum_i x[i] a[i], an expression.
  std::string weight_gradient(int t, int p) const;
  /// dX[i] += W a[i]; `weight` names W or is "1".
  void add_input_gradient(int t, int p, const std::string& weight);
  /// dY[j] += W x[i] G[i][j].
  void add_harmonics_gradient(int t, int p, const std::string& weight);

  const EmitContext& context_;
  const Problem& problem_;
  SourceWriter& w_;
};

}  // namespace clebsch::cuda
