// Interactions whose senders' features follow from their types, projected: kernels in the emulator and the linear map
// in fp64 against slow loops over edges and channels.
#include <gtest/gtest.h>

#include "core/errors.h"
#include "core/problem/node_problem.h"
#include "cuda/interaction/interaction.h"
#include "cuda/interaction/projection.h"
#include "emulated_interaction_case.h"

namespace clebsch::cuda {
namespace {

std::string scalars_to(int lmax, int channels) {
  std::string in2, out, paths;
  for (int l = 0; l <= lmax; ++l) {
    const char parity = l % 2 ? 'o' : 'e';
    in2 += fmt::format("{}1x{}{}", l ? "+" : "", l, parity);
    out += fmt::format("{}{}x{}{}", l ? "+" : "", channels, l, parity);
    paths += fmt::format("{}uvu:0,{},{},{}", l ? ";" : "", l, l, l % 2 ? -1.25 : 0.5 + l);
  }
  return fmt::format("conv in1={}x0e in2={} out={} paths={} radial=bessel,0.08,6,8-16-{},silu", channels, in2, out,
                     paths, channels * (lmax + 1));
}

/// One radial function for all pairs of types, features by type.
struct Projected {
  std::mt19937_64 random{reference::fresh_seed()};
  Problem problem;
  DensityProjection projection;
  reference::PaddedGraph graph;
  reference::Tables tables;
  int32_t rows;
  Values x, grad_out, weight, differences;
  std::vector<int32_t> slots;

  Projected(const std::string& text, Graph source, int types, int pieces)
      : problem(Problem::parse(text)),
        projection(density_projection(problem, pieces, types)),
        graph(std::move(source), 3),
        tables(reference::make_tables(reference::random_network(problem, random), 1, pieces)),
        rows(graph.graph.layer_rows[0]),
        grad_out(reference::random_values(graph.view.n_nodes * problem.out.dim(), random)) {
    const Values spline = take_splines(tables, problem.weight_count);
    tables.types = types;
    tables.cutoffs.assign(types * types, tables.cutoffs[0]);
    tables.table_index.assign(types * types, 0);
    const int64_t channels = problem.in1.dim();
    const Values features = reference::random_values(types * channels, random);
    for (int32_t i = 0; i < graph.view.n_nodes; ++i) {
      const auto own = features.begin() + graph.view.types[i] * channels;
      x.insert(x.end(), own, own + channels);
    }
    weight = projection_weight(problem, projection, spline, features);
    differences = projection_differences(problem, projection, weight);
    for (int k = 0; k < types * types; ++k) slots.push_back(k % types);
  }

  ProjectionArguments arguments() {
    ProjectionArguments a;
    a.edge_vec = graph.view.edge_vec;
    a.row_ptr = graph.view.row_ptr;
    a.senders = graph.view.senders;
    a.types = graph.view.types;
    a.slots = slots.data();
    a.cutoffs = tables.cutoffs.data();
    a.row_limit = &rows;
    a.type_count = tables.types;
    a.graph_rows = graph.view.n_rows;
    return a;
  }

  /// From sums to messages, or with `transposed` from gradients of messages to those of sums.
  template <typename From>
  Values map(const From& from, bool transposed) const {
    const LinearProblem linear = LinearProblem::parse(transposed ? projection.differences : projection.linear);
    const Values& weights = transposed ? differences : weight;
    const int64_t width = linear.in.dim(), out = linear.out.dim();
    Values result(static_cast<size_t>(graph.view.n_nodes * (transposed ? width : out)), 0.0);
    for (int32_t i = 0; i < rows; ++i) {
      for (const LinearProblem::Map& m : linear.maps) {
        for (int c = 0; c < 2 * m.l + 1; ++c) {
          for (int64_t j = 0; j < m.in_mul; ++j) {
            for (int64_t u = 0; u < m.out_mul; ++u) {
              const double w = weights[static_cast<size_t>(m.weight_offset + j * m.out_mul + u)];
              const int64_t a = i * width + m.in_offset + c * m.in_mul + j;
              const int64_t b = i * out + m.out_offset + c * m.out_mul + u;
              if (transposed) {
                result[static_cast<size_t>(a)] += w * from[static_cast<size_t>(b)];
              } else {
                result[static_cast<size_t>(b)] += w * from[static_cast<size_t>(a)];
              }
            }
          }
        }
      }
    }
    return result;
  }

  std::vector<float> forward() {
    std::vector<float> sums(static_cast<size_t>(graph.view.n_nodes * projection.width()), 0.0f);
    ProjectionArguments a = arguments();
    a.sums = sums.data();
    Projection::make(projection)->forward(a, nullptr);
    return sums;
  }

  Values backward() {
    const Values wide = map(grad_out, true);
    const std::vector<float> grad_sums(wide.begin(), wide.end());
    Values grad(static_cast<size_t>(3 * graph.view.n_edges), kUntouched);
    ProjectionArguments a = arguments();
    a.grad_sums = grad_sums.data();
    a.grad_edge_vec = grad.data();
    Projection::make(projection)->backward(a, nullptr);
    return grad;
  }

  void compare() {
    const Values out = map(forward(), false);
    const Values expected = reference::interaction_forward(problem, graph.view, rows, tables, x);
    EXPECT_LE(reference::block_error(problem.out, graph.view.n_nodes, out, expected), 1e-5);
    const auto grad = reference::interaction_backward(problem, graph.view, rows, tables, x, grad_out);
    const Values got = backward();
    const size_t used = 3 * static_cast<size_t>(graph.graph.row_ptr.back());
    EXPECT_LE(reference::array_error(got, grad.edge_vec, used), 1e-5);
    for (size_t k = used; k < got.size(); ++k) ASSERT_EQ(got[k], kUntouched) << "padding written";
    EXPECT_EQ(forward(), forward());
  }
};

TEST(EmulatedProjection, EveryDegree) {
  std::mt19937_64 random(reference::fresh_seed());
  for (int lmax : {0, 1, 2, 3, 4})
    Projected(scalars_to(lmax, 5), small_graph(random, 3, 4, 6, 30, 1, 3), 1, 16).compare();
}

TEST(EmulatedProjection, SeveralTypesAndLongReceivers) {
  std::mt19937_64 random(reference::fresh_seed());
  Projected(scalars_to(2, 4), small_graph(random, 3, 4, 6, 300, 2, 3), 2, 96).compare();
  // Sums so long that fewer warps have them.
  Projected(scalars_to(3, 2), small_graph(random, 2, 3, 4, 40, 2, 2), 2, 120).compare();
}

TEST(EmulatedProjection, AtomsWithoutNeighboursAndRowsBeyondTheLayer) {
  std::mt19937_64 random(reference::fresh_seed());
  Projected(scalars_to(1, 3), small_graph(random, 3, 3, 5, 0, 1), 1, 8).compare();
  Projected(scalars_to(1, 3), small_graph(random, 2, 6, 8, 30, 2, 0), 2, 8).compare();
}

TEST(EmulatedProjection, VectorsThatAreNoNumbersAndMissingSlotsShow) {
  std::mt19937_64 random(reference::fresh_seed());
  for (double component : kNotFinite) {
    Projected broken(scalars_to(2, 3), graph_with(component, random), 1, 16);
    EXPECT_TRUE(std::isnan(broken.map(broken.forward(), false)[0]));
    EXPECT_TRUE(std::isnan(broken.backward()[3]));
  }
  Projected missing(scalars_to(2, 3), graph_with(1, random), 1, 16);
  EXPECT_FALSE(std::isnan(missing.map(missing.forward(), false)[0]));
  missing.slots[0] = -1;
  EXPECT_TRUE(std::isnan(missing.map(missing.forward(), false)[0]));
}

TEST(EmulatedProjection, ProblemsThatCannotBeProjected) {
  EXPECT_TRUE(can_project(Problem::parse(scalars_to(3, 8))));
  EXPECT_FALSE(can_project(*cached_problem(named_problem("mace-M").problem)));
  EXPECT_THROW(density_projection(Problem::parse(scalars_to(1, 8)), 12, 1), Error);
  // Features of many types would need more sums than shared memory has.
  EXPECT_FALSE(projection_fits(density_projection(Problem::parse(scalars_to(3, 8)), 96, 60)));
  EXPECT_FALSE(interaction_projects(Problem::parse(scalars_to(3, 32)), 1, 96, 1, Scalar::f64));
  EXPECT_FALSE(interaction_projects(Problem::parse(scalars_to(3, 32)), 3, 96, 1, Scalar::f32));
  EXPECT_TRUE(interaction_projects(Problem::parse(scalars_to(3, 32)), 1, 96, 1, Scalar::f32));
  EXPECT_FALSE(interaction_projects(Problem::parse(scalars_to(2, 32)), 1, 96, 2, Scalar::f32)) << "too few channels";
}

}  // namespace
}  // namespace clebsch::cuda
