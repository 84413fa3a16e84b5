// Message passing in several processes with features exchanged between layers, against one process. Processes are
// threads here, each with a model of its own; that of the LAMMPS plugin, by MPI, is tested in tests/lammps.
#include <gtest/gtest.h>

#include <tuple>

#include "core/errors.h"
#include "exchange_support.h"
#include "model_results.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

std::shared_ptr<Model> load(const std::string& name, LoadOptions options = {}) {
  options.dtype = Dtype::float64;
  options.threads = 1;
  return Model::load(model_path(name), options);
}

Request everything() {
  Request request;
  request.atom_virial = request.centroid_virial = true;
  return request;
}

/// Model and device.
class Exchanged : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::shared_ptr<Model> load_here() const {
    LoadOptions options;
    options.device = std::get<1>(GetParam());
    return load(std::get<0>(GetParam()), options);
  }
  /// Of one process, on the CPU.
  std::shared_ptr<Model> reference_ = load(std::get<0>(GetParam()));
  int layers_ = reference_->metadata().layers;

  Result expected(const System& s) const {
    Result result;
    reference_->compute(folded_graph(s, kCutoff, layers_).view(), everything(), result);
    return result;
  }
  /// The rounds of a step.
  std::vector<int> rounds() const {
    std::vector<int> wanted;
    for (int k = 0; k + 1 < layers_; ++k) wanted.push_back(k);
    for (int k = layers_ - 2; k >= 0; --k) wanted.push_back(-1 - k);
    return wanted;
  }
};

std::vector<int> divided(const System& s, int atoms_of_first) {
  std::vector<int> process(s.x.size());
  for (std::size_t i = 0; i < process.size(); ++i) process[i] = static_cast<int>(i) < atoms_of_first ? 0 : 1;
  return process;
}

TEST_P(Exchanged, ProcessesAgreeWithOne) {
  const System s = make_system(20, 5.0, 3);
  const Graph whole = folded_graph(s, kCutoff, layers_);
  const Result reference = expected(s);
  std::vector<std::shared_ptr<Model>> models;
  for (int p = 0; p < 3; ++p) models.push_back(load_here());
  // The third process owns no atom, and the first is alone in the second decomposition. In the third the first has
  // outgrown its buffers, and the second has more than it needs.
  for (const int atoms_of_first : {9, 20, 15}) {
    Board board(3, s.x.size());
    std::vector<Part> parts;
    for (int p = 0; p < 3; ++p) parts.push_back(part_of(whole, divided(s, atoms_of_first), p));
    std::vector<Result> results(3);
    std::vector<std::vector<int>> order(3);
    in_processes(3, board, [&](int p) {
      BoardExchange exchange(board, parts[p].atom, parts[p].owned, p == 0);
      models[p]->compute(parts[p].graph.view(), everything(), results[p], &exchange);
      order[p] = exchange.order;
    });
    Result sum = empty_result(s.x.size());
    for (int p = 0; p < 3; ++p) add(sum, results[p], parts[p].atom, parts[p].owned);
    expect_same(sum, reference);
    for (int p = 0; p < 3; ++p) EXPECT_EQ(order[p], rounds());
  }
}

/// Neighbour lists with a skin: atoms move, a list is replaced by one that does not fit one process's buffers, and no
/// process does a step twice however many edges there are.
TEST_P(Exchanged, ListsAndAtomsThatMove) {
  System s = make_system(24, 5.5, 5);
  std::vector<std::shared_ptr<Model>> models;
  for (int p = 0; p < 2; ++p) models.push_back(load_here());
  for (const int atoms_of_first : {10, 17}) {
    Board board(2, s.x.size());
    std::vector<std::unique_ptr<PartList>> lists;
    for (int p = 0; p < 2; ++p) {
      lists.push_back(std::make_unique<PartList>(s, kCutoff + 1.5, divided(s, atoms_of_first), p));
      models[p]->set_neighbours(lists[p]->view);
    }
    for (int step = 0; step < 4; ++step) {
      std::vector<Result> results(2);
      std::vector<std::vector<int>> order(2);
      std::vector<PointsView> points;
      for (int p = 0; p < 2; ++p) points.push_back(lists[p]->points(s));
      in_processes(2, board, [&](int p) {
        BoardExchange exchange(board, lists[p]->atom, lists[p]->owned, p == 0);
        models[p]->compute(points[p], everything(), results[p], &exchange);
        order[p] = exchange.order;
      });
      Result sum = empty_result(s.x.size());
      for (int p = 0; p < 2; ++p) add(sum, results[p], lists[p]->atom, lists[p]->owned);
      expect_same(sum, expected(s));
      for (int p = 0; p < 2; ++p) EXPECT_EQ(order[p], rounds());
      // The cell shrinks, which brings more edges.
      s.length *= 0.97;
      for (Vec& x : s.x)
        for (double& c : x) c *= 0.97;
      s.x[step][1] += 0.05;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Exchanged,
                         ::testing::Combine(::testing::Values("plain", "parity", "mace", "allegro"),
                                            ::testing::Values("cpu", "cpu:padded")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + (std::get<1>(info.param) == "cpu" ? "Cpu" : "Padded");
                         });

class Nothing : public FeatureExchange {
 public:
  void forward(const FeatureRows& /*rows*/) override {}
  void reverse(const FeatureRows& /*rows*/) override {}
};

class ExchangeAlone : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<Model> load_here(const std::string& name, LoadOptions options = {}) const {
    options.device = GetParam();
    return load(name, options);
  }
};

TEST_P(ExchangeAlone, WidthsAreThoseOfTheLayers) {
  // tests/unit/tiny_model.py: 8x0e + 6x1 + 4x2; tiny_mace.py: 5x0e + 5x1o and the energy so far.
  EXPECT_EQ(load_here("plain")->exchange_widths(), std::vector<int64_t>({8 + 6 * 3 + 4 * 5}));
  EXPECT_EQ(load_here("mace")->exchange_widths(), std::vector<int64_t>({5 + 5 * 3 + 1}));
  EXPECT_TRUE(load_here("allegro")->exchange_widths().empty());
}

TEST_P(ExchangeAlone, EnergiesAloneNeedNoWayBack) {
  const auto model = load_here("plain");
  const Graph graph = folded_graph(make_system(8, 4.5, 5), kCutoff, model->metadata().layers);
  const Request energies{false, false, false, false, {"atomic_energy"}};
  Result alone, whole;
  Nothing exchange;
  model->compute(graph.view(), energies, alone, &exchange);
  model->compute(graph.view(), energies, whole);
  EXPECT_NEAR(alone.energy, whole.energy, 1e-12 * std::abs(whole.energy));
  EXPECT_EQ(alone.outputs[0].values, alone.atomic_energy);
  // Then forces, and energies once more.
  model->compute(graph.view(), {}, whole);
  model->compute(graph.view(), {}, alone, &exchange);
  expect_same(alone, whole);
  model->compute(graph.view(), energies, alone, &exchange);
  EXPECT_NEAR(alone.energy, whole.energy, 1e-12 * std::abs(whole.energy));
}

TEST_P(ExchangeAlone, EnergiesCountFromTheReference) {
  LoadOptions options;
  options.energy = EnergyReference::interaction;
  const auto model = load_here("parity", options);
  const Graph graph = folded_graph(make_system(8, 4.5, 5), kCutoff, model->metadata().layers);
  Result alone, whole;
  Nothing exchange;
  model->compute(graph.view(), {}, alone, &exchange);
  model->compute(graph.view(), {}, whole);
  expect_same(alone, whole);
}

TEST_P(ExchangeAlone, AFailedExchangeFailsTheStep) {
  class Broken : public Nothing {
   public:
    void reverse(const FeatureRows& /*rows*/) override { throw std::runtime_error("the line is dead"); }
  };
  const auto model = load_here("plain");
  const Graph graph = folded_graph(make_system(8, 4.5, 5), kCutoff, model->metadata().layers);
  Result result, again;
  Broken broken;
  try {
    model->compute(graph.view(), {}, result, &broken);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the line is dead"), std::string::npos) << error.what();
  }
  Nothing exchange;
  model->compute(graph.view(), {}, result, &exchange);
  model->compute(graph.view(), {}, again);
  expect_same(result, again);
}

INSTANTIATE_TEST_SUITE_P(Devices, ExchangeAlone, ::testing::Values("cpu", "cpu:padded"),
                         [](const auto& device) { return std::string(device.param == "cpu" ? "Cpu" : "Padded"); });

/// For a caller that makes the graph on the device: counts beside the arrays, results there.
TEST(Exchange, AGraphInReservedArrays) {
  LoadOptions options;
  options.device = "cpu:padded";
  const auto model = load("plain", options);
  const System s = make_system(20, 5.0, 3);
  const Graph whole = folded_graph(s, kCutoff, model->metadata().layers);
  Result reference;
  model->compute(whole.view(), {}, reference);
  Board board(2, s.x.size());
  std::vector<Part> parts;
  std::vector<std::shared_ptr<Model>> models;
  for (int p = 0; p < 2; ++p) {
    parts.push_back(part_of(whole, divided(s, 12), p));
    models.push_back(load("plain", options));
  }
  std::vector<double> forces(3 * s.x.size());
  in_processes(2, board, [&](int p) {
    const GraphView from = parts[p].graph.view();
    fill(parts[p].graph, models[p]->reserve(from.n_rows, from.n_nodes, from.n_edges, nullptr));
    BoardExchange exchange(board, parts[p].atom, parts[p].owned, p == 0);
    Result unused;
    const DeviceResult there = models[p]->compute_reserved(from.n_rows, {}, nullptr, unused, &exchange, from.n_nodes);
    const std::lock_guard<std::mutex> lock(board.mutex());
    for (std::size_t k = 0; k < parts[p].atom.size(); ++k)
      for (int c = 0; c < 3; ++c) forces[3 * parts[p].atom[k] + c] += there.forces[3 * k + c];
  });
  expect_same(forces, reference.forces, "forces");
}

TEST(Exchange, RefusesWhatItCannot) {
  const auto model = load("outputs");
  const System s = make_system(8, 4.5, 5);
  const int layers = model->metadata().layers;
  const Graph folded = folded_graph(s, kCutoff, layers);
  Nothing exchange;
  Result result;
  Request request;
  request.outputs = {"features"};
  EXPECT_THROW(model->compute(folded.view(), request, result, &exchange), Error);
  // Rows of ghosts.
  EXPECT_THROW(model->compute(ghost_graph(s, kCutoff, layers).graph.view(), {}, result, &exchange), Error);
}

}  // namespace
}  // namespace clebsch::testing
