#include "core/problem/gate_plan.h"

#include <algorithm>

namespace clebsch {

GatePlan make_gate_plan(const GateProblem& problem) {
  const auto in = channel_fastest_layout(problem.in), out = channel_fastest_layout(problem.out);
  GatePlan plan;
  const size_t scalars = problem.scalars.size(), gates = problem.gates.size();
  for (size_t b = 0; b < scalars + gates; ++b) {
    const auto even = b >= scalars && problem.sigmoid ? GateActivation::sigmoid : GateActivation::silu;
    const auto act = in[b].ir.parity < 0 ? GateActivation::tanh : even;
    plan.scalars.push_back({in[b].offset, b < scalars ? out[b].offset : -1, in[b].mul, act, plan.columns});
    plan.columns += in[b].mul;
  }
  size_t g = scalars;
  int64_t used = 0;
  for (size_t b = 0; b < problem.gated.size(); ++b) {
    const BlockLayout& from = in[scalars + gates + b];
    const BlockLayout& to = out[scalars + b];
    for (int64_t done = 0; done < from.mul;) {
      while (used == plan.scalars[g].count) ++g, used = 0;
      const GatePlan::Scalar& gate = plan.scalars[g];
      const int64_t count = std::min(from.mul - done, gate.count - used);
      plan.gated.push_back({gate.in + used, gate.column + used, from.offset + done, from.stride, to.offset + done,
                            to.stride, count, from.ir.dim(), gate.act});
      done += count;
      used += count;
    }
  }
  return plan;
}

}  // namespace clebsch
