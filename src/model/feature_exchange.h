#pragma once
// What a model asks of its caller when nodes of other processes have no rows of their own here: their features, between
// two layers, and the way back for the gradients. Nothing here knows MPI (docs/developers/ranks.md).
#include <cstdint>

#include "model/model.h"

namespace clebsch {

/// Features of a step's nodes, or the gradients of the energy by them: (nodes, width), row-major and without gaps.
/// Rows below the graph's n_local are the owned atoms', the others stand for atoms of other processes.
struct FeatureRows {
  void* data = nullptr;  ///< float or double as dtype says, in the memory of the model's device
  int64_t nodes = 0;     ///< M of the graph
  int64_t width = 0;     ///< numbers a node, Model::exchange_widths()[round]
  Dtype dtype = Dtype::float32;
  int round = 0;           ///< 0 .. layers - 2: the layer whose output this is
  void* stream = nullptr;  ///< the model's cudaStream_t, in whose order the work belongs; null on the CPU
};

/// One object a graph's layout; called by Model::compute() in a fixed order, the same in all processes: forward() for
/// rounds 0 .. layers - 2, then, when forces or virials are wanted, reverse() for rounds layers - 2 .. 0. A process
/// whose graph has no rows takes part as well, unless nobody sends to it and it sends to nobody.
class FeatureExchange {
 public:
  virtual ~FeatureExchange() = default;
  /// Fills the rows from n_local on with the features that their owners have computed. May throw; the step then fails.
  virtual void forward(const FeatureRows& rows) = 0;
  /// Adds the rows from n_local on to the owners' rows, in an order that does not depend on when messages arrive. What
  /// it leaves in these rows is not read.
  virtual void reverse(const FeatureRows& rows) = 0;
};

}  // namespace clebsch
