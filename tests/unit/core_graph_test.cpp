#include "core/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

#include "core/errors.h"
#include "core/graph_passes.h"

namespace clebsch {
namespace {

struct Edges {
  std::vector<int64_t> receiver, sender;
  std::vector<double> vectors;
  int64_t count() const { return static_cast<int64_t>(receiver.size()); }
};

Edges random_edges(unsigned seed, int rows, int nodes, int count) {
  std::mt19937 rng(seed);
  Edges edges;
  for (int e = 0; e < count; ++e) {
    edges.receiver.push_back(rng() % rows);
    edges.sender.push_back(rng() % nodes);
    for (int d = 0; d < 3; ++d) edges.vectors.push_back(10.0 * e + d);  // tells the edge
  }
  return edges;
}

Graph build(const Edges& edges, int n_local, int rows, int nodes, int layers = 2) {
  const std::vector<int64_t> types(nodes, 0);
  Graph graph;
  graph.assign(n_local, rows, nodes, edges.count(), edges.receiver.data(), edges.sender.data(), edges.vectors.data(),
               types.data(), layers);
  return graph;
}

TEST(Graph, SortsStablyByReceiver) {
  const Edges edges = random_edges(1, 13, 20, 200);
  const Graph graph = build(edges, 10, 13, 20);
  validate_graph(graph.view(), 1);
  for (int i = 0; i < 13; ++i) {
    double last = -1;
    for (int e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      const int64_t original = std::lround(graph.edge_vec[3 * e] / 10.0);
      EXPECT_EQ(edges.receiver[original], i);
      EXPECT_EQ(graph.receivers[e], i);
      EXPECT_EQ(edges.sender[original], graph.senders[e]);
      EXPECT_GT(original, last);
      EXPECT_EQ(graph.edge_vec[3 * e + 2], edges.vectors[3 * original + 2]);
      last = original;
    }
  }
  EXPECT_EQ(graph.row_ptr.back(), 200);
  EXPECT_EQ(graph.layer_rows, (std::vector<int32_t>{13, 13}));
}

TEST(Graph, TransposeListsEveryEdgeOnce) {
  const Graph graph = build(random_edges(2, 7, 30, 150), 7, 7, 30);
  std::vector<int> seen(150, 0);
  for (int j = 0; j < 30; ++j) {
    for (int k = graph.col_ptr[j]; k < graph.col_ptr[j + 1]; ++k) {
      EXPECT_EQ(graph.senders[graph.col_edge[k]], j);
      ++seen[graph.col_edge[k]];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(150, 1));
}

TEST(Graph, PassesOfSeveralThreadsGiveTheSameNumbers) {
  // Few nodes and many edges, as many nodes as edges, senders that most edges share, none at all.
  const struct {
    int rows, nodes, edges;
  } sizes[] = {{300, 400, 60001}, {20000, 60000, 60000}, {1, 1, 30000}, {9, 9, 12}, {3, 3, 0}};
  for (const auto& size : sizes) {
    Graph graph = build(random_edges(4, size.rows, size.nodes, size.edges), 1, size.rows, size.nodes);
    std::vector<int32_t> col_ptr, col_edge, counts, receivers(size.edges);
    for (const int threads : {1, 2, 3, 7, 64}) {
      transpose_graph(graph.view(), threads, col_ptr, col_edge, counts);
      EXPECT_EQ(col_ptr, graph.col_ptr) << size.edges << " edges, " << threads << " threads";
      EXPECT_EQ(col_edge, graph.col_edge) << size.edges << " edges, " << threads << " threads";
      EXPECT_LE(counts.size(), static_cast<size_t>(size.edges));
      std::fill(receivers.begin(), receivers.end(), -1);
      fill_receivers(graph.view(), threads, receivers.data());
      EXPECT_EQ(receivers, graph.receivers);
      EXPECT_TRUE(all_finite(graph.edge_vec.data(), 3 * size.edges, threads));
      EXPECT_TRUE(all_below(graph.senders.data(), size.edges, size.nodes, threads));
      validate_graph(graph.view(), 1, threads);
    }
  }
}

TEST(Graph, PassesOfSeveralThreadsFindTheOneBadNumber) {
  const int edges = 50000;
  Graph graph = build(random_edges(5, 90, 100, edges), 90, 90, 100);
  graph.col_ptr.clear();
  for (const int threads : {1, 2, 5}) {
    for (const int at : {0, 16383, 25000, edges - 1}) {
      for (const double bad : {NAN, INFINITY, -INFINITY}) {
        const double kept = std::exchange(graph.edge_vec[3 * at + 1], bad);
        EXPECT_FALSE(all_finite(graph.edge_vec.data(), 3 * edges, threads));
        graph.edge_vec[3 * at + 1] = kept;
      }
      for (const int bad : {-1, 100}) {
        const int kept = std::exchange(graph.senders[at], bad);
        EXPECT_FALSE(all_below(graph.senders.data(), edges, 100, threads));
        EXPECT_THROW(validate_graph(graph.view(), 1, threads), Error);
        graph.senders[at] = kept;
      }
    }
  }
}

TEST(Graph, ReceiversThatAreNotThereAreNotShown) {
  Graph graph = build(random_edges(6, 5, 5, 30), 5, 5, 5);
  graph.receivers.clear();
  EXPECT_EQ(graph.view().receivers, nullptr);
  validate_graph(graph.view(), 1);
}

TEST(Graph, EmptyOneAtomIsolatedAndAsymmetric) {
  const Edges none;
  Graph graph = build(none, 0, 0, 0);
  validate_graph(graph.view(), 1);
  EXPECT_EQ(graph.row_ptr, std::vector<int32_t>{0});
  EXPECT_EQ(graph.view().n_edges, 0);

  graph = build(none, 1, 1, 1);
  validate_graph(graph.view(), 1);
  EXPECT_EQ(graph.row_ptr, (std::vector<int32_t>{0, 0}));

  Edges self;  // an atom and its own image, in one direction alone
  self.receiver = {0};
  self.sender = {0};
  self.vectors = {1.0, 0.0, 0.0};
  graph = build(self, 1, 1, 1);
  validate_graph(graph.view(), 1);

  Edges lone;  // 2 receives from 0; 1 is isolated; 0 receives nothing
  lone.receiver = {2, 2};
  lone.sender = {0, 0};
  lone.vectors = {1, 0, 0, -1, 0, 0};
  graph = build(lone, 3, 3, 3);
  validate_graph(graph.view(), 1);
  EXPECT_EQ(graph.col_ptr, (std::vector<int32_t>{0, 2, 2, 2}));
}

TEST(Graph, RebuildKeepsItsBuffers) {
  Graph graph = build(random_edges(3, 20, 20, 300), 20, 20, 20);
  const auto* senders = graph.senders.data();
  const auto* columns = graph.col_edge.data();
  const auto* vectors = graph.edge_vec.data();
  const Edges fewer = random_edges(4, 20, 20, 250);
  const std::vector<int64_t> types(20, 1);
  graph.assign(20, 20, 20, fewer.count(), fewer.receiver.data(), fewer.sender.data(), fewer.vectors.data(),
               types.data(), 3);
  validate_graph(graph.view(), 2);
  EXPECT_EQ(graph.senders.data(), senders);
  EXPECT_EQ(graph.col_edge.data(), columns);
  EXPECT_EQ(graph.edge_vec.data(), vectors);
  EXPECT_EQ(graph.view().n_edges, 250);
}

TEST(Graph, ViewWorksWithoutATranspose) {
  Graph graph = build(random_edges(3, 5, 5, 30), 5, 5, 5);
  graph.col_ptr.clear();
  graph.col_edge.clear();
  EXPECT_EQ(graph.view().col_ptr, nullptr);
  validate_graph(graph.view(), 1);
}

TEST(Graph, AssignRefusesWhatIsOutOfRangeAndKeepsTheOldGraph) {
  Graph graph = build(random_edges(3, 5, 8, 30), 4, 5, 8);
  const auto kept = graph.senders;
  const auto refused = [&](int n_local, int rows, int nodes, int64_t receiver, int64_t sender, double x, int64_t type) {
    const std::vector<int64_t> types(8, type);
    const double vectors[3] = {x, 0, 0};
    EXPECT_THROW(graph.assign(n_local, rows, nodes, 1, &receiver, &sender, vectors, types.data(), 1), Error);
    EXPECT_EQ(graph.senders, kept);
  };
  refused(4, 5, 8, 5, 0, 1.0, 0);
  refused(4, 5, 8, -1, 0, 1.0, 0);
  refused(4, 5, 8, 0, 8, 1.0, 0);
  refused(4, 5, 8, 0, -1, 1.0, 0);
  refused(4, 5, 8, 0, int64_t{1} << 40, 1.0, 0);
  refused(4, 5, 8, 0, 0, NAN, 0);
  refused(4, 5, 8, 0, 0, INFINITY, 0);
  refused(4, 5, 8, 0, 0, 1.0, -1);
  refused(6, 5, 8, 0, 0, 1.0, 0);
  refused(4, 9, 8, 0, 0, 1.0, 0);
  refused(-1, 5, 8, 0, 0, 1.0, 0);
  const int64_t too_many = int64_t{1} << 31;
  EXPECT_THROW(graph.assign(1, 1, 1, too_many, nullptr, nullptr, nullptr, nullptr, 1), Error);
}

TEST(Graph, ValidationFindsEveryDamage) {
  const Graph good = build(random_edges(5, 6, 9, 60), 5, 6, 9);
  validate_graph(good.view(), 1);
  const auto damaged = [&](auto change) {
    Graph graph = good;
    change(graph);
    EXPECT_THROW(validate_graph(graph.view(), 1), Error);
  };
  damaged([](Graph& g) { g.row_ptr[0] = 1; });
  damaged([](Graph& g) { g.row_ptr[2] = g.row_ptr[3] + 1; });
  damaged([](Graph& g) { g.row_ptr.back() = 61; });
  damaged([](Graph& g) { g.row_ptr[1] = -1; });
  damaged([](Graph& g) { g.senders[7] = 9; });
  damaged([](Graph& g) { g.senders[7] = -1; });
  damaged([](Graph& g) { g.receivers[7] = 6; });
  damaged([](Graph& g) { std::swap(g.col_edge[0], g.col_edge[1]); });
  damaged([](Graph& g) { g.col_edge[3] = 60; });
  damaged([](Graph& g) { g.col_ptr[4] = 61; });
  damaged([](Graph& g) { g.layer_rows[0] = 7; });
  damaged([](Graph& g) { g.layer_rows[1] = 4; });
  damaged([](Graph& g) { g.types[8] = 1; });
  damaged([](Graph& g) { g.types[8] = -1; });
  damaged([](Graph& g) { g.n_local = 7; });
  damaged([](Graph& g) { g.n_rows = -1; });
}

TEST(Graph, CapacityBeyondTheEdgesIsNeverRead) {
  Graph graph = build(random_edges(6, 4, 4, 20), 4, 4, 4);
  graph.senders.resize(40, -99);
  graph.receivers.resize(40, -99);
  graph.edge_vec.resize(120, NAN);
  validate_graph(graph.view(), 1);
  std::vector<int32_t> col_ptr, col_edge;
  transpose_graph(graph.view(), col_ptr, col_edge);
  EXPECT_EQ(col_ptr, graph.col_ptr);
  EXPECT_EQ(col_edge, graph.col_edge);
}

TEST(Graph, SortedEdgesAreReferredTo) {
  std::mt19937_64 random(11);
  for (const int64_t edges : {0, 1, 7, 300000}) {
    const int32_t rows = 900, nodes = 1000;
    std::vector<int64_t> receiver(edges), sender(edges), type(nodes, 1);
    std::vector<double> vectors(3 * edges, 0.5);
    for (int64_t e = 0; e < edges; ++e) receiver[e] = e * 700 / edges + 3, sender[e] = random() % nodes;
    Graph expected, got;
    expected.assign(800, rows, nodes, edges, receiver.data(), sender.data(), vectors.data(), type.data(), 2);
    const auto refer = [&](int threads) {
      return got.refer_to_sorted(800, rows, nodes, edges, receiver.data(), sender.data(), vectors.data(), type.data(),
                                 2, threads);
    };
    for (const int threads : {1, 3}) {
      ASSERT_TRUE(refer(threads));
      EXPECT_EQ(got.row_ptr, expected.row_ptr);
      EXPECT_EQ(got.senders, expected.senders);
      EXPECT_EQ(got.types, expected.types);
      const GraphView view = got.view();
      EXPECT_EQ(view.edge_vec, vectors.data());
      EXPECT_EQ(view.receivers, nullptr);
      EXPECT_EQ(view.col_ptr, nullptr);
      EXPECT_EQ(view.n_edges, edges);
    }
    if (edges < 7) continue;
    std::swap(receiver[1], receiver[edges - 2]);
    EXPECT_FALSE(refer(2)) << "receivers fall";
    std::swap(receiver[1], receiver[edges - 2]);
    sender[4] = nodes;
    EXPECT_FALSE(refer(1)) << "a sender that does not exist";
    sender[4] = 0;
    receiver[0] = -1;
    EXPECT_FALSE(refer(1)) << "a receiver that does not exist";
    receiver[0] = 0;
    receiver[edges - 1] = rows;
    EXPECT_FALSE(refer(2));
    got.assign(800, rows, nodes, edges - 1, receiver.data(), sender.data(), vectors.data(), type.data(), 2);
    EXPECT_EQ(got.view().edge_vec, got.edge_vec.data()) << "an assigned graph has its own vectors again";
  }
}

}  // namespace
}  // namespace clebsch
