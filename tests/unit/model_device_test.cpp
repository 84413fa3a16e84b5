// The run of a model on a device, through its padded buffers on the CPU: the same results as without them, whatever the
// graphs before it were. What lies in the padding is not a number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/errors.h"
#include "model/model.h"
#include "model_results.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

std::shared_ptr<Model> load(const std::string& name, const std::string& device, bool deterministic = true) {
  LoadOptions options;
  options.dtype = Dtype::float64;
  options.threads = 1;
  options.device = device;
  options.deterministic = deterministic;
  return Model::load(model_path(name), options);
}

Request everything() {
  Request request;
  request.atom_virial = request.centroid_virial = true;
  return request;
}

class PaddedBuffers : public ::testing::TestWithParam<std::string> {};

TEST_P(PaddedBuffers, GraphsThatGrowShrinkAndEmpty) {
  const auto plain = load(GetParam(), "cpu"), padded = load(GetParam(), "cpu:padded");
  EXPECT_EQ(padded->device(), "cpu");
  const int layers = plain->metadata().layers;
  Request request = everything();
  request.outputs = {"atomic_energy"};
  unsigned seed = 1;
  std::vector<int64_t> rooms;
  for (const int atoms : {12, 14, 40, 9, 0, 1, 12, 60}) {
    SCOPED_TRACE(atoms);
    const System system = make_system(atoms, atoms < 20 ? 5.0 : 9.0, ++seed);
    const Graph graph = folded_graph(system, kCutoff, layers);
    Result expected, got;
    plain->compute(graph.view(), request, expected);
    padded->compute(graph.view(), request, got);
    expect_same(got, expected);
    rooms.push_back(padded->last_run().nodes);
  }
  // 14 atoms after 12 grow by 1.3, 40 are another system; a few smaller graphs are padded rather than moved.
  EXPECT_EQ(rooms, (std::vector<int64_t>{12, 19, 40, 40, 40, 40, 40, 78}));
}

TEST_P(PaddedBuffers, LargeSystemsGrowByLittleAtFirst) {
  const auto padded = load(GetParam(), "cpu:padded");
  std::vector<int64_t> rows, edges;
  for (const int more : {0, 1, 700, 2000, 4700, 10000, 19000}) {
    const int atoms = 32000 + more;
    const DeviceGraph arrays = padded->reserve(atoms, std::max(42000, atoms), 100000 + 10 * more, nullptr);
    EXPECT_EQ(arrays.nodes, std::max<int64_t>(42000, arrays.rows));
    rows.push_back(arrays.rows);
    edges.push_back(arrays.edges);
  }
  // By 2, 4, 8, 16, 30 and 30% of what did not fit, edges by 5% at least.
  EXPECT_EQ(rows, (std::vector<int64_t>{32000, 32642, 34008, 34008, 42572, 42572, 66300}));
  EXPECT_EQ(edges, (std::vector<int64_t>{105000, 105000, 112350, 129600, 170520, 260000, 377000}));
}

TEST_P(PaddedBuffers, GhostsAndLayersOfRows) {
  const auto plain = load(GetParam(), "cpu"), padded = load(GetParam(), "cpu:padded");
  const int layers = plain->metadata().layers;
  for (const int atoms : {6, 5, 7}) {
    const GhostGraph ghosts = ghost_graph(make_system(atoms, 5.0, 7), kCutoff, layers);
    Result expected, got;
    plain->compute(ghosts.graph.view(), everything(), expected);
    padded->compute(ghosts.graph.view(), everything(), got);
    expect_same(got, expected);
  }
}

TEST_P(PaddedBuffers, EnergyAloneThenForces) {
  const auto plain = load(GetParam(), "cpu"), padded = load(GetParam(), "cpu:padded", false);
  const Graph graph = folded_graph(make_system(12, 5.0, 3), kCutoff, plain->metadata().layers);
  Result expected, got;
  const Request energy{false, false, false, false, {}};
  plain->compute(graph.view(), energy, expected);
  padded->compute(graph.view(), energy, got);
  expect_same(got, expected);
  plain->compute(graph.view(), {}, expected);
  padded->compute(graph.view(), {}, got);
  expect_same(got, expected);
  EXPECT_GT(padded->time_device(2), 0.0);
}

TEST_P(PaddedBuffers, ManySmallGraphsGiveTheMemoryBack) {
  const auto padded = load(GetParam(), "cpu:padded");
  const int layers = padded->metadata().layers;
  Result result;
  padded->compute(folded_graph(make_system(60, 9.0, 3), kCutoff, layers).view(), {}, result);
  EXPECT_EQ(padded->last_run().nodes, 60);
  for (int step = 0; step < 10; ++step) {
    padded->compute(folded_graph(make_system(4, 5.0, 3), kCutoff, layers).view(), {}, result);
  }
  EXPECT_EQ(padded->last_run().nodes, 4);
}

TEST_P(PaddedBuffers, AGraphMadeInReservedArrays) {
  const auto plain = load(GetParam(), "cpu"), padded = load(GetParam(), "cpu:padded");
  const int layers = plain->metadata().layers;
  Request request = everything();
  request.outputs = {"atomic_energy"};
  const auto compare = [&](const Graph& graph) {
    const GraphView view = graph.view();
    const int64_t edges = view.row_ptr[view.n_rows];
    const DeviceGraph arrays = padded->reserve(view.n_rows, view.n_nodes, edges, nullptr);
    ASSERT_GE(arrays.rows, view.n_rows);
    ASSERT_GE(arrays.nodes, view.n_nodes);
    ASSERT_GE(arrays.edges, edges);
    fill(graph, arrays);
    Result expected, got;
    plain->compute(view, request, expected);
    const DeviceResult there = padded->compute_reserved(view.n_rows, request, nullptr, got);
    const std::size_t nodes = view.n_nodes;
    got.atomic_energy.assign(there.atomic_energy, there.atomic_energy + view.n_local);
    got.energy = 0;
    for (const double energy : got.atomic_energy) got.energy += energy;
    got.forces.assign(there.forces, there.forces + 3 * nodes);
    std::copy_n(there.virial, 9, got.virial);
    got.atom_virial.assign(there.atom_virial, there.atom_virial + 6 * nodes);
    got.centroid_virial.assign(there.centroid_virial, there.centroid_virial + 9 * nodes);
    expect_same(got, expected);
  };
  unsigned seed = 1;
  for (const int atoms : {12, 14, 40, 9, 1}) {
    SCOPED_TRACE(atoms);
    compare(folded_graph(make_system(atoms, atoms < 20 ? 5.0 : 9.0, ++seed), kCutoff, layers));
  }
  compare(ghost_graph(make_system(5, 5.0, 7), kCutoff, layers).graph);
  // The same addresses as long as graphs fit, and uploads in between do no harm.
  const Graph other = folded_graph(make_system(12, 5.0, 3), kCutoff, layers);
  compare(other);
  const DeviceGraph before = padded->reserve(12, 12, 10, nullptr);
  Result result;
  padded->compute(other.view(), {}, result);
  EXPECT_EQ(padded->reserve(11, 12, 20, nullptr).edge_vec, before.edge_vec);
  compare(other);
  // What was not asked for is not there.
  const DeviceResult energy = padded->compute_reserved(12, Request{false, false, false, false, {}}, nullptr, result);
  EXPECT_NE(energy.atomic_energy, nullptr);
  EXPECT_EQ(energy.forces, nullptr);
  EXPECT_EQ(energy.atom_virial, nullptr);
  EXPECT_THROW(plain->reserve(1, 1, 1, nullptr), Error);
}

/// Grades with a step that names them, behind a step that was told of them, and when they are read unannounced: the
/// same, whatever the graphs before it were.
TEST(Grades, StartedWithTheStepAndReadAfterIt) {
  for (const char* name : {"graded", "graded_by_element"}) {
    SCOPED_TRACE(name);
    const auto plain = load(name, "cpu"), padded = load(name, "cpu:padded");
    const int layers = plain->metadata().layers;
    const auto grades = [](Model& model) {
      Result::Named named;
      model.extrapolation(named);
      const GradesView there = model.grades();
      EXPECT_EQ(std::vector<double>(there.values, there.values + there.count), named.values) << "not copied";
      return named.values;
    };
    unsigned seed = 1;
    for (const int atoms : {12, 40, 9, 1, 0}) {
      SCOPED_TRACE(atoms);
      const Graph graph = folded_graph(make_system(atoms, atoms < 20 ? 5.0 : 9.0, ++seed), kCutoff, layers);
      Request named, kept;
      named.outputs = {"extrapolation"};
      kept.keep_features = true;
      Result result;
      plain->compute(graph.view(), named, result);
      const std::vector<double> expected = result.outputs.at(0).values;
      ASSERT_EQ(expected.size(), static_cast<std::size_t>(atoms));
      for (Model* model : {plain.get(), padded.get()}) {
        for (const bool start : {false, true}) {
          kept.start_grades = start;
          model->compute(graph.view(), kept, result);
          EXPECT_EQ(grades(*model), expected);
          EXPECT_EQ(grades(*model), expected) << "read again";
          model->compute(graph.view(), named, result);
          EXPECT_EQ(result.outputs.at(0).values, expected);
          EXPECT_EQ(grades(*model), expected) << "of a step that named them";
          model->compute(graph.view(), {}, result);
          EXPECT_THROW(grades(*model), Error);
        }
      }
      for (const bool start : {false, true}) {
        kept.start_grades = start;
        const GraphView view = graph.view();
        fill(graph, padded->reserve(view.n_rows, view.n_nodes, view.row_ptr[view.n_rows], nullptr));
        padded->compute_reserved(view.n_rows, kept, nullptr, result);
        EXPECT_EQ(grades(*padded), expected);
        padded->compute_reserved(view.n_rows, named, nullptr, result);
        EXPECT_EQ(result.outputs.at(0).values, expected);
      }
    }
  }
}

TEST_P(PaddedBuffers, IndicesOfAReservedGraphAreLookedAtWhenAskedFor) {
  const auto model = load(GetParam(), "cpu:padded");
  const Graph graph = folded_graph(make_system(12, 5.0, 3), kCutoff, model->metadata().layers);
  const GraphView view = graph.view();
  const DeviceGraph arrays = model->reserve(view.n_rows, view.n_nodes, view.row_ptr[view.n_rows], nullptr);
  setenv("CLEBSCH_CUDA_CHECK", "1", 1);
  Result result;
  const auto refusal = [&](int32_t* entry, int32_t value) {
    fill(graph, arrays);
    *entry = value;
    try {
      model->compute_reserved(view.n_rows, {}, nullptr, result);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](int32_t* entry, int32_t value, const char* words) {
    const std::string said = refusal(entry, value);
    EXPECT_TRUE(said.find("compute_reserved") != std::string::npos && said.find(words) != std::string::npos) << said;
  };
  expect(arrays.senders + 3, arrays.nodes, "senders[3]");
  expect(arrays.types + 5, 7, "types[5]");
  expect(arrays.types + 5, -1, "types[5]");
  expect(arrays.row_ptr + 2, 1 << 30, "row_ptr");
  expect(arrays.col_edge, -2, "col_edge[0]");
  expect(arrays.layer_rows, arrays.nodes + 1, "layer_rows[0]");
  EXPECT_EQ(refusal(arrays.n_local, view.n_local), "");
  unsetenv("CLEBSCH_CUDA_CHECK");
}

INSTANTIATE_TEST_SUITE_P(Models, PaddedBuffers, ::testing::Values("plain", "parity"));

TEST(Device, UnknownOnesAreRefused) {
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "CPU", "", "cudax"}) {
    try {
      load("plain", name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("expected auto, cpu, cuda or cuda:N"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Device, WithoutAGpuAnErrorSaysWhyAndAutoIsTheCpu) {
  const VisibleGpus gpus = visible_gpus();
  if (!gpus.ids.empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(gpus.broken);
  EXPECT_NE(gpus.problem.find("device cuda: "), std::string::npos) << gpus.problem;
  EXPECT_EQ(load("plain", "auto")->device(), "cpu");
  try {
    load("plain", "cuda");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("device cpu"), std::string::npos) << error.what();
  }
}

TEST(Device, WhatAGpuCannotRunIsNamedAndAutoIsTheCpu) {
  LoadOptions options;
  options.radial = RadialMode::exact;
  for (const char* name : {"mace", "allegro"}) {
    options.device = "auto";
    EXPECT_EQ(Model::load(model_path(name), options)->device(), "cpu");
    options.device = "cuda";
    try {
      Model::load(model_path(name), options);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("from tables alone (radial table)"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace clebsch::testing
