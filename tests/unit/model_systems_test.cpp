// Systems as one graph: each one's results as when it is alone, on the CPU and through a device's buffers.
#include <gtest/gtest.h>

#include "core/errors.h"
#include "model/model.h"
#include "model_results.h"
#include "model_support.h"
#include "systems_support.h"

namespace clebsch::testing {
namespace {

class OfSystems : public ::testing::TestWithParam<std::string> {
 protected:
  OfSystems() {
    LoadOptions options;
    options.dtype = Dtype::float64;
    options.threads = 1;
    plain_ = Model::load(model_path("plain"), options);
    options.device = GetParam();
    model_ = Model::load(model_path("plain"), options);
  }
  /// Every system of `systems` beside the same one alone.
  void expect_as_alone(const Systems& systems, bool wants_virials) {
    Request request;
    request.system_virials = wants_virials;
    Result together;
    model_->compute(systems.view(), {}, request, together);
    ASSERT_EQ(together.system_energies.size(), systems.starts.size() - 1);
    for (std::size_t s = 0; s + 1 < systems.starts.size(); ++s) {
      SCOPED_TRACE(s);
      const int32_t from = systems.starts[s], to = systems.starts[s + 1], starts[2] = {0, to - from};
      SystemsView one = systems.view();
      one.count = 1;
      one.atoms = to - from;
      one.starts = starts;
      one.types += from;
      one.positions += 3 * from;
      one.cells += 9 * s;
      one.periodic += 3 * s;
      Result alone;
      plain_->compute(one, {}, request, alone);
      EXPECT_NEAR(together.system_energies[s], alone.energy, 1e-11 * std::max(1.0, std::abs(alone.energy)));
      expect_same({together.forces.begin() + 3 * from, together.forces.begin() + 3 * to}, alone.forces, "forces");
      if (!wants_virials) continue;
      expect_same({together.system_virials.begin() + 6 * s, together.system_virials.begin() + 6 * s + 6},
                  alone.system_virials, "virials");
      const double* v = alone.virial;
      expect_same(alone.system_virials,
                  {v[0], v[4], v[8], 0.5 * (v[1] + v[3]), 0.5 * (v[2] + v[6]), 0.5 * (v[5] + v[7])}, "virial");
    }
  }

  std::shared_ptr<Model> plain_, model_;
};

TEST_P(OfSystems, EachAsWhenItIsAlone) {
  std::mt19937_64 random(11);
  Systems systems = systems_of_all_kinds(random);
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    expect_as_alone(systems, step != 1);
    for (double& x : systems.positions) x += 0.01;
    systems.positions[1] += 0.05;
  }
  EXPECT_EQ(model_->last_run().lists, 2);  // without a skin, then with one
}

TEST_P(OfSystems, AsTheGraphOfTheSameAtoms) {
  const System system = make_system(12, 5.0, 2);
  Systems one;
  one.starts = {0, 12};
  for (const Vec& x : system.x) one.positions.insert(one.positions.end(), x.begin(), x.end());
  one.types.assign(system.type.begin(), system.type.end());
  one.cells = {5, 0, 0, 0, 5, 0, 0, 0, 5};
  one.periodic = {1, 1, 1};
  Request request;
  request.atom_virial = request.centroid_virial = true;
  Result got, expected;
  model_->compute(one.view(), {}, request, got);
  plain_->compute(folded_graph(system, 4.0, plain_->metadata().layers).view(), request, expected);
  expect_same(got, expected);
}

TEST_P(OfSystems, ListsOfOtherKindsInTurn) {
  std::mt19937_64 random(5);
  const Systems systems = systems_of_all_kinds(random);
  expect_as_alone(systems, true);
  const System other = make_system(9, 5.0, 4);
  Result result;
  EXPECT_THROW(model_->compute(PointsView{}, {}, result), Error);
  model_->compute(folded_graph(other, 4.0, plain_->metadata().layers).view(), {}, result);
  expect_as_alone(systems, true);
  Systems none;
  expect_as_alone(none, true);
  none.add(0, {}, {}, random);
  expect_as_alone(none, true);
}

TEST_P(OfSystems, PreparedAndStartedAhead) {
  std::mt19937_64 random(17);
  const Systems batches[] = {systems_of_all_kinds(random), systems_of_all_kinds(random), systems_of_all_kinds(random)};
  Request request, told;
  request.system_virials = true;
  Result expected[3], got;
  for (int k = 0; k < 3; ++k) plain_->compute(batches[k].view(), {0.0, 0}, request, expected[k]);
  const auto finish = [&](int k) {
    SCOPED_TRACE(k);
    const SystemsView& systems = model_->finish_systems(k, told, got);
    EXPECT_EQ(systems.count, batches[k].view().count);
    expect_same(got.system_energies, expected[k].system_energies, "energies");
    expect_same(got.forces, expected[k].forces, "forces");
    expect_same(got.system_virials, expected[k].system_virials, "virials");
  };
  for (int round = 0; round < 2; ++round) {
    model_->prepare_systems(0, batches[0].view());
    model_->start_systems(0, 300, request);
    model_->prepare_systems(1, batches[1].view());
    model_->start_systems(1, 300, request);
    finish(0);
    model_->prepare_systems(2, batches[2].view());
    expect_as_alone(batches[0], true);  // another call in between
    model_->start_systems(2, 0, request);
    finish(1);
    finish(2);
  }
  EXPECT_THROW(model_->finish_systems(2, told, got), Error);
  EXPECT_THROW(model_->start_systems(2, 0, request), Error);
  EXPECT_THROW(model_->prepare_systems(3, batches[0].view()), Error);
  Systems wrong = batches[0];
  wrong.types[3] = 9;
  EXPECT_THROW(model_->prepare_systems(0, wrong.view()), Error);
  EXPECT_THROW(model_->start_systems(0, 0, request), Error);
  model_->prepare_systems(0, batches[0].view());
  request.outputs = {"atomic_energy"};
  EXPECT_THROW(model_->start_systems(0, 0, request), Error);
}

TEST_P(OfSystems, WhatFailsLeavesNoList) {
  std::mt19937_64 random(5);
  const Systems systems = systems_of_all_kinds(random);
  expect_as_alone(systems, true);
  Systems wrong = systems;
  wrong.types[3] = 9;
  Result result;
  EXPECT_THROW(model_->compute(wrong.view(), {}, {}, result), Error);
  EXPECT_THROW(model_->compute(wrong.view(), {}, {}, result), Error);
  wrong = systems;
  wrong.positions[40] = NAN;
  EXPECT_THROW(model_->compute(wrong.view(), {}, {}, result), Error);
  expect_as_alone(systems, true);
}

INSTANTIATE_TEST_SUITE_P(Devices, OfSystems, ::testing::Values("cpu", "cpu:padded"),
                         [](const auto& device) { return std::string(device.param == "cpu" ? "Cpu" : "Padded"); });

}  // namespace
}  // namespace clebsch::testing
