#include "core/edge_forces.h"

#include <gtest/gtest.h>

#include <random>

#include "core/errors.h"

namespace clebsch {
namespace {

struct Case {
  Graph graph;
  std::vector<double> gradient;
};

Case random_case(unsigned seed, int n_local, int rows, int nodes, int edges) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<int64_t> receiver, sender, types(nodes, 0);
  std::vector<double> vectors;
  Case c;
  for (int e = 0; e < edges; ++e) {
    receiver.push_back(rng() % rows);
    sender.push_back(rng() % nodes);
    for (int d = 0; d < 3; ++d) vectors.push_back(normal(rng));
    for (int d = 0; d < 3; ++d) c.gradient.push_back(normal(rng));
  }
  c.graph.assign(n_local, rows, nodes, edges, receiver.data(), sender.data(), vectors.data(), types.data(), 1);
  return c;
}

struct Result {
  std::vector<double> forces, virial, atom_virial, centroid_virial;
  Result(int nodes, double start)
      : forces(3 * nodes, start), virial(9, start), atom_virial(6 * nodes, start), centroid_virial(9 * nodes, start) {}
  EdgeForceTargets targets() { return {forces.data(), virial.data(), atom_virial.data(), centroid_virial.data()}; }
};

Result run(const Case& c, int threads, double start = 0.0) {
  Result result(c.graph.n_nodes, start);
  accumulate_edge_forces(c.graph.view(), c.gradient.data(), result.targets(), threads);
  return result;
}

void expect_bitwise(const Result& a, const Result& b) {
  EXPECT_EQ(a.forces, b.forces);
  EXPECT_EQ(a.virial, b.virial);
  EXPECT_EQ(a.atom_virial, b.atom_virial);
  EXPECT_EQ(a.centroid_virial, b.centroid_virial);
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-11) << i;
}

TEST(EdgeForces, AreTheDefinition) {
  const Case c = random_case(1, 8, 10, 17, 500);
  Result expected(17, 0.5);
  for (int e = 0; e < 500; ++e) {
    const int i = c.graph.receivers[e], j = c.graph.senders[e];
    double w[3][3];
    for (int a = 0; a < 3; ++a) {
      expected.forces[3 * i + a] += c.gradient[3 * e + a];
      expected.forces[3 * j + a] -= c.gradient[3 * e + a];
      for (int b = 0; b < 3; ++b) {
        w[a][b] = -c.graph.edge_vec[3 * e + a] * c.gradient[3 * e + b];
        expected.virial[3 * a + b] += w[a][b];
      }
    }
    const double symmetric[6] = {
        w[0][0], w[1][1], w[2][2], (w[0][1] + w[1][0]) / 2, (w[0][2] + w[2][0]) / 2, (w[1][2] + w[2][1]) / 2};
    const double centroid[9] = {w[0][0], w[1][1], w[2][2], w[0][1], w[0][2], w[1][2], w[1][0], w[2][0], w[2][1]};
    for (int k = 0; k < 6; ++k) {
      expected.atom_virial[6 * i + k] += symmetric[k] / 2;
      expected.atom_virial[6 * j + k] += symmetric[k] / 2;
    }
    for (int k = 0; k < 9; ++k) expected.centroid_virial[9 * j + k] += centroid[k];
  }
  for (int threads : {1, 3}) {
    const Result got = run(c, threads, 0.5);  // targets are added to
    expect_near(got.forces, expected.forces);
    expect_near(got.virial, expected.virial);
    expect_near(got.atom_virial, expected.atom_virial);
    expect_near(got.centroid_virial, expected.centroid_virial);
  }
}

TEST(EdgeForces, AreBitwiseTheSameForAnyThreadCount) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    const Case c = random_case(seed, 60, 80, 130, 4000);
    const Result one = run(c, 1, 0.1);
    for (int threads : {2, 3, 4, 7}) expect_bitwise(run(c, threads, 0.1), one);
  }
}

TEST(EdgeForces, OneThreadNeedsNoTranspose) {
  Case c = random_case(2, 9, 9, 9, 300);
  const Result with = run(c, 1);
  c.graph.col_ptr.clear();
  expect_bitwise(run(c, 1), with);
  EXPECT_THROW(run(c, 2), Error);
}

TEST(EdgeForces, SumsAgreeWithEachOther) {
  const Case c = random_case(3, 30, 30, 40, 1000);
  const Result r = run(c, 2);
  const int row[9] = {0, 1, 2, 0, 0, 1, 1, 2, 2}, column[9] = {0, 1, 2, 1, 2, 2, 0, 0, 1};
  double force[3] = {}, atom[6] = {}, centroid[9] = {};
  for (int i = 0; i < 40; ++i) {
    for (int d = 0; d < 3; ++d) force[d] += r.forces[3 * i + d];
    for (int k = 0; k < 6; ++k) atom[k] += r.atom_virial[6 * i + k];
    for (int k = 0; k < 9; ++k) centroid[k] += r.centroid_virial[9 * i + k];
  }
  for (double f : force) EXPECT_NEAR(f, 0.0, 1e-11);
  for (int k = 0; k < 6; ++k) {
    EXPECT_NEAR(atom[k], (r.virial[3 * row[k] + column[k]] + r.virial[3 * column[k] + row[k]]) / 2, 1e-11);
  }
  for (int k = 0; k < 9; ++k) EXPECT_NEAR(centroid[k], r.virial[3 * row[k] + column[k]], 1e-11);
}

TEST(EdgeForces, ThePairVirialHasTheRightSign) {
  // Two atoms that repel each other (energy falls with distance) push outwards: positive virial, forces apart.
  Graph graph;
  const int64_t receiver[2] = {0, 1}, sender[2] = {1, 0}, types[2] = {0, 0};
  const double vectors[6] = {2, 0, 0, -2, 0, 0}, gradient[6] = {-1, 0, 0, 1, 0, 0};
  graph.assign(2, 2, 2, 2, receiver, sender, vectors, types, 1);
  double forces[6] = {}, virial[9] = {};
  EdgeForceTargets targets;
  targets.forces = forces;
  targets.virial = virial;
  accumulate_edge_forces(graph.view(), gradient, targets, 1);
  EXPECT_DOUBLE_EQ(forces[0], -2.0);
  EXPECT_DOUBLE_EQ(forces[3], 2.0);
  EXPECT_DOUBLE_EQ(virial[0], 4.0);
}

TEST(EdgeForces, NullTargetsAreSkippedAndEmptyGraphsAreFine) {
  const Case c = random_case(4, 5, 5, 5, 50);
  const Result all = run(c, 2);
  for (int which = 0; which < 4; ++which) {
    Result lone(5, 0.0);
    EdgeForceTargets targets;
    if (which == 0) targets.forces = lone.forces.data();
    if (which == 1) targets.virial = lone.virial.data();
    if (which == 2) targets.atom_virial = lone.atom_virial.data();
    if (which == 3) targets.centroid_virial = lone.centroid_virial.data();
    accumulate_edge_forces(c.graph.view(), c.gradient.data(), targets, 2);
    if (which == 0) {
      EXPECT_EQ(lone.forces, all.forces);
    }
    if (which == 1) {
      EXPECT_EQ(lone.virial, all.virial);
    }
    if (which == 2) {
      EXPECT_EQ(lone.atom_virial, all.atom_virial);
    }
    if (which == 3) {
      EXPECT_EQ(lone.centroid_virial, all.centroid_virial);
    }
  }
  Graph empty;
  empty.assign(0, 0, 0, 0, nullptr, nullptr, nullptr, nullptr, 1);
  double virial[9] = {};
  EdgeForceTargets targets;
  targets.virial = virial;
  accumulate_edge_forces(empty.view(), nullptr, targets, 2);
  for (double v : virial) EXPECT_EQ(v, 0.0);
}

}  // namespace
}  // namespace clebsch
