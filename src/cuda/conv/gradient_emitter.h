#pragma once
// What the convolution's backward emitters share: where dX and dW of an edge go.
#include <string>

#include "cuda/conv/conv_source.h"
#include "cuda/emit/incoming_gradient.h"

namespace clebsch::cuda {

class GradientEmitter : protected IncomingGradient {
 protected:
  GradientEmitter(const EmitContext& context, const EdgeOperands& operands, const BackwardOutputs& outputs,
                  SourceWriter& w)
      : IncomingGradient(context, w), operands_(operands), outputs_(outputs) {}

  /// Adds the tile's dX atomically at the sender, as numbers or as integers, or writes them to the edge's row.
  void store_input_gradients(const UnitKind& kind, int t);
  /// grad_weights of path p, edge `e`.
  void store_weight_gradient(const UnitKind& kind, int t, int p, const std::string& value);

  /// The place and the window of a tile's terms. One that is no number makes all sums of its sender unknown.
  void begin_terms(const Tile& tile, int t);

  const EdgeOperands& operands_;
  const BackwardOutputs& outputs_;
};

/// Inside a kernel: zeroes the edge gradients of [begin, end); `thread` counts the threads of the receiver.
void write_zero_edges(SourceWriter& w, const EmitContext& context, const BackwardOutputs& outputs);

}  // namespace clebsch::cuda
