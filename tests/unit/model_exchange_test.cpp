// Message passing in several processes with features exchanged between layers, against one process. Processes are
// threads here, each with a model of its own; that of the LAMMPS plugin, by MPI, is tested in tests/lammps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/errors.h"
#include "model/feature_exchange.h"
#include "model_results.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

/// The part of a folded graph that one process has: its atoms' rows, and a node for every atom of others that sends.
struct Part {
  Graph graph;
  std::vector<int> atom;  ///< of each node
  int owned = 0;
};

Part part_of(const Graph& whole, const std::vector<int>& process, int me) {
  Part part;
  std::vector<int> node(process.size(), -1);
  const auto take = [&](int atom) {
    if (node[atom] >= 0) return;
    node[atom] = static_cast<int>(part.atom.size());
    part.atom.push_back(atom);
  };
  for (std::size_t i = 0; i < process.size(); ++i) {
    if (process[i] == me) take(static_cast<int>(i));
  }
  part.owned = static_cast<int>(part.atom.size());
  Edges edges;
  for (int row = 0; row < part.owned; ++row) {
    const int i = part.atom[row];
    for (int e = whole.row_ptr[i]; e < whole.row_ptr[i + 1]; ++e) {
      take(whole.senders[e]);
      const double* v = &whole.edge_vec[3 * static_cast<std::size_t>(e)];
      edges.add(row, node[whole.senders[e]], {v[0], v[1], v[2]});
    }
  }
  std::vector<int64_t> types;
  for (const int atom : part.atom) types.push_back(whole.types[atom]);
  part.graph.assign(part.owned, part.owned, static_cast<int>(part.atom.size()),
                    static_cast<int64_t>(edges.receiver.size()), edges.receiver.data(), edges.sender.data(),
                    edges.vec.data(), types.data(), static_cast<int>(whole.layer_rows.size()));
  return part;
}

/// Rows of all atoms in one array, through which threads exchange; every call waits for all of them.
class Board {
 public:
  Board(int processes, std::size_t atoms) : processes_(processes), atoms_(atoms) {}

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int turn = turn_;
    if (++waiting_ == processes_) {
      waiting_ = 0;
      ++turn_;
      moved_.notify_all();
    } else {
      moved_.wait(lock, [&] { return turn_ != turn; });
    }
  }
  double* row(int atom, int64_t width) { return &values_[static_cast<std::size_t>(atom) * width]; }
  /// By one process, between two wait().
  void clear(int64_t width) { values_.assign(atoms_ * width, 0.0); }
  std::mutex& mutex() { return mutex_; }

 private:
  int processes_, waiting_ = 0, turn_ = 0;
  std::size_t atoms_;
  std::vector<double> values_;
  std::mutex mutex_;
  std::condition_variable moved_;
};

class BoardExchange : public FeatureExchange {
 public:
  BoardExchange(Board& board, const Part& part, bool first) : board_(board), part_(part), first_(first) {}

  void forward(const FeatureRows& rows) override {
    EXPECT_EQ(rows.dtype, Dtype::float64);
    EXPECT_EQ(rows.nodes, static_cast<int64_t>(part_.atom.size()));
    order.push_back(rows.round);
    start(rows.width);
    double* const data = static_cast<double*>(rows.data);
    for (int k = 0; k < part_.owned; ++k)
      std::copy_n(data + k * rows.width, rows.width, board_.row(part_.atom[k], rows.width));
    board_.wait();
    for (int k = part_.owned; k < rows.nodes; ++k)
      std::copy_n(board_.row(part_.atom[k], rows.width), rows.width, data + k * rows.width);
    board_.wait();
  }

  void reverse(const FeatureRows& rows) override {
    order.push_back(-1 - rows.round);
    start(rows.width);
    double* const data = static_cast<double*>(rows.data);
    {
      const std::lock_guard<std::mutex> lock(board_.mutex());
      for (int k = part_.owned; k < rows.nodes; ++k)
        for (int64_t c = 0; c < rows.width; ++c) board_.row(part_.atom[k], rows.width)[c] += data[k * rows.width + c];
    }
    // What is left here must not be read.
    std::fill(data + part_.owned * rows.width, data + rows.nodes * rows.width, 1e30);
    board_.wait();
    for (int k = 0; k < part_.owned; ++k)
      for (int64_t c = 0; c < rows.width; ++c) data[k * rows.width + c] += board_.row(part_.atom[k], rows.width)[c];
    board_.wait();
  }

  std::vector<int> order;  ///< round, or -1 - round on the way back

 private:
  void start(int64_t width) {
    board_.wait();
    if (first_) board_.clear(width);
    board_.wait();
  }

  Board& board_;
  const Part& part_;
  bool first_;
};

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

class Exchanged : public ::testing::TestWithParam<std::string> {};

TEST_P(Exchanged, ProcessesAgreeWithOne) {
  const auto model = load(GetParam());
  const int layers = model->metadata().layers;
  const System s = make_system(20, 5.0, 3);
  const Graph whole = folded_graph(s, kCutoff, layers);
  Result reference;
  model->compute(whole.view(), everything(), reference);

  // The third process owns no atom, and the first is alone in the second decomposition.
  for (const int atoms_of_first : {9, 20}) {
    std::vector<int> process(s.x.size());
    for (std::size_t i = 0; i < process.size(); ++i) process[i] = static_cast<int>(i) < atoms_of_first ? 0 : 1;
    Board board(3, s.x.size());
    std::vector<Part> parts;
    for (int p = 0; p < 3; ++p) parts.push_back(part_of(whole, process, p));
    std::vector<Result> results(3);
    std::vector<std::vector<int>> order(3);
    std::vector<std::shared_ptr<Model>> models;
    for (int p = 0; p < 3; ++p) models.push_back(load(GetParam()));
    std::vector<std::thread> threads;
    for (int p = 0; p < 3; ++p) {
      threads.emplace_back([&, p] {
        BoardExchange exchange(board, parts[p], p == 0);
        models[p]->compute(parts[p].graph.view(), everything(), results[p], &exchange);
        order[p] = exchange.order;
      });
    }
    for (auto& thread : threads) thread.join();

    Result sum;
    const std::size_t atoms = s.x.size();
    sum.atomic_energy.resize(atoms);
    sum.forces.resize(3 * atoms);
    sum.atom_virial.resize(6 * atoms);
    sum.centroid_virial.resize(9 * atoms);
    for (int p = 0; p < 3; ++p) {
      sum.energy += results[p].energy;
      for (int c = 0; c < 9; ++c) sum.virial[c] += results[p].virial[c];
      for (std::size_t k = 0; k < parts[p].atom.size(); ++k) {
        const std::size_t i = parts[p].atom[k];
        if (static_cast<int>(k) < parts[p].owned) sum.atomic_energy[i] = results[p].atomic_energy[k];
        for (int c = 0; c < 3; ++c) sum.forces[3 * i + c] += results[p].forces[3 * k + c];
        for (int c = 0; c < 6; ++c) sum.atom_virial[6 * i + c] += results[p].atom_virial[6 * k + c];
        for (int c = 0; c < 9; ++c) sum.centroid_virial[9 * i + c] += results[p].centroid_virial[9 * k + c];
      }
    }
    expect_same(sum, reference);
    std::vector<int> wanted;
    for (int k = 0; k + 1 < layers; ++k) wanted.push_back(k);
    for (int k = layers - 2; k >= 0; --k) wanted.push_back(-1 - k);
    for (int p = 0; p < 3; ++p) EXPECT_EQ(order[p], wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Exchanged, ::testing::Values("plain", "parity", "mace", "allegro"),
                         [](const auto& info) { return info.param; });

class Nothing : public FeatureExchange {
 public:
  void forward(const FeatureRows& /*rows*/) override {}
  void reverse(const FeatureRows& /*rows*/) override {}
};

TEST(Exchange, WidthsAreThoseOfTheLayers) {
  // tests/unit/tiny_model.py: 8x0e + 6x1 + 4x2; tiny_mace.py: 5x0e + 5x1o and the energy so far.
  EXPECT_EQ(load("plain")->exchange_widths(), std::vector<int64_t>({8 + 6 * 3 + 4 * 5}));
  EXPECT_EQ(load("mace")->exchange_widths(), std::vector<int64_t>({5 + 5 * 3 + 1}));
  EXPECT_TRUE(load("allegro")->exchange_widths().empty());
}

TEST(Exchange, EnergiesAloneNeedNoWayBack) {
  const auto model = load("plain");
  const Graph graph = folded_graph(make_system(8, 4.5, 5), kCutoff, model->metadata().layers);
  const Request energies{false, false, false, false, {"atomic_energy"}};
  Result alone, whole;
  Nothing exchange;
  model->compute(graph.view(), energies, alone, &exchange);
  model->compute(graph.view(), energies, whole);
  EXPECT_NEAR(alone.energy, whole.energy, 1e-12 * std::abs(whole.energy));
  EXPECT_EQ(alone.outputs[0].values, alone.atomic_energy);
}

TEST(Exchange, EnergiesCountFromTheReference) {
  LoadOptions options;
  options.energy = EnergyReference::interaction;
  const auto model = load("parity", options);
  const Graph graph = folded_graph(make_system(8, 4.5, 5), kCutoff, model->metadata().layers);
  Result alone, whole;
  Nothing exchange;
  model->compute(graph.view(), {}, alone, &exchange);
  model->compute(graph.view(), {}, whole);
  expect_same(alone, whole);
}

TEST(Exchange, AFailedExchangeFailsTheStep) {
  class Broken : public Nothing {
   public:
    void reverse(const FeatureRows& /*rows*/) override { throw std::runtime_error("the line is dead"); }
  };
  const auto model = load("plain");
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
  LoadOptions padded;
  padded.device = "cpu:padded";
  EXPECT_THROW(load("plain", padded)->compute(folded.view(), {}, result, &exchange), Error);
}

}  // namespace
}  // namespace clebsch::testing
