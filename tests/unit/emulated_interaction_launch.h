// A case and the launcher of its backward pass, with what a test may change of it.
#pragma once

#include "emulated_interaction_case.h"

namespace clebsch::cuda {

constexpr InteractionOutputs kBoth{true, true, true};

/// A case and what a test may change of it.
struct Launch {
  Case<float>& test;
  std::vector<int32_t> senders, col_ptr;
  std::vector<double> edge_vec;
  std::vector<float> grad_out, table;

  explicit Launch(Case<float>& c)
      : test(c),
        senders(c.graph.graph.senders),
        col_ptr(c.graph.graph.col_ptr),
        edge_vec(c.graph.graph.edge_vec),
        grad_out(c.gt),
        table(c.table) {}

  struct Gradients {
    std::vector<float> x;
    Values edge_vec;
  };

  Gradients backward(const InteractionOutputs& wanted = kBoth) const {
    const GraphView& g = test.graph.view;
    const bool density = test.kernels.density;
    const auto kernels = Interaction::make(cached_problem(test.problem.str()), Scalar::f32,
                                           test.kernels.forward.schedule.spline, density);
    InteractionOperands o;
    o.x = test.xt.data();
    o.edge_vec = edge_vec.data();
    o.senders = senders.data();
    o.receivers = g.receivers;
    o.types = g.types;
    o.table = table.data();
    o.table_index = test.tables.table_index.data();
    o.cutoffs = test.tables.cutoffs.data();
    o.type_count = test.tables.types;
    o.tables =
        static_cast<int32_t>(*std::max_element(test.tables.table_index.begin(), test.tables.table_index.end())) + 1;
    o.pieces = test.tables.pieces;
    o.row_ptr = g.row_ptr;
    o.col_ptr = col_ptr.data();
    o.col_edge = g.col_edge;
    o.row_limit = g.layer_rows;
    o.graph_rows = g.n_rows;
    o.nodes = g.n_nodes;
    o.edges = g.n_edges;
    if (density) {
      o.density.table = test.density_table.data();
      o.density.index = test.density_tables.table_index.data();
      o.density.tables = o.tables;
      o.density.pieces = test.density_tables.pieces;
      o.density.grad = test.grad_density.data();
    }
    Gradients grad{std::vector<float>(test.xt.size(), kUntouched), Values(edge_vec.size(), kUntouched)};
    std::vector<int64_t> scratch(static_cast<size_t>(kernels->backward_workspace(o, wanted) + 7) / 8, 77);
    kernels->backward(o, wanted, grad_out.data(), grad.x.data(), grad.edge_vec.data(), scratch.data(), nullptr);
    return grad;
  }
};

inline void expect_right(const Case<float>& test, const Launch::Gradients& got) {
  auto grad =
      reference::interaction_backward(test.problem, test.graph.view, test.rows, test.tables, test.x, test.grad_out);
  if (test.kernels.density) {
    const Values ones(test.graph.view.n_nodes, 1.0), above(test.grad_density.begin(), test.grad_density.end());
    const auto more = reference::interaction_backward(test.density_problem, test.graph.view, test.rows,
                                                      test.density_tables, ones, above);
    for (size_t k = 0; k < grad.edge_vec.size(); ++k) grad.edge_vec[k] += more.edge_vec[k];
  }
  const size_t used = 3 * static_cast<size_t>(test.graph.graph.row_ptr.back());
  EXPECT_LE(reference::block_error(test.problem.in1, test.graph.view.n_nodes, got.x, grad.x), tolerance<float>());
  EXPECT_LE(reference::array_error(got.edge_vec, grad.edge_vec, used), tolerance<float>());
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace clebsch::cuda
