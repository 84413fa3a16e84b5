// Named outputs and what they belong to: each atom, or the whole system. The files are those of tiny_model.py.
#include <gtest/gtest.h>

#include <functional>

#include "core/errors.h"
#include "model/model.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

std::shared_ptr<Model> load(const std::string& name, const std::string& device = "cpu") {
  LoadOptions options;
  options.threads = 1;
  options.device = device;
  return Model::load(model_path(name), options);
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const std::vector<OutputKind> kKinds{OutputKind::atom, OutputKind::atom, OutputKind::system, OutputKind::system};
const Request kRequest{true, true, false, false, {"features", "moment", "square"}};

class Outputs : public ::testing::TestWithParam<const char*> {};

TEST_P(Outputs, KindsAreDeclaredOrFoundAtLoad) {
  EXPECT_EQ(load(GetParam())->metadata().kinds, kKinds);
  EXPECT_EQ(load(GetParam(), "cpu:padded")->metadata().kinds, kKinds);
}

TEST_P(Outputs, AreWhatTheirKindSays) {
  const auto model = load(GetParam());
  // As many atoms as `moment` has values, one, and others.
  for (const int atoms : {8, 1, 12}) {
    const Graph graph = folded_graph(make_system(atoms, 5.0, 3), kCutoff, model->metadata().layers);
    Result result;
    model->compute(graph.view(), kRequest, result);
    ASSERT_EQ(result.outputs.size(), 3u);
    const auto &features = result.outputs[0], &moment = result.outputs[1], &square = result.outputs[2];
    EXPECT_EQ(features.kind, OutputKind::atom);
    EXPECT_EQ(moment.kind, OutputKind::system);
    EXPECT_EQ(square.kind, OutputKind::system);
    EXPECT_EQ(features.shape, (std::vector<int64_t>{atoms, 8}));
    EXPECT_EQ(moment.shape, (std::vector<int64_t>{8}));
    EXPECT_TRUE(square.shape.empty());
    double expected = 0, first = 0;
    for (int i = 0; i < atoms; ++i) {
      expected += result.atomic_energy[i] * result.atomic_energy[i];
      first += result.atomic_energy[i] * features.values[8 * i];
    }
    EXPECT_NEAR(square.values[0], expected, 1e-10);
    EXPECT_NEAR(moment.values[0], first, 1e-10);
  }
}

TEST_P(Outputs, OfTheSystemAreRefusedWhereRowsAreNotTheSystem) {
  const auto model = load(GetParam());
  const System system = make_system(6, 5.0, 7);
  const GhostGraph ghosts = ghost_graph(system, kCutoff, model->metadata().layers);
  const Graph folded = folded_graph(system, kCutoff, model->metadata().layers);
  Result result, expected;
  const std::string with_ghosts = message([&] { model->compute(ghosts.graph.view(), kRequest, result); });
  EXPECT_NE(with_ghosts.find("output 'moment' is of the whole system"), std::string::npos) << with_ghosts;
  const auto padded = load(GetParam(), "cpu:padded");
  const std::string with_padding = message([&] { padded->compute(folded.view(), kRequest, result); });
  EXPECT_NE(with_padding.find("output 'moment' is of the whole system"), std::string::npos) << with_padding;
  // Per-atom ones are right in both: those of owned atoms come first.
  const Request request{true, true, false, false, {"features"}};
  model->compute(folded.view(), request, expected);
  const auto same = [&](const char* where) {
    ASSERT_GE(result.outputs[0].values.size(), 6u * 8u) << where;
    for (int k = 0; k < 6 * 8; ++k)
      EXPECT_NEAR(result.outputs[0].values[k], expected.outputs[0].values[k], 1e-10) << where << k;
  };
  model->compute(ghosts.graph.view(), request, result);
  same("ghosts");
  padded->compute(folded.view(), request, result);
  same("padding");
  EXPECT_EQ(result.outputs[0].shape, (std::vector<int64_t>{6, 8}));
}

INSTANTIATE_TEST_SUITE_P(Model, Outputs, ::testing::Values("outputs", "outputs_undeclared"));

TEST(OutputKinds, OfFilesThatAreOnlyInspected) {
  EXPECT_EQ(Model::inspect(model_path("outputs")).kinds, kKinds);
  const auto kinds = Model::inspect(model_path("outputs_undeclared")).kinds;
  EXPECT_EQ(kinds,
            (std::vector<OutputKind>{OutputKind::atom, OutputKind::unknown, OutputKind::unknown, OutputKind::unknown}));
  EXPECT_EQ(Model::inspect(model_path("plain")).kinds, std::vector<OutputKind>{OutputKind::atom});
}

TEST(OutputKinds, WrongOnesAreRefusedAtLoad) {
  const std::string declared = message([] { load("outputs_misdeclared"); });
  EXPECT_NE(declared.find("expected output_kinds.moment to be 'system' as its shape says, got 'atom'"),
            std::string::npos)
      << declared;
  const std::string edges = message([] { load("outputs_of_edges"); });
  EXPECT_NE(edges.find("expected output 'neither' to have a row an atom or always the same shape"), std::string::npos)
      << edges;
}

}  // namespace
}  // namespace clebsch::testing
