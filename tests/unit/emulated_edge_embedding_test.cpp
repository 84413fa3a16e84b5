// The generated kernels of edge_embedding and their launcher in the emulator, against the CPU op in fp64; the CPU op's
// double backward against finite differences of its backward pass.
#include <gtest/gtest.h>

#include "core/math/harmonics.h"
#include "cpu/tensor_product_conv.h"
#include "cuda/edges/edge_embedding.h"
#include "reference.h"

namespace clebsch {
namespace {

using reference::Values;

struct Case {
  unsigned seed = reference::fresh_seed();
  std::mt19937_64 random{seed};
  std::shared_ptr<const Problem> problem;
  reference::PaddedGraph graph;
  int32_t rows;
  Values cutoffs = reference::pair_cutoffs(2), roots{3.1, 6.3, 9.2};
  Values grad_harmonics, grad_basis, from;

  Case(int lmax, double p, int32_t rows_, const reference::GraphShape& shape)
      : graph(reference::random_graph(shape, random), 4), rows(rows_) {
    std::string harmonics;
    for (int l = 0; l <= lmax; ++l) {
      harmonics += (l ? "+1x" : "1x") + std::to_string(l) + (l % 2 ? "o" : "e");
    }
    problem = cached_problem("conv in1=2x0e in2=" + harmonics + " out=2x0e paths=uvu:0,0,0,1 radial=bessel,0.4," +
                             std::to_string(p) + ",3-2,silu");
    const int64_t edges = graph.view.n_edges;
    grad_harmonics = reference::random_values(edges * components(), random);
    grad_basis = reference::random_values(edges * 3, random);
    from = reference::random_values(edges * 3, random);
    graph.view.types = graph.graph.types.data();
  }
  int components() const { return harmonics_count(problem->lmax_in2); }
};

template <typename T>
struct Output {
  std::vector<T> harmonics, basis, harmonics_change, basis_change;
  Values grad, second;
};

Output<double> on_cpu(const Case& c) {
  const int64_t edges = c.graph.view.n_edges;
  const double *cutoffs = c.cutoffs.data(), *roots = c.roots.data();
  Output<double> o{Values(edges * c.components()),
                   Values(edges * 3),
                   Values(edges * c.components()),
                   Values(edges * 3),
                   Values(edges * 3),
                   Values(edges * 3)};
  cpu::edge_embedding_forward<double>(*c.problem, c.graph.view, cutoffs, roots, 2, c.rows, o.harmonics.data(),
                                      o.basis.data(), 1);
  cpu::edge_embedding_backward<double>(*c.problem, c.graph.view, cutoffs, roots, 2, c.rows, c.grad_harmonics.data(),
                                       c.grad_basis.data(), o.grad.data(), 1);
  cpu::edge_embedding_double_backward<double>(*c.problem, c.graph.view, cutoffs, roots, 2, c.rows,
                                              c.grad_harmonics.data(), c.grad_basis.data(), c.from.data(),
                                              o.harmonics_change.data(), o.basis_change.data(), o.second.data(), 1);
  return o;
}

template <typename T>
Output<T> on_emulator(const Case& c) {
  const GraphView& graph = c.graph.view;
  const int64_t edges = graph.n_edges;
  const auto kernels = cuda::EdgeEmbedding::make(c.problem, sizeof(T) == 4 ? cuda::Scalar::f32 : cuda::Scalar::f64);
  cuda::EmbeddingOperands o;
  o.edge_vec = graph.edge_vec;
  o.row_ptr = graph.row_ptr;
  o.receivers = c.graph.graph.receivers.data();
  o.senders = graph.senders;
  o.types = c.graph.graph.types.data();
  o.cutoffs = c.cutoffs.data();
  o.roots = c.roots.data();
  o.row_limit = &c.rows;
  o.rows = graph.n_rows;
  o.type_count = 2;
  o.edges = edges;
  const std::vector<T> gh(c.grad_harmonics.begin(), c.grad_harmonics.end()),
      gb(c.grad_basis.begin(), c.grad_basis.end());
  const auto numbers = [&](int64_t width) { return std::vector<T>(static_cast<size_t>(edges * width), T(NAN)); };
  Output<T> r{numbers(c.components()), numbers(3), numbers(c.components()), numbers(3), Values(edges * 3, NAN),
              Values(edges * 3, NAN)};
  kernels->forward(o, r.harmonics.data(), r.basis.data(), nullptr);
  kernels->backward(o, gh.data(), gb.data(), r.grad.data(), nullptr);
  kernels->double_backward(o, gh.data(), gb.data(), c.from.data(), r.harmonics_change.data(), r.basis_change.data(),
                           r.second.data(), nullptr);
  return r;
}

template <typename T>
void compare(const Case& c) {
  SCOPED_TRACE(c.seed);
  const Output<double> expected = on_cpu(c);
  const Output<T> got = on_emulator<T>(c);
  const double tolerance = sizeof(T) == 4 ? 2e-7 : 1e-13;  // the arithmetic is fp64, operands are rounded
  EXPECT_LE(reference::array_error(got.harmonics, expected.harmonics, got.harmonics.size()), tolerance);
  EXPECT_LE(reference::array_error(got.basis, expected.basis, got.basis.size()), tolerance);
  EXPECT_LE(reference::array_error(got.harmonics_change, expected.harmonics_change, got.harmonics_change.size()),
            tolerance);
  EXPECT_LE(reference::array_error(got.basis_change, expected.basis_change, got.basis_change.size()), tolerance);
  EXPECT_LE(reference::array_error(got.grad, expected.grad, got.grad.size()), tolerance);
  EXPECT_LE(reference::array_error(got.second, expected.second, got.second.size()), tolerance);
}

reference::GraphShape shape() {
  reference::GraphShape shape;
  shape.n_local = 7;
  shape.n_rows = 9;
  shape.n_nodes = 12;
  return shape;
}

TEST(EmulatedEdgeEmbedding, MatchesTheCpu) {
  compare<double>(Case(3, 6, 9, shape()));
  compare<float>(Case(3, 5, 6, shape()));
}

TEST(EmulatedEdgeEmbedding, LowestAndHighestDegree) {
  compare<double>(Case(0, 4.5, 9, shape()));
  compare<double>(Case(7, 6, 9, shape()));
}

TEST(EmulatedEdgeEmbedding, NoEdges) {
  reference::GraphShape empty = shape();
  empty.max_degree = 0;
  compare<float>(Case(3, 5, 9, empty));
}

/// Away from the cutoffs, where the fourth derivative jumps.
TEST(CpuEdgeEmbedding, DoubleBackwardIsTheSlopeOfBackward) {
  Case c(4, 6, 9, shape());
  SCOPED_TRACE(c.seed);
  std::vector<double>& vectors = c.graph.graph.edge_vec;
  for (size_t e = 0; e < static_cast<size_t>(c.graph.graph.row_ptr.back()); ++e) {
    double* v = vectors.data() + 3 * e;
    const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    const double wanted = e % 5 == 4 ? 6.0 : 0.8 + 0.3 * static_cast<double>(e % 5);
    for (int k = 0; k < 3; ++k) v[k] *= wanted / r;
  }
  const Output<double> exact = on_cpu(c);
  const double step = 1e-5;
  const Values start = vectors;
  Output<double> ends[2];
  for (int side = 0; side < 2; ++side) {
    for (size_t k = 0; k < c.from.size(); ++k) vectors[k] = start[k] + (side ? -step : step) * c.from[k];
    ends[side] = on_cpu(c);
  }
  const auto slope_error = [&](const Values& above, const Values& below, const Values& expected) {
    Values slope(above.size());
    for (size_t k = 0; k < slope.size(); ++k) slope[k] = (above[k] - below[k]) / (2 * step);
    return reference::array_error(slope, expected, slope.size());
  };
  EXPECT_LE(slope_error(ends[0].harmonics, ends[1].harmonics, exact.harmonics_change), 1e-7);
  EXPECT_LE(slope_error(ends[0].basis, ends[1].basis, exact.basis_change), 1e-7);
  EXPECT_LE(slope_error(ends[0].grad, ends[1].grad, exact.second), 1e-7);
}

}  // namespace
}  // namespace clebsch
