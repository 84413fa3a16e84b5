// The generated kernels of gate and pair_repulsion with their launchers in the emulator, against a slow loop in fp64
// and the CPU op: rows that are not computed, all kinds of channels.
#include <gtest/gtest.h>

#include "cpu/pair_repulsion.h"
#include "cuda/edges/pair_repulsion.h"
#include "cuda/nodes/gate.h"
#include "reference.h"

namespace clebsch {
namespace {

using reference::Values;

/// e3nn's gate, by its definition: pieces of the rows in the order of the problem's blocks.
struct SlowGate {
  const GateProblem& p;
  double activate(bool odd, double v, bool gate) const {
    if (odd) return p.tanh * std::tanh(v);
    return (gate && p.sigmoid ? *p.sigmoid : p.silu * v) / (1 + std::exp(-v));
  }
  double slope(bool odd, double v, bool gate) const {
    const double step = 1e-5;
    return (activate(odd, v + step, gate) - activate(odd, v - step, gate)) / (2 * step);
  }
  /// (block, channel) of every scalar and gate or of every gated channel, in order.
  static std::vector<std::pair<size_t, int64_t>> channels(const Irreps& irreps, size_t first) {
    std::vector<std::pair<size_t, int64_t>> list;
    for (size_t b = 0; b < irreps.size(); ++b)
      for (int64_t c = 0; c < irreps[b].mul; ++c) list.push_back({first + b, c});
    return list;
  }
  /// Adds grad's products to grad_x when given, else writes out.
  void row(const double* x, double* out, const double* grad, double* grad_x) const {
    const auto in = channel_fastest_layout(p.in), to = channel_fastest_layout(p.out);
    const size_t scalars = p.scalars.size(), gates = p.gates.size();
    for (const auto& [b, c] : channels(p.scalars, 0)) {
      const bool odd = p.scalars[b].ir.parity < 0;
      const int64_t at = in[b].offset + c, target = to[b].offset + c;
      if (grad) {
        grad_x[at] += grad[target] * slope(odd, x[at], false);
      } else {
        out[target] = activate(odd, x[at], false);
      }
    }
    const auto gate_list = channels(p.gates, scalars), gated_list = channels(p.gated, scalars + gates);
    for (size_t k = 0; k < gated_list.size(); ++k) {
      const auto [g, gc] = gate_list[k];
      const auto [b, c] = gated_list[k];
      const int64_t gate_at = in[g].offset + gc;
      const bool odd = in[g].ir.parity < 0;
      const BlockLayout& target = to[b - gates];
      for (int m = 0; m < in[b].ir.dim(); ++m) {
        const int64_t at = in[b].offset + m * in[b].stride + c, place = target.offset + m * target.stride + c;
        if (grad) {
          grad_x[at] += grad[place] * activate(odd, x[gate_at], true);
          grad_x[gate_at] += grad[place] * x[at] * slope(odd, x[gate_at], true);
        } else {
          out[place] = activate(odd, x[gate_at], true) * x[at];
        }
      }
    }
  }
};

template <typename T>
void check_gate(const std::string& text, int limit) {
  SCOPED_TRACE(text);
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto problem = std::make_shared<const GateProblem>(GateProblem::parse(text));
  const int nodes = 29, rows = limit < 0 ? nodes : limit;
  const int64_t d_in = problem->in.dim(), d_out = problem->out.dim();
  const Values x = reference::random_values(static_cast<size_t>(nodes * d_in), random);
  const Values grad = reference::random_values(static_cast<size_t>(nodes * d_out), random);
  Values out(grad.size(), 0.0), grad_x(x.size(), 0.0);
  for (int i = 0; i < rows; ++i) {
    const SlowGate slow{*problem};
    slow.row(&x[i * d_in], &out[i * d_out], nullptr, nullptr);
    slow.row(&x[i * d_in], nullptr, &grad[i * d_out], &grad_x[i * d_in]);
  }
  const std::vector<T> xt(x.begin(), x.end()), gt(grad.begin(), grad.end());
  std::vector<T> got(grad.size(), T(NAN)), got_grad(x.size(), T(NAN));
  const auto kernels = cuda::Gate::make(problem, sizeof(T) == 4 ? cuda::Scalar::f32 : cuda::Scalar::f64);
  const int32_t* row_limit = limit < 0 ? nullptr : &limit;
  kernels->forward(xt.data(), row_limit, nodes, got.data(), nullptr);
  kernels->backward(xt.data(), gt.data(), row_limit, nodes, got_grad.data(), nullptr);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(got[i], out[i], sizeof(T) == 4 ? 3e-6 : 1e-14) << i;
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got_grad[i], grad_x[i], sizeof(T) == 4 ? 1e-5 : 1e-8) << i;
}

TEST(EmulatedGate, AllKinds) {
  const std::string text =
      "gate scalars=5x0e+3x0o gates=4x0e+2x0o+1x0e gated=3x1o+1x1o+2x2e+1x1o silu=1.679 tanh=1.594";
  check_gate<double>(text, -1);
  check_gate<float>(text, 17);
  check_gate<float>(text, 0);
  check_gate<double>("gate scalars=5x0e gates=4x0e+2x0o gated=4x1o+2x2e silu=1.679 tanh=1.594 sigmoid=1.84", -1);
  check_gate<double>("gate scalars=6x0e gates= gated= silu=1.679 tanh=1.594", -1);
}

void check_repulsion(const std::string& text) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const reference::GraphShape shape{15, 18, 23, 70, 5, 3, 1};
  const Graph graph = reference::random_graph(shape, random);
  const GraphView view = graph.view();
  const Values cutoffs = reference::pair_cutoffs(3), charges{1, 8, 17};
  const ZblProblem zbl = ZblProblem::parse(text);
  Values energy(shape.n_rows), grad(graph.edge_vec.size(), 1e30);
  cpu::pair_repulsion_forward(zbl, view, cutoffs.data(), charges.data(), 3, energy.data(), 1);
  energy.resize(static_cast<size_t>(shape.n_nodes), 0.0);
  const Values up = reference::random_values(static_cast<size_t>(shape.n_nodes), random);
  cpu::pair_repulsion_backward(zbl, view, cutoffs.data(), charges.data(), 3, up.data(), grad.data(), 1);
  cuda::RepulsionOperands o;
  o.edge_vec = view.edge_vec;
  o.row_ptr = view.row_ptr;
  o.senders = view.senders;
  o.types = view.types;
  o.cutoffs = cutoffs.data();
  o.charges = charges.data();
  o.rows = view.n_rows;
  o.nodes = view.n_nodes;
  o.type_count = 3;
  o.power = zbl.p;
  o.scale = zbl.scale;
  Values got(energy.size(), NAN), got_grad(grad.size(), 1e30);
  const auto kernels = cuda::PairRepulsion::make(zbl);
  kernels->forward(o, got.data(), nullptr);
  kernels->backward(o, up.data(), got_grad.data(), nullptr);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], energy[i], 1e-12 * (1 + std::abs(energy[i])));
  for (size_t i = 0; i < got_grad.size(); ++i) ASSERT_NEAR(got_grad[i], grad[i], 1e-12 * (1 + std::abs(grad[i])));
}

TEST(EmulatedPairRepulsion, AsOnTheCpu) {
  check_repulsion("zbl p=6 scale=7.1998225");
  check_repulsion("zbl p=5 scale=5.7 screening=0.3,0.24,0.1818,3.2,0.5099,0.9423,0.2802,0.4028,0.02817,0.2016");
}

}  // namespace
}  // namespace clebsch
