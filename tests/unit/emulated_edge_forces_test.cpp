// The kernels of edge forces and of the transposed graph in the emulator, against the CPU's loops: rows that are not
// computed, padding, virials of an atom and of a system, no edges.
#include <gtest/gtest.h>

#include "core/edge_forces.h"
#include "cuda/edges/edge_forces.h"
#include "cuda/edges/graph_transpose.h"
#include "reference.h"

namespace clebsch {
namespace {

using reference::Values;

void expect_close(const Values& got, const Values& expected, double scale) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-14 * scale) << i;
}

TEST(EmulatedEdgeForces, AsOnTheCpu) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const reference::GraphShape shape{15, 18, 23, 70, 5, 2, 1};
  const Graph graph = reference::random_graph(shape, random);
  const GraphView view = graph.view();
  const size_t nodes = static_cast<size_t>(shape.n_nodes);
  Values gradient = reference::random_values(graph.edge_vec.size(), random);
  std::fill(gradient.begin() + 3 * view.row_ptr[view.n_rows], gradient.end(), NAN);  // padding is not read
  std::vector<int32_t> col_ptr, col_edge;
  transpose_graph(view, col_ptr, col_edge);
  Values forces(3 * nodes), virial(9), atom(6 * nodes), centroid(9 * nodes);
  accumulate_edge_forces(view, gradient.data(), {forces.data(), virial.data(), atom.data(), centroid.data()}, 1);
  cuda::EdgeForceOperands o;
  o.edge_vec = view.edge_vec;
  o.gradient = gradient.data();
  o.row_ptr = view.row_ptr;
  o.col_ptr = col_ptr.data();
  o.col_edge = col_edge.data();
  o.rows = view.n_rows;
  o.nodes = view.n_nodes;
  Values got_forces(forces.size(), NAN), got_virial(9, NAN), got_atom(atom.size(), NAN);
  Values got_centroid(centroid.size(), NAN);
  std::vector<char> scratch(static_cast<size_t>(cuda::EdgeForces::workspace(o.nodes)), 77);
  const auto kernels = cuda::EdgeForces::make();
  kernels->run(o, {got_forces.data(), got_virial.data(), got_atom.data(), got_centroid.data()}, scratch.data(),
               nullptr);
  expect_close(got_forces, forces, 100);
  expect_close(got_virial, virial, 1e4);
  expect_close(got_atom, atom, 1e3);
  expect_close(got_centroid, centroid, 1e3);
  Values again(forces.size(), NAN);
  kernels->run(o, {again.data(), nullptr, nullptr, nullptr}, nullptr, nullptr);
  EXPECT_EQ(again, got_forces);

  // Virials of systems, one of them without rows; half of an edge's virial goes to each end, all of it to its
  // receiver's system.
  const std::vector<int32_t> systems{0, 4, 4, 5, view.n_rows};
  o.system_rows = systems.data();
  o.systems = 4;
  Values sums(6 * 4), got_sums(6 * 4, NAN);
  for (size_t s = 0; s < 4; ++s) {
    Graph part = graph;  // the rows of one system alone
    std::fill(part.row_ptr.begin(), part.row_ptr.end(), 0);
    Values part_gradient, one(9);
    part.edge_vec.clear();
    part.senders.clear();
    for (int32_t row = systems[s]; row < systems[s + 1]; ++row) {
      for (int32_t e = view.row_ptr[row]; e < view.row_ptr[row + 1]; ++e) {
        part.edge_vec.insert(part.edge_vec.end(), view.edge_vec + 3 * e, view.edge_vec + 3 * e + 3);
        part_gradient.insert(part_gradient.end(), &gradient[3 * e], &gradient[3 * e] + 3);
        part.senders.push_back(view.senders[e]);
      }
    }
    std::fill(part.row_ptr.begin() + 1, part.row_ptr.end(), static_cast<int32_t>(part.senders.size()));
    accumulate_edge_forces(part.view(), part_gradient.data(), {nullptr, one.data(), nullptr, nullptr}, 1);
    for (size_t c = 0; c < 6; ++c) {
      const size_t first[6] = {0, 1, 2, 0, 0, 1}, second[6] = {0, 1, 2, 1, 2, 2};
      sums[6 * s + c] = 0.5 * (one[3 * first[c] + second[c]] + one[3 * second[c] + first[c]]);
    }
  }
  std::vector<char> more(static_cast<size_t>(cuda::EdgeForces::workspace(o.nodes, true)), 77);
  Values last(forces.size(), NAN), last_virial(9, NAN);
  kernels->run(o, {last.data(), last_virial.data(), nullptr, nullptr, got_sums.data()}, more.data(), nullptr);
  EXPECT_EQ(last, got_forces);
  expect_close(got_sums, sums, 1e4);
}

TEST(EmulatedGraphTranspose, AsOnTheCpu) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const reference::GraphShape& shape : {reference::GraphShape{15, 18, 23, 70, 5, 2, 1},
                                             {1, 1, 1, 3, 2, 1, 1},
                                             {900, 1100, 1300, 4, 0, 1, 1},
                                             {18000, 18000, 20000, 3, 1, 1, 1},
                                             {0, 0, 7, 0, 4, 1, 1},
                                             {0, 0, 0, 0, 3, 1, 1}}) {
    SCOPED_TRACE(shape.n_nodes);
    const Graph graph = reference::random_graph(shape, random);
    const GraphView view = graph.view();
    std::vector<int32_t> col_ptr, col_edge;
    transpose_graph(view, col_ptr, col_edge);
    const size_t edges = static_cast<size_t>(view.row_ptr[view.n_rows]);
    std::vector<int32_t> receivers(edges + 5, -7), got_ptr(col_ptr.size(), -7), got_edge(edges + 5, -7);
    cuda::TransposeOperands o;
    o.row_ptr = view.row_ptr;
    o.senders = view.senders;
    o.receivers = receivers.data();
    o.col_ptr = got_ptr.data();
    o.col_edge = got_edge.data();
    o.rows = view.n_rows;
    o.nodes = view.n_nodes;
    o.edges = static_cast<int64_t>(edges) + 5;
    std::vector<char> scratch(static_cast<size_t>(cuda::GraphTranspose::workspace(o)), 77);
    cuda::GraphTranspose::make()->run(o, scratch.data(), nullptr);
    EXPECT_EQ(got_ptr, col_ptr);
    for (size_t e = 0; e < edges; ++e) {
      ASSERT_EQ(got_edge[e], col_edge[e]) << e;
      ASSERT_EQ(receivers[e], view.receivers[e]) << e;
    }
    for (size_t e = edges; e < edges + 5; ++e) EXPECT_TRUE(got_edge[e] == -7 && receivers[e] == -7);
  }
}

}  // namespace
}  // namespace clebsch
