// The model runtime: energies, forces and virials of a small random model on small periodic systems.
#include <gtest/gtest.h>
#include <omp.h>

#include <ctime>
#include <functional>
#include <limits>

#include "core/errors.h"
#include "model/model.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

std::shared_ptr<Model> load(const std::string& name, Dtype dtype, RadialMode radial = RadialMode::table,
                            int threads = 1) {
  LoadOptions options;
  options.dtype = dtype;
  options.radial = radial;
  options.threads = threads;
  return Model::load(model_path(name), options);
}

Request everything() {
  Request request;
  request.atom_virial = request.centroid_virial = true;
  return request;
}

double rms(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum / static_cast<double>(v.size()));
}

double rms_difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> d(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) d[i] = a[i] - b[i];
  return rms(d);
}

class EveryModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryModel, ForcesAreMinusTheGradientOfTheEnergy) {
  for (const RadialMode radial : {RadialMode::table, RadialMode::exact}) {
    const auto model = load(GetParam(), Dtype::float64, radial);
    const int layers = model->metadata().layers;
    System s = make_system(12, 5.0, 3);
    Result result;
    model->compute(folded_graph(s, kCutoff, layers).view(), {}, result);
    for (const int atom : {0, 5}) {
      for (int d = 0; d < 3; ++d) {
        const double h = 1e-4, x = s.x[atom][d];
        Result up, down;
        const Request energy{false, false, false, false, {}};
        s.x[atom][d] = x + h;
        model->compute(folded_graph(s, kCutoff, layers).view(), energy, up);
        s.x[atom][d] = x - h;
        model->compute(folded_graph(s, kCutoff, layers).view(), energy, down);
        s.x[atom][d] = x;
        EXPECT_NEAR(-(up.energy - down.energy) / (2 * h), result.forces[3 * atom + d], 2e-6 * rms(result.forces));
      }
    }
  }
}

TEST_P(EveryModel, VirialIsMinusTheStrainDerivative) {
  const auto model = load(GetParam(), Dtype::float64);
  Graph graph = folded_graph(make_system(12, 5.0, 4), kCutoff, model->metadata().layers);
  Result result, up, down;
  model->compute(graph.view(), {}, result);
  const std::vector<double> vectors = graph.edge_vec;
  auto strained = [&](int a, int b, double e, Result& out) {
    for (std::size_t k = 0; k < vectors.size(); k += 3) graph.edge_vec[k + a] = vectors[k + a] + e * vectors[k + b];
    model->compute(graph.view(), {}, out);
    graph.edge_vec = vectors;
  };
  double scale = 0;
  for (const double v : result.virial) scale = std::max(scale, std::abs(v));
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      // dE/d strain_ab = sum g_a v_b, and virial[a][b] = -sum v_a g_b.
      strained(a, b, 1e-5, up);
      strained(a, b, -1e-5, down);
      EXPECT_NEAR(-(up.energy - down.energy) / 2e-5, result.virial[3 * b + a], 1e-6 * scale);
    }
  }
}

TEST_P(EveryModel, PerAtomVirialsSumToTheVirial) {
  const auto model = load(GetParam(), Dtype::float64);
  Result r;
  model->compute(folded_graph(make_system(20, 6.0, 5), kCutoff, model->metadata().layers).view(), everything(), r);
  const int place[9] = {0, 3, 4, 3, 1, 5, 4, 5, 2}, centroid[9] = {0, 3, 4, 6, 1, 5, 7, 8, 2};
  for (int k = 0; k < 9; ++k) {
    double symmetric = 0, full = 0;
    for (int i = 0; i < 20; ++i) {
      symmetric += r.atom_virial[6 * i + place[k]];
      full += r.centroid_virial[9 * i + centroid[k]];
    }
    const double transposed = r.virial[3 * (k % 3) + k / 3];
    EXPECT_NEAR(symmetric, 0.5 * (r.virial[k] + transposed), 1e-9);
    EXPECT_NEAR(full, r.virial[k], 1e-9);
  }
}

TEST_P(EveryModel, TablesAndFloat32AgreeWithTheExactNetwork) {
  const Graph graph =
      folded_graph(make_system(30, 7.0, 6), kCutoff, load(GetParam(), Dtype::float64)->metadata().layers);
  Result exact, table, single;
  load(GetParam(), Dtype::float64, RadialMode::exact)->compute(graph.view(), {}, exact);
  load(GetParam(), Dtype::float64)->compute(graph.view(), {}, table);
  load(GetParam(), Dtype::float32)->compute(graph.view(), {}, single);
  EXPECT_LT(rms_difference(table.forces, exact.forces), 1e-6 * rms(exact.forces));
  EXPECT_LT(rms_difference(single.forces, exact.forces), 1e-5 * rms(exact.forces));
  EXPECT_NEAR(table.energy, exact.energy, 30 * 1e-6);
  EXPECT_NEAR(single.energy, exact.energy, 30 * 1e-5);
}

TEST_P(EveryModel, InteractionEnergiesAreThoseWithoutIsolatedAtoms) {
  const System s = make_system(12, 5.0, 4);
  for (const char* device : {"cpu", "cpu:padded"}) {
    LoadOptions options;
    options.dtype = Dtype::float64;
    options.device = device;
    const auto total = Model::load(model_path(GetParam()), options);
    options.energy = EnergyReference::interaction;
    const auto model = Model::load(model_path(GetParam()), options);
    const std::vector<double>& isolated = model->isolated_energies();
    ASSERT_EQ(isolated.size(), model->metadata().type_names.size());
    EXPECT_EQ(isolated, total->isolated_energies());
    const Graph graph = folded_graph(s, kCutoff, model->metadata().layers);
    Result expected, result;
    total->compute(graph.view(), everything(), expected);
    model->compute(graph.view(), everything(), result);
    double sum = 0;
    for (int i = 0; i < graph.n_local; ++i) {
      const double reference = isolated[graph.types[i]];
      EXPECT_NEAR(result.atomic_energy[i], expected.atomic_energy[i] - reference, 1e-12);
      sum += reference;
    }
    EXPECT_NEAR(result.energy, expected.energy - sum, 1e-11);
    EXPECT_EQ(result.forces, expected.forces);
    EXPECT_EQ(result.centroid_virial, expected.centroid_virial);
  }
}

TEST_P(EveryModel, GhostsGiveWhatFoldingGives) {
  const auto model = load(GetParam(), Dtype::float64);
  const int layers = model->metadata().layers, n = 10;
  const System s = make_system(n, 5.5, 7);
  Result folded, ghost;
  const Graph a = folded_graph(s, kCutoff, layers);
  const GhostGraph b = ghost_graph(s, kCutoff, layers);
  ASSERT_LT(b.graph.n_local, b.graph.n_rows);
  ASSERT_LT(b.graph.n_rows, b.graph.n_nodes);
  model->compute(a.view(), everything(), folded);
  model->compute(b.graph.view(), everything(), ghost);
  EXPECT_NEAR(folded.energy, ghost.energy, 1e-10 * std::abs(folded.energy));
  ASSERT_EQ(ghost.atomic_energy.size(), static_cast<std::size_t>(n));
  std::vector<double> forces(3 * n), virials(6 * n);
  for (std::size_t i = 0; i < b.owner.size(); ++i) {
    for (int d = 0; d < 3; ++d) forces[3 * b.owner[i] + d] += ghost.forces[3 * i + d];
    for (int d = 0; d < 6; ++d) virials[6 * b.owner[i] + d] += ghost.atom_virial[6 * i + d];
  }
  for (int i = 0; i < n; ++i) EXPECT_NEAR(folded.atomic_energy[i], ghost.atomic_energy[i], 1e-10);
  for (int k = 0; k < 3 * n; ++k) EXPECT_NEAR(folded.forces[k], forces[k], 1e-10 * rms(folded.forces));
  for (int k = 0; k < 6 * n; ++k) EXPECT_NEAR(folded.atom_virial[k], virials[k], 1e-10 * rms(folded.atom_virial));
  for (int k = 0; k < 9; ++k) EXPECT_NEAR(folded.virial[k], ghost.virial[k], 1e-9 * rms(folded.forces));
}

TEST_P(EveryModel, ThreadsDoNotChangeABitOfTheForces) {
  const auto model = load(GetParam(), Dtype::float32);
  const Graph graph = folded_graph(make_system(40, 8.0, 8), kCutoff, model->metadata().layers);
  Result one, some;
  model->compute(graph.view(), everything(), one);
  const int before = omp_get_max_threads();
  for (const int threads : {2, 3}) {
    model->set_threads(threads);
    model->compute(graph.view(), everything(), some);
    EXPECT_EQ(one.forces, some.forces);
  }
  EXPECT_EQ(omp_get_max_threads(), before) << "a call must leave the process's thread count as it was";
}

TEST_P(EveryModel, TheTransposeIsBuiltWhenItIsMissing) {
  const auto model = load(GetParam(), Dtype::float64);
  const Graph graph = folded_graph(make_system(9, 5.0, 9), kCutoff, model->metadata().layers);
  GraphView bare = graph.view();
  bare.col_ptr = bare.col_edge = bare.receivers = nullptr;
  bare.layer_rows = nullptr;
  bare.n_layers = 0;
  Result a, b;
  model->compute(graph.view(), {}, a);
  model->compute(bare, {}, b);
  EXPECT_EQ(a.forces, b.forces);
}

INSTANTIATE_TEST_SUITE_P(Model, EveryModel, ::testing::Values("plain", "parity"));

TEST(ModelCompute, EmptyAndIsolated) {
  const auto model = load("plain", Dtype::float32);
  const int layers = model->metadata().layers;
  Graph none, pair;
  none.assign(0, 0, 0, 0, nullptr, nullptr, nullptr, nullptr, layers);
  Result result;
  model->compute(none.view(), everything(), result);
  EXPECT_EQ(result.energy, 0.0);
  EXPECT_TRUE(result.forces.empty());
  const int64_t types[2] = {0, 1};
  pair.assign(2, 2, 2, 0, nullptr, nullptr, nullptr, types, layers);
  model->compute(pair.view(), everything(), result);
  EXPECT_EQ(result.forces, std::vector<double>(6, 0.0));
  EXPECT_NEAR(result.energy, -2.5, 1e-12);  // the shifts of tiny_model.py: no neighbours, no features
  for (const double v : result.virial) EXPECT_EQ(v, 0.0);
}

TEST(ModelCompute, OnlyWhatWasAskedFor) {
  const auto model = load("plain", Dtype::float32);
  const Graph graph = folded_graph(make_system(6, 5.0, 2), kCutoff, model->metadata().layers);
  Result result;
  model->compute(graph.view(), {false, false, false, false, {"atomic_energy"}}, result);
  EXPECT_TRUE(result.forces.empty() && result.atom_virial.empty() && result.centroid_virial.empty());
  ASSERT_EQ(result.outputs.size(), 1u);
  EXPECT_EQ(result.outputs[0].values, result.atomic_energy);
  EXPECT_THROW(model->compute(graph.view(), {false, false, false, false, {"charge"}}, result), Error);
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelCompute, BadInputIsNamed) {
  const auto model = load("plain", Dtype::float32);
  Graph graph = folded_graph(make_system(6, 5.0, 2), kCutoff, model->metadata().layers);
  Result result;
  auto say = [&](const GraphView& view) { return message([&] { model->compute(view, {}, result); }); };
  const std::vector<double> vectors = graph.edge_vec;
  graph.edge_vec[4] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(say(graph.view()).find("finite edge vectors, got nan at edge 1"), std::string::npos) << say(graph.view());
  graph.edge_vec = vectors;
  std::fill_n(graph.edge_vec.begin(), 3, 0.0);
  EXPECT_NE(say(graph.view()).find("energy of row 0"), std::string::npos) << say(graph.view());
  graph.edge_vec = vectors;
  graph.types[3] = 2;
  EXPECT_NE(say(graph.view()).find("a type of 0 to 1, got 2"), std::string::npos) << say(graph.view());
  graph.types[3] = 0;
  graph.senders[0] = 99;
  EXPECT_NE(say(graph.view()).find("sender"), std::string::npos);
  graph.senders[0] = 0;
  GraphView other = graph.view();
  other.n_layers = 1;
  EXPECT_NE(say(other).find("layer_rows of 2 layers, got 1"), std::string::npos) << say(other);
}

TEST(ModelCompute, OptionsAreHonoured) {
  LoadOptions options;
  options.types_in_use = {"O"};
  options.table_pieces = 32;
  const auto model = Model::load(model_path("plain"), options);
  EXPECT_EQ(model->dtype(), Dtype::float32);
  const auto tables = model->tables();
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].tables, 1);  // O-O alone
  EXPECT_EQ(tables[0].pieces, 32);
  EXPECT_GT(tables[0].value_error, 0.0);
  EXPECT_LT(tables[0].value_error, 1e-4);
  Result result;
  const Graph graph = folded_graph(make_system(6, 5.0, 2), kCutoff, 2);
  EXPECT_NE(message([&] { model->compute(graph.view(), {}, result); }).find("has type H"), std::string::npos);
  options.types_in_use = {"Xx"};
  EXPECT_NE(message([&] { Model::load(model_path("plain"), options); }).find("got 'Xx'"), std::string::npos);
}

TEST(ModelCompute, ASmallBudgetGivesFewerPiecesOrTheRemedy) {
  LoadOptions options;
  const std::size_t full = [&] {
    std::size_t bytes = 0;
    for (const auto& t : Model::load(model_path("plain"), options)->tables()) bytes += t.bytes;
    return bytes;
  }();
  options.table_budget_bytes = full / 3;
  std::size_t bytes = 0;
  for (const auto& t : Model::load(model_path("plain"), options)->tables()) {
    bytes += t.bytes;
    EXPECT_LT(t.pieces, 40);
  }
  EXPECT_LE(bytes, full / 3);
  options.table_budget_bytes = full / 100;
  EXPECT_NE(message([&] { Model::load(model_path("plain"), options); }).find("radial exact"), std::string::npos);
}

TEST(ModelCompute, PairsOfOneCutoffShareATable) {
  const auto model = load("plain", Dtype::float32);  // cutoffs 4.0 3.6 / 3.5 3.2
  EXPECT_EQ(model->tables()[0].tables, 4);
  EXPECT_EQ(load("uniform", Dtype::float32)->tables()[0].tables, 1);
}

// Not under sanitizers: their bookkeeping makes single steps slow, which says nothing about ours.
#ifndef __SANITIZE_ADDRESS__
/// Processor time of this process in seconds: other work on the machine does not count.
double processor_time() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(ModelCompute, NoStepIsSlowWhenShapesChange) {
  std::vector<Graph> graphs;
  std::vector<double> times(50, INFINITY);  // per edge
  // Three models see every shape for the first time; another process' noise does not strike the same shape thrice.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto model = load("plain", Dtype::float32);
    for (int k = static_cast<int>(graphs.size()); k < 50; ++k) {
      graphs.push_back(folded_graph(make_system(60 + k, 9.0, 20 + k), kCutoff, model->metadata().layers));
    }
    Result result;
    model->compute(graphs[0].view(), {}, result);
    for (size_t k = 0; k < graphs.size(); ++k) {
      const double begin = processor_time();
      model->compute(graphs[k].view(), {}, result);
      times[k] = std::min(times[k], (processor_time() - begin) / static_cast<double>(graphs[k].senders.size()));
    }
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times.back(), 2 * times[25]) << "slowest step against the median";
}
#endif

TEST(ModelCompute, BlasIsTorchsOwn) { EXPECT_EQ(check_blas(), ""); }

TEST(ModelCompute, Versions) {
  EXPECT_STREQ(torch_version(), CLEBSCH_TORCH_VERSION);
  EXPECT_FALSE(std::string(version()).empty());
}

}  // namespace
}  // namespace clebsch::testing
