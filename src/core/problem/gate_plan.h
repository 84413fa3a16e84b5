#pragma once
// Where the parts of a gate lie in the rows of its input and output; the CPU loops and the CUDA generator follow it.
#include <cstdint>
#include <vector>

#include "core/problem/node_problem.h"

namespace clebsch {

enum class GateActivation { silu, tanh, sigmoid };

struct GatePlan {
  /// Scalars side by side that pass the same activation.
  struct Scalar {
    int64_t in, out, count;  ///< offsets in the rows; out = -1: a gate
    GateActivation act;
    int64_t column;  ///< in a table of activation arguments, one column for each scalar and gate
  };
  /// Channels side by side of one gated irrep and the gates that multiply them.
  struct Gated {
    int64_t gate, column, in, in_stride, out, out_stride, count;  ///< gate: offset of the gates in the input row
    int dim;                                                      ///< components, in_stride and out_stride apart
    GateActivation act;                                           ///< of the gate
  };
  std::vector<Scalar> scalars;  ///< scalars, then gates
  std::vector<Gated> gated;
  int64_t columns = 0;
};

/// Gates are matched to gated channels in order, whatever their blocks: both are cut where either ends.
GatePlan make_gate_plan(const GateProblem& problem);

}  // namespace clebsch
