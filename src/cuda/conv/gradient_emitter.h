#pragma once
// What backward emitters share: the incoming gradient in registers, its coupled sums G[i][j] = sum_k C[i][j][k] g[k],
// and, for the convolution's two, where dX of an edge goes.
#include <string>

#include "cuda/emit_common.h"
#include "cuda/kernel_source.h"

namespace clebsch::cuda {

/// g of a unit's tiles, one register a component and channel.
class IncomingGradient {
 protected:
  IncomingGradient(const EmitContext& context, SourceWriter& w) : context_(context), problem_(context.problem), w_(w) {}

  std::string g(int t, int path, int k) const { return fmt::format("g{}_{}_{}", t, problem_.paths[path].out, k); }
  std::string x(int t, int path, int i) const { return input_name(t, problem_.paths[path].in1, i); }

  /// Reads g of the tile's outputs, scaled, before the loop over edges.
  void load_gradient(const UnitKind& kind, int t);
  /// The sums G are the same for every edge. The compiler would compute them before the loop, run out of registers and
  /// spill; an empty statement that claims to change g keeps them where they are.
  void keep_in_loop(const UnitKind& kind);
  /// Emits G[i][j] of a pair, or names the g it is equal to (up to the sign).
  std::string coupled_gradient(int t, int p, const PairTerms& pair);

  const EmitContext& context_;
  const Problem& problem_;
  SourceWriter& w_;
};

class GradientEmitter : protected IncomingGradient {
 protected:
  GradientEmitter(const EmitContext& context, const EdgeOperands& operands, const BackwardOutputs& outputs,
                  SourceWriter& w)
      : IncomingGradient(context, w), operands_(operands), outputs_(outputs) {}

  /// "real dx<t>_<block>_<i> = 0;" for the tile's inputs.
  void declare_input_gradients(int t, const Tile& tile);
  /// Adds them atomically at the sender or, deterministic, writes them to the edge's row.
  void store_input_gradients(const UnitKind& kind, int t);
  /// grad_weights of path p, edge `e`.
  void store_weight_gradient(const UnitKind& kind, int t, int p, const std::string& value);

  const EdgeOperands& operands_;
  const BackwardOutputs& outputs_;
};

/// Inside a kernel: zeroes the edge gradients of [begin, end); `thread` counts the threads of the receiver.
void write_zero_edges(SourceWriter& w, const EmitContext& context, const BackwardOutputs& outputs);

}  // namespace clebsch::cuda
