// A whole Allegro network on the CPU: gradients against differences, instruction sets and threads against each other.
#include "cpu/allegro.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "core/radial/radial_table.h"
#include "cpu/dispatch.h"

namespace clebsch {
namespace {

const std::string kText = named_problem("allegro-test").problem;

template <typename T>
struct AllegroCase {
  AllegroProblem problem = AllegroProblem::parse(kText);
  Graph graph;
  std::vector<T> dense, paths, table;
  std::vector<double> norm{0.4, 0.6}, cutoffs{4.0, 3.5, 3.6, 3.8};
  std::vector<int32_t> index{0, 1, 2, 3};
  static constexpr int kPieces = 64;

  explicit AllegroCase(unsigned seed, int atoms = 7) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < problem.dense_weights; ++i) dense.push_back(static_cast<T>(0.4 * normal(random)));
    for (int64_t i = 0; i < problem.path_weights; ++i) paths.push_back(static_cast<T>(0.6 * normal(random)));
    for (const double cutoff : cutoffs) {
      std::vector<double> weights(problem.radial.weight_count()), basis{1, 2, 3, 4};
      for (double& w : weights) w = 0.5 * normal(random);
      for (double& b : basis) b *= 3.14159265358979323846;
      const auto values = build_radial_table(RadialNetwork(problem.radial, basis, weights), cutoff, kPieces);
      table.insert(table.end(), values.begin(), values.end());
    }
    // Atoms 2 and 3 have no neighbour, some edges are beyond their cutoff, and the last receiver has many edges.
    std::vector<int64_t> receivers, senders, types;
    std::vector<double> vectors;
    std::uniform_real_distribution<double> place(-2.5, 2.5);
    for (int i = 0; i < atoms; ++i) {
      types.push_back(i % 2);
      const int count = i == 2 || i == 3 ? 0 : i + 1 == atoms ? 150 : 9;
      for (int e = 0; e < count; ++e) {
        receivers.push_back(i);
        senders.push_back((i + e) % atoms);
        for (int d = 0; d < 3; ++d) vectors.push_back(place(random) + (d == 0 ? 1.0 : 0.0));
      }
    }
    graph.assign(atoms, atoms, atoms, static_cast<int64_t>(senders.size()), receivers.data(), senders.data(),
                 vectors.data(), types.data(), 1);
  }

  std::vector<double> energy(std::vector<double>* gradient = nullptr, int threads = 1, int32_t rows = -1,
                             std::vector<double>* features = nullptr) const {
    cpu::AllegroRadial<T> radial;
    radial.table = {table.data(), index.data(), cutoffs.data(), 2, 4, kPieces, problem.radial.columns()};
    const GraphView view = graph.view();
    std::vector<double> result(view.n_rows, -1.0);
    if (gradient != nullptr) gradient->assign(3 * view.n_edges, std::nan(""));
    if (features != nullptr) features->assign(problem.features() * view.n_rows, -1.0);
    cpu::allegro_energy<T>(problem, view, radial, {dense.data(), paths.data(), norm.data()},
                           rows < 0 ? view.n_rows : rows, result.data(), gradient ? gradient->data() : nullptr,
                           features ? features->data() : nullptr, threads);
    return result;
  }
};

TEST(Allegro, GradientsAreThoseOfTheEnergy) {
  AllegroCase<double> test(3);
  std::vector<double> gradient;
  const auto energy = test.energy(&gradient);
  EXPECT_EQ(energy[2], 0.0);
  const double h = 1e-4;
  double largest = 0;
  for (size_t k = 0; k < gradient.size(); k += 7) {
    const double before = test.graph.edge_vec[k];
    std::vector<double> moved[4];
    const double steps[4] = {-2 * h, -h, h, 2 * h};
    for (int s = 0; s < 4; ++s) {
      test.graph.edge_vec[k] = before + steps[s];
      moved[s] = test.energy();
    }
    test.graph.edge_vec[k] = before;
    for (size_t i = 0; i < energy.size(); ++i) {
      const double slope = (8 * (moved[2][i] - moved[1][i]) - (moved[3][i] - moved[0][i])) / (12 * h);
      const bool own = test.graph.receivers[k / 3] == static_cast<int32_t>(i);
      EXPECT_NEAR(slope, own ? gradient[k] : 0.0, 2e-6) << k;
    }
    largest = std::max(largest, std::abs(gradient[k]));
  }
  EXPECT_GT(largest, 1e-2);
}

TEST(Allegro, EnergiesAreFeaturesTimesTheLastColumn) {
  const AllegroCase<double> test(7);
  const int64_t width = test.problem.features();
  const double* last = test.dense.data() + test.problem.dense_weights - width;
  std::vector<double> features, others, gradient, without;
  const auto energy = test.energy(nullptr, 1, -1, &features);
  EXPECT_EQ(test.energy(&gradient, 2, -1, &others), energy);
  EXPECT_EQ(others, features) << "with gradients and another number of threads";
  test.energy(&without);
  EXPECT_EQ(gradient, without);
  for (size_t i = 0; i < energy.size(); ++i) {
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += features[i * width + c] * last[c];
    EXPECT_NEAR(sum, energy[i], 1e-12) << i;
  }
  for (int64_t c = 0; c < width; ++c) {
    EXPECT_EQ(features[2 * width + c], 0.0) << "an atom alone";
    AllegroCase<double> one(7);  // of which an energy is a feature
    for (int64_t d = 0; d < width; ++d) one.dense[one.problem.dense_weights - width + d] = d == c ? 1.0 : 0.0;
    const auto column = one.energy();
    for (size_t i = 0; i < energy.size(); ++i) EXPECT_NEAR(column[i], features[i * width + c], 1e-12) << i;
  }
  test.energy(nullptr, 1, 1, &features);
  EXPECT_EQ(features[width], -1.0) << "a row that is not computed";
}

TEST(Allegro, InstructionSetsAgree) {
  const AllegroCase<double> wide(5);
  const AllegroCase<float> narrow(5);
  const cpu::Isa before = cpu::isa();
  std::vector<double> gradient, other;
  const auto energy = wide.energy(&gradient);
  for (const cpu::Isa isa : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512}) {
    try {
      cpu::set_isa(isa);
    } catch (const Error&) {
      continue;
    }
    const auto same = wide.energy(&other);
    for (size_t i = 0; i < energy.size(); ++i) EXPECT_NEAR(same[i], energy[i], 1e-11);
    for (size_t k = 0; k < gradient.size(); ++k) EXPECT_NEAR(other[k], gradient[k], 1e-11);
    const auto single = narrow.energy(&other);
    for (size_t i = 0; i < energy.size(); ++i) EXPECT_NEAR(single[i], energy[i], 1e-4 * (1 + std::abs(energy[i])));
    double error = 0, size = 0;
    for (size_t k = 0; k < gradient.size(); ++k) {
      error += (other[k] - gradient[k]) * (other[k] - gradient[k]);
      size += gradient[k] * gradient[k];
    }
    EXPECT_LT(std::sqrt(error / size), 1e-5);
  }
  cpu::set_isa(before);
}

TEST(Allegro, SameBitsForAnyNumberOfThreads) {
  const AllegroCase<float> test(7, 60);
  std::vector<double> one, three, part;
  const auto energy = test.energy(&one, 1), again = test.energy(&three, 3), few = test.energy(&part, 2, 11);
  EXPECT_EQ(energy, again);
  EXPECT_EQ(one, three);
  // With fewer rows the last chunk is another, and an edge may take another row of a tile: the same but for rounding.
  EXPECT_NEAR(few[10], energy[10], 1e-5 * (1 + std::abs(energy[10])));
  EXPECT_EQ(few[11], -1.0);  // not computed, not touched
  const size_t edges = 3 * test.graph.row_ptr[11];
  for (size_t k = 0; k < part.size(); ++k) {
    EXPECT_NEAR(part[k], k < edges ? one[k] : 0.0, k < edges ? 1e-5 * (1 + std::abs(one[k])) : 0.0);
  }
}

TEST(Allegro, RefusesAPairWithoutATable) {
  AllegroCase<float> test(9);
  test.index[1] = -1;
  EXPECT_THROW(test.energy(), Error);
}

TEST(Allegro, RefusesTextsThatDoNotFit) {
  const std::string good = kText;
  EXPECT_EQ(AllegroProblem::parse(good).products[0].in_dim, 9);
  const std::pair<std::string, std::string> changes[] = {{"scalars=5", "scalars=0"},
                                                         {"scalars=5", "scalars=6"},
                                                         {"lmax=2", "lmax=1"},
                                                         {"lmax=2", "lmax=9"},
                                                         {"1x2e;1x0e+", "1x2e;1x0o+"},
                                                         {"tensors=1x0e", "tensors=2x0e"},
                                                         {"1x2e;1x0e latents", "1x2e;1x1o latents"},
                                                         {"latents=11", "latents=12"},
                                                         {"-4-5 ", "-4-6 "},
                                                         {";16-23", ""},
                                                         {"readout=20", "readout=15"},
                                                         {"-3-1", "-3-2"},
                                                         {"bessel,0.4,6", "bessel,0.4"},
                                                         {"bessel,0.4,6", "bessel,0.4,1"},
                                                         {"bessel,0.4,6", "spline,0"},
                                                         {"4-8-41", "4-8-40"},
                                                         {"4-8-41", "41"},
                                                         {"4-8-41", "4-8-41 more=1"}};
  for (const auto& [from, to] : changes) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    EXPECT_THROW(AllegroProblem::parse(text), Error) << text;
  }
}

TEST(Allegro, SplineBasisHasThreeDerivatives) {
  RadialDescription description;
  description.basis = RadialBasis::spline;
  description.prefactor = 0.5;
  description.widths = {3, 5, 2};
  std::vector<double> weights(25);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::sin(1.0 + 3.0 * i);
  const RadialNetwork network(description, {-0.25, 0.1, 0.5}, weights);
  const auto at = [&](double r, int order) {
    std::vector<double> values[3] = {std::vector<double>(2), std::vector<double>(2), std::vector<double>(2)};
    network.evaluate(r, 4.0, values[0].data(), values[1].data(), values[2].data());
    return values[order][1];
  };
  const double h = 1e-5;
  for (double r = 0.05; r < 4.2; r += 0.07) {
    for (int order : {0, 1}) {
      EXPECT_NEAR((at(r + h, order) - at(r - h, order)) / (2 * h), at(r, order + 1), 2e-7) << r;
    }
  }
  EXPECT_EQ(at(4.0, 0), 0.0);
}

}  // namespace
}  // namespace clebsch
