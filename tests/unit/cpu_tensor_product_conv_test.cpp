// The exact path on the CPU (edge_embedding, tensor_product_conv) against slow loops in fp64, and against interaction.
#include "cpu/tensor_product_conv.h"

#include <gtest/gtest.h>

#include "conv_case.h"
#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cpu/dispatch.h"
#include "cpu/interaction.h"

namespace clebsch {
namespace {

using reference::cast;
using reference::ConvCase;
using reference::ConvOutput;
using reference::small_shape;
using reference::Values;

template <typename T>
ConvOutput<T> run(const ConvCase& test, int threads = 1) {
  const auto xt = cast<T>(test.x), yt = cast<T>(test.harmonics), wt = cast<T>(test.weights),
             gt = cast<T>(test.grad_out);
  ConvOutput<T> result;
  result.out.resize(test.graph.view.n_nodes * test.problem.out.dim());
  result.grad_x.assign(test.x.size(), T(77));
  result.grad_harmonics.assign(test.harmonics.size(), T(77));
  result.grad_weights.assign(test.weights.size(), T(77));
  cpu::tensor_product_conv_forward(test.problem, test.graph.view, test.rows, xt.data(), yt.data(), wt.data(),
                                   result.out.data(), threads);
  cpu::tensor_product_conv_backward(test.problem, test.graph.view, test.rows, xt.data(), yt.data(), wt.data(),
                                    gt.data(), result.grad_x.data(), result.grad_harmonics.data(),
                                    result.grad_weights.data(), threads);
  return result;
}

std::vector<std::string> problem_names() {
  std::vector<std::string> names;
  for (const NamedProblem& named : named_problems()) names.push_back(named.name);
  return names;
}

class ConvProblem : public testing::TestWithParam<std::string> {};

TEST_P(ConvProblem, MatchesReferenceInEveryInstructionSet) {
  const ConvCase test(named_problem(GetParam()).problem, small_shape());
  const cpu::Isa before = cpu::isa();
  for (cpu::Isa isa : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512}) {
    try {
      cpu::set_isa(isa);
    } catch (const Error&) {
      continue;  // this machine lacks it
    }
    SCOPED_TRACE(cpu::isa_name(isa));
    test.compare(run<double>(test), 1e-12);
    test.compare(run<float>(test), 1e-5);
  }
  cpu::set_isa(before);
}

INSTANTIATE_TEST_SUITE_P(Registry, ConvProblem, testing::ValuesIn(problem_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(TensorProductConv, SameBitsForAnyThreadCount) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = shape.n_nodes = 80;
  shape.max_degree = 60;
  const ConvCase test(named_problem("test-parity").problem, shape);
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(test.seed));
  const auto one = run<float>(test, 1);
  for (int threads : {2, 3, 7}) {
    const auto many = run<float>(test, threads);
    EXPECT_EQ(one.out, many.out);
    EXPECT_EQ(one.grad_x, many.grad_x);
    EXPECT_EQ(one.grad_harmonics, many.grad_harmonics);
    EXPECT_EQ(one.grad_weights, many.grad_weights);
  }
}

TEST(TensorProductConv, PathsOfBothModesIntoOneOutput) {
  const std::string text =
      "conv in1=6x0e+3x1o in2=1x0e+1x1o out=6x0e+19x1o paths=uvu:0,0,0,1;uvw:1,1,0,0.5;uvw:0,1,1,2;uvu0:0,0,0,0.3";
  const ConvCase test(text, small_shape());
  test.compare(run<double>(test), 1e-12);
}

TEST(TensorProductConv, SecondOperandWithTwoAdjacentBlocksOfOneIrrep) {
  const std::string text =
      "conv in1=6x0e+3x1o in2=1x0e+1x1o+1x1o out=6x0e+6x1o+3x0e paths=uvu:0,0,0,1;uvu:0,1,1,0.5;uvu:1,2,2,2";
  const ConvCase test(text, small_shape());
  test.compare(run<double>(test), 1e-12);
}

TEST(TensorProductConv, TwoPathsMayShareAnOutput) {
  const std::string text = "conv in1=20x0e+20x1o in2=1x0e+1x1o out=20x1o paths=uvu:0,1,0,0.5;uvu:1,0,0,2";
  const ConvCase test(text, small_shape());
  test.compare(run<double>(test), 1e-12);
}

TEST(TensorProductConv, FewerRowsThanTheGraphHas) {
  const ConvCase test(named_problem("test-uneven").problem, small_shape(), 3);
  const auto got = run<double>(test);
  test.compare(got, 1e-12);
  for (size_t k = test.graph.graph.row_ptr[3] * test.problem.in2.dim(); k < got.grad_harmonics.size(); ++k) {
    ASSERT_EQ(got.grad_harmonics[k], 0.0);
  }
}

TEST(TensorProductConv, RefusesWhatItCannotDo) {
  // A second operand with several channels: e3nn mixes them in a uvw path, the kernels do not.
  const ConvCase test("conv in1=3x0e in2=2x0e out=4x0e paths=uvw:0,0,0,1", small_shape());
  EXPECT_THROW(run<double>(test), Error);
}

// ------------------------------------------------------------------------------------------------ exact path

struct ExactPath {
  Values out, grad_x, grad_edge_vec;
};

/// edge_embedding, the radial network, tensor_product_conv, and all of it backwards.
ExactPath exact_path(const Problem& problem, const GraphView& graph, int32_t rows, const Values& cutoffs,
                     const Values& basis, const Values& network_weights, const Values& x, const Values& grad_out) {
  const int types = static_cast<int>(std::sqrt(cutoffs.size()));
  const int64_t size = problem.radial->basis_size(), columns = problem.weight_count,
                components = harmonics_count(problem.lmax_in2), edges = graph.n_edges;
  Values harmonics(edges * components), radial(edges * size);
  cpu::edge_embedding_forward(problem, graph, cutoffs.data(), basis.data(), types, rows, harmonics.data(),
                              radial.data(), 2);
  // The network through its own evaluation; its slope along r gives the gradient of the basis' part.
  const RadialNetwork network(*problem.radial, basis, network_weights);
  Values weights(edges * columns), slopes(edges * columns);
  for (int32_t e = 0; e < graph.row_ptr[rows]; ++e) {
    const double* v = graph.edge_vec + 3 * e;
    const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    const double cutoff = cutoffs[graph.types[graph.receivers[e]] * types + graph.types[graph.senders[e]]];
    network.evaluate(r, cutoff, weights.data() + e * columns, slopes.data() + e * columns, nullptr);
  }
  ExactPath result;
  result.out.resize(graph.n_nodes * problem.out.dim());
  result.grad_x.resize(x.size());
  Values grad_harmonics(harmonics.size()), grad_weights(weights.size());
  cpu::tensor_product_conv_forward(problem, graph, rows, x.data(), harmonics.data(), weights.data(), result.out.data(),
                                   2);
  cpu::tensor_product_conv_backward(problem, graph, rows, x.data(), harmonics.data(), weights.data(), grad_out.data(),
                                    result.grad_x.data(), grad_harmonics.data(), grad_weights.data(), 2);
  result.grad_edge_vec.resize(3 * edges);
  const Values no_basis(radial.size());
  cpu::edge_embedding_backward(problem, graph, cutoffs.data(), basis.data(), types, rows, grad_harmonics.data(),
                               no_basis.data(), result.grad_edge_vec.data(), 2);
  for (int32_t e = 0; e < graph.row_ptr[rows]; ++e) {
    const double* v = graph.edge_vec + 3 * e;
    const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    double slope = 0;
    for (int64_t w = 0; w < columns; ++w) slope += grad_weights[e * columns + w] * slopes[e * columns + w];
    for (int d = 0; d < 3; ++d) result.grad_edge_vec[3 * e + d] += slope * v[d] / r;
  }
  return result;
}

TEST(ExactPath, InteractionAgreesToTheErrorOfItsTables) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Problem problem = Problem::parse(named_problem("nequip-S").problem);
  reference::PaddedGraph padded(reference::random_graph(small_shape(), random), 4);
  Graph& graph = padded.graph;
  // A trained network is smooth where atoms are; keep to distances above 0.8 A, where its table is accurate.
  for (int32_t e = 0; e < graph.row_ptr.back(); ++e) {
    double* v = graph.edge_vec.data() + 3 * e;
    const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    if (r < 0.8) {
      for (int d = 0; d < 3; ++d) v[d] *= (0.8 + r) / r;
    }
  }
  Values basis(problem.radial->basis_size());
  for (size_t n = 0; n < basis.size(); ++n) basis[n] = M_PI * static_cast<double>(n + 1);
  Values weights = reference::random_values(problem.radial->weight_count(), random);
  for (double& w : weights) w *= 0.15;
  const RadialNetwork network(*problem.radial, basis, weights);
  const auto tables = reference::make_tables(network, 2);
  const Values x = reference::random_values(padded.view.n_nodes * problem.in1.dim(), random),
               grad_out = reference::random_values(padded.view.n_nodes * problem.out.dim(), random);
  const int32_t rows = padded.view.n_rows;
  const ExactPath exact = exact_path(problem, padded.view, rows, tables.cutoffs, basis, weights, x, grad_out);

  cpu::RadialTableView<double> radial;
  radial.table = tables.values.data();
  radial.table_index = tables.table_index.data();
  radial.cutoffs = tables.cutoffs.data();
  radial.types = 2;
  radial.tables = 4;
  radial.pieces = tables.pieces;
  radial.columns = problem.weight_count;
  Values out(padded.view.n_nodes * problem.out.dim()), grad_x(x.size()), grad_edge_vec(3 * padded.view.n_edges);
  cpu::interaction_forward(problem, padded.view, radial, rows, x.data(), out.data(), 1);
  cpu::interaction_backward(problem, padded.view, radial, rows, x.data(), grad_out.data(), grad_edge_vec.data(),
                            grad_x.data(), 1);
  const size_t edges = graph.row_ptr.back();
  EXPECT_LE(reference::block_error(problem.out, rows, out, exact.out), 1e-5);
  EXPECT_LE(reference::block_error(problem.in1, padded.view.n_nodes, grad_x, exact.grad_x), 1e-5);
  EXPECT_LE(reference::array_error(grad_edge_vec, exact.grad_edge_vec, 3 * edges), 1e-4);
}

TEST(EdgeEmbedding, BasisIsTheNetworksOwnAndGradientsAreFiniteDifferences) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  // A network of one identity layer returns its basis.
  Problem problem =
      Problem::parse("conv in1=3x0e in2=1x0e+1x1o+1x2e out=3x0e paths=uvu:0,0,0,1 radial=bessel,0.37,5,3-3,silu");
  reference::PaddedGraph padded(reference::random_graph(small_shape(), random), 3);
  const GraphView& graph = padded.view;
  const Values cutoffs = reference::pair_cutoffs(2), basis = {3.0, 6.5, 9.25};
  const RadialNetwork identity(*problem.radial, basis, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  const int64_t components = 9, size = 3, edges = graph.n_edges;
  Values harmonics(edges * components, 77), radial(edges * size, 77);
  const auto run = [&] {
    cpu::edge_embedding_forward(problem, graph, cutoffs.data(), basis.data(), 2, graph.n_rows, harmonics.data(),
                                radial.data(), 2);
  };
  run();
  for (int32_t e = 0; e < padded.graph.row_ptr.back(); ++e) {
    const double* v = graph.edge_vec + 3 * e;
    const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    const double cutoff = cutoffs[graph.types[graph.receivers[e]] * 2 + graph.types[graph.senders[e]]];
    Values expected(size), y(components);
    identity.evaluate(r, cutoff, expected.data(), nullptr, nullptr);
    spherical_harmonics(2, v[0] / r, v[1] / r, v[2] / r, y.data());
    for (int n = 0; n < size; ++n) EXPECT_NEAR(radial[e * size + n], expected[n], 1e-13);
    for (int m = 0; m < components; ++m) EXPECT_NEAR(harmonics[e * components + m], y[m], 1e-13);
  }
  const Values gy = reference::random_values(harmonics.size(), random),
               gb = reference::random_values(radial.size(), random);
  Values grad(3 * edges, 77);
  cpu::edge_embedding_backward(problem, graph, cutoffs.data(), basis.data(), 2, graph.n_rows, gy.data(), gb.data(),
                               grad.data(), 2);
  const int64_t true_edges = padded.graph.row_ptr.back();
  const auto energy = [&] {
    run();
    double sum = 0;
    for (int64_t k = 0; k < true_edges * components; ++k) sum += gy[k] * harmonics[k];
    for (int64_t k = 0; k < true_edges * size; ++k) sum += gb[k] * radial[k];
    return sum;
  };
  for (int trial = 0; trial < 20; ++trial) {
    const size_t k = random() % (3 * true_edges);
    double& variable = padded.graph.edge_vec[k];
    const double kept = variable, step = 1e-5;
    variable = kept + step;
    const double above = energy();
    variable = kept - step;
    const double below = energy();
    variable = kept;
    EXPECT_NEAR((above - below) / (2 * step), grad[k], 1e-6 * (1 + std::abs(grad[k])));
  }
}

}  // namespace
}  // namespace clebsch
