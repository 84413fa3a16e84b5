#include "core/problem/problem.h"

#include <gtest/gtest.h>

#include <clocale>
#include <random>

#include "core/errors.h"
#include "core/problem/allegro_problem.h"
#include "core/problem/named_problems.h"
#include "core_support.h"

namespace clebsch {
namespace {

const char* const kGood =
    "conv in1=4x0e+2x1o in2=1x0e+1x1o out=4x0e+4x1o+2x0e "
    "paths=uvu:0,0,0,1;uvu:0,1,1,1.7320508075688772;uvu0:1,1,2,-0.5";

std::string message(const std::string& text) {
  try {
    Problem::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : std::string(text).replace(at, from.size(), to);
}

TEST(Problem, ParsesAndDerives) {
  const Problem problem = Problem::parse(kGood);
  ASSERT_EQ(problem.paths.size(), 3u);
  EXPECT_EQ(problem.paths[1].weight_offset, 4);
  EXPECT_EQ(problem.paths[1].weight_count, 4);
  EXPECT_DOUBLE_EQ(problem.paths[1].coefficient, std::sqrt(3.0));
  EXPECT_FALSE(problem.paths[2].weighted);
  EXPECT_EQ(problem.paths[2].weight_count, 0);
  EXPECT_EQ(problem.weight_count, 8);
  EXPECT_EQ(problem.lmax_in2, 1);
  EXPECT_FALSE(problem.radial.has_value());
}

TEST(Problem, RadialOptionsAreChecked) {
  const std::string start = std::string(kGood) + " radial=";
  EXPECT_NE(message(start + "chebyshev,1,5,8-8,silu").find("basis 'bessel' or 'gaussian'"), std::string::npos);
  EXPECT_NE(message(start + "bessel,1,5,8-8,tanh").find("activation 'silu' or 'norm-silu'"), std::string::npos);
  EXPECT_NE(message(start + "bessel,1,5,8-8,silu,density,agnesi").find("in this order, got 'agnesi'"),
            std::string::npos);
  const Problem norms = Problem::parse(start + "bessel,1,5,6-5-8,norm-silu,soft,cutoff-last,density");
  EXPECT_EQ(norms.radial->weight_count(), 5 + 6 * 5 + 2 * 5 + 5 * 8 + 8);
  EXPECT_EQ(norms.radial->network_values(3), norms.radial->weight_count() + 8 * 5);
  EXPECT_EQ(norms.radial->basis_values(3), 6 + 1 + 3);
  EXPECT_FALSE(norms.radial->plain());
}

TEST(Problem, UvwCountsAllThreeMultiplicities) {
  const Problem problem = Problem::parse("conv in1=3x0e in2=2x1o out=5x1o paths=uvw:0,0,0,1");
  EXPECT_EQ(problem.weight_count, 30);
}

TEST(Problem, RadialIsRead) {
  const Problem problem = Problem::parse(std::string(kGood) + " radial=bessel,0.08,6.5,8-16-8,silu");
  ASSERT_TRUE(problem.radial.has_value());
  EXPECT_EQ(problem.radial->widths, (std::vector<int64_t>{8, 16, 8}));
  EXPECT_EQ(problem.radial->weight_count(), 8 * 16 + 16 * 8);
  EXPECT_DOUBLE_EQ(problem.radial->prefactor, 0.08);
  EXPECT_DOUBLE_EQ(problem.radial->cutoff_p, 6.5);
}

TEST(Problem, TextRoundTrips) {
  for (const NamedProblem& named : named_problems()) {
    const Problem problem = Problem::parse(named.problem);
    EXPECT_EQ(problem.str(), named.problem) << named.name;
    EXPECT_EQ(Problem::parse(problem.str()).str(), problem.str()) << named.name;
  }
}

TEST(Problem, RefusalsSayWhatWasExpected) {
  const std::string good = kGood, radial = good + " radial=bessel,0.08,6,8-16-8,silu";
  const struct {
    std::string text, expected;
  } cases[] = {
      {"", "starts with 'conv'"},
      {"linear in=1x0e out=1x0e", "starts with 'conv'"},
      {replaced(good, "in1=", "in3="), "field 'in1='"},
      {replaced(good, " in2=1x0e+1x1o", ""), "field 'in2='"},
      {"conv in1=1x0e in2=1x0e out=1x0e", "field 'paths='"},
      {good + " more=1", "end of the text"},
      {good + " ", "end of the text"},
      {replaced(good, "4x0e", "4x9e"), "field 'in1'"},
      {replaced(good, "4x0e", "0x0e"), "multiplicities"},
      {"conv in1= in2=1x0e out=1x0e paths=uvu:0,0,0,1", "field 'in1'"},
      {replaced(good, "uvu:", "uuu:"), "mode uvu"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,1;"), "4 numbers"},
      {replaced(good, "uvu:0,0,0,1;", "uvu;"), "mode:in1"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,3,1;"), "blocks below"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,-1,1;"), "an integer"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,0,nan;"), "a finite number"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,0,inf;"), "a finite number"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,0,1e999;"), "a finite number"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,0,1,5;"), "4 numbers"},
      {replaced(good, "uvu:0,0,0,1;", "uvu:0,0,0,1;;"), "mode uvu"},
      {replaced(good, "out=4x0e+4x1o", "out=4x0e+4x1e"), "output parity"},
      {replaced(good, "out=4x0e+4x1o", "out=4x0e+4x2o"), "|l1 - l2|"},
      {replaced(good, "out=4x0e+4x1o", "out=4x0e+3x1o"), "output multiplicity 4"},
      {replaced(good, "1x0e+1x1o", "2x0e+1x1o"), "multiplicity 1 of the second"},
      {"conv in1=3x0e in2=2x1o out=5x1o paths=uvw0:0,0,0,1", "weighted path"},
      {replaced(radial, "8-16-8", "8-16-9"), "last width of 8"},
      {replaced(radial, "8-16-8", "8"), "2 to 16 widths"},
      {replaced(radial, "8-16-8", "8-0-8"), "width"},
      {replaced(radial, ",6,", ",1.5,"), "degree p"},
      {replaced(radial, "bessel", "gauss"), "basis 'bessel'"},
      {replaced(radial, "silu", "relu"), "activation 'silu'"},
      {replaced(radial, ",silu", ""), "bessel,prefactor"},
      {"conv in1=4x0e in2=1x1o out=4x1o paths=uvu:0,0,0,1 radial=bessel,1,6,8-4,silu", "the harmonics"},
      {"conv in1=1000000x0e in2=2x0e out=2x0e paths=uvw:0,0,0,1", "weights"},
      {"conv in1=1048576x7e+1048576x7e in2=1x0e out=1x0e paths=uvu:0,0,0,1", "dimension of at most"},
  };
  for (const auto& c : cases) {
    const std::string got = message(c.text);
    EXPECT_NE(got.find(c.expected), std::string::npos) << "text: " << c.text << "\nmessage: " << got;
  }
}

TEST(Problem, CountsAreBounded) {
  std::string paths = "conv in1=1x0e in2=1x0e out=1x0e paths=uvu:0,0,0,1";
  for (int i = 0; i < 1024; ++i) paths += ";uvu:0,0,0,1";
  EXPECT_NE(message(paths).find("at most 1024 paths"), std::string::npos);
  std::string blocks = "conv in1=1x0e";
  for (int i = 0; i < 1100; ++i) blocks += "+1x0e";
  EXPECT_NE(message(blocks + " in2=1x0e out=1x0e paths=uvu:0,0,0,1").find("at most 1024 terms"), std::string::npos);
  EXPECT_NE(message("conv " + std::string(2 << 20, 'x')).find("characters"), std::string::npos);
}

TEST(Problem, NumbersDoNotDependOnTheLocale) {
  // A comma locale would break strtod and streams; from_chars and fmt take no notice.
  const char* before = std::setlocale(LC_ALL, "de_DE.UTF-8");
  const Problem problem = Problem::parse(kGood);
  EXPECT_DOUBLE_EQ(problem.paths[1].coefficient, std::sqrt(3.0));
  EXPECT_EQ(Problem::parse(problem.str()).str(), problem.str());
  if (before != nullptr) std::setlocale(LC_ALL, "C");
}

TEST(Problem, DamagedTextIsRefusedOrConsistent) {
  // Random truncations, swaps, deletions and foreign bytes: parse() either throws Error or gives a problem that
  // passes its own checks and keeps its text form.
  std::mt19937 rng(5);
  const std::string alphabet = "0123456789eoxuvw+-;:,.= \n\t\xff\x01conviradl";
  int parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto& names = named_problems();
    std::string text = round % 2 == 0 ? std::string(kGood) + " radial=bessel,0.08,6,8-16-8,silu"
                                      : names[rng() % names.size()].problem.substr(0, 600);
    const int edits = 1 + static_cast<int>(rng() % 3);
    for (int i = 0; i < edits && !text.empty(); ++i) {
      const size_t at = rng() % text.size();
      switch (rng() % 4) {
        case 0:
          text.resize(at);
          break;
        case 1:
          text[at] = alphabet[rng() % alphabet.size()];
          break;
        case 2:
          text.erase(at, 1 + rng() % 4);
          break;
        default:
          text.insert(at, 1, alphabet[rng() % alphabet.size()]);
      }
    }
    try {
      Problem problem = Problem::parse(text);
      problem.finish();
      EXPECT_EQ(Problem::parse(problem.str()).str(), problem.str()) << text;
      ++parsed;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(parsed, 0);
}

TEST(Problem, CacheGivesTheSameObject) {
  EXPECT_EQ(cached_problem(kGood).get(), cached_problem(kGood).get());
  EXPECT_THROW(cached_problem("conv"), Error);
}

TEST(Registry, NamesAreUniqueAndFound) {
  for (const NamedProblem& named : named_problems()) EXPECT_EQ(&named_problem(named.name), &named) << named.name;
  for (const NamedProblem& named : named_allegro_problems()) {
    EXPECT_EQ(&named_problem(named.name), &named) << named.name;
    EXPECT_NO_THROW(AllegroProblem::parse(named.problem)) << named.name;
  }
  EXPECT_THROW(named_problem("mace-XXL"), Error);
}

TEST(Registry, KnownSizes) {
  EXPECT_EQ(Problem::parse(named_problem("mace-l1").problem).weight_count, 4 * 128);
  EXPECT_EQ(Problem::parse(named_problem("mace-M").problem).weight_count, 1280);
  EXPECT_EQ(Problem::parse(named_problem("nequip-M").problem).weight_count, 768);
  EXPECT_EQ(Problem::parse(named_problem("nequip-M-first").problem).weight_count, 96);
  EXPECT_EQ(Problem::parse(named_problem("nequip-M-last").problem).weight_count, 224);
  EXPECT_EQ(Problem::parse(named_problem("nequip-M").problem).out.simplify().str(), "224x0e+288x1o+256x2e");
}

TEST(Registry, ConvolutionsAreThoseOfE3nn) {
  for (const auto& expected : test::golden().at("convolutions")) {
    const Problem problem = Problem::parse(convolution_problem(expected.at("features"), expected.at("lmax"),
                                                               expected.at("filter"), expected.at("odd_harmonics")));
    EXPECT_EQ(problem.out.str(), expected.at("out").get<std::string>());
    EXPECT_EQ(problem.weight_count, expected.at("weight_count").get<int64_t>());
    ASSERT_EQ(problem.paths.size(), expected.at("paths").size());
    for (size_t i = 0; i < problem.paths.size(); ++i) {
      const auto& path = expected.at("paths")[i];
      EXPECT_EQ(problem.paths[i].in1, path[0].get<int>());
      EXPECT_EQ(problem.paths[i].in2, path[1].get<int>());
      EXPECT_EQ(problem.paths[i].out, path[2].get<int>());
      EXPECT_NEAR(problem.paths[i].coefficient, path[3].get<double>(), 1e-12);
    }
  }
}

TEST(Registry, RefusesWhatHasNoOutput) {
  EXPECT_THROW(convolution_problem("4x0e", 1, "2o", true), Error);
  EXPECT_THROW(convolution_problem("4x0e", 8, "0e", true), Error);
}

}  // namespace
}  // namespace clebsch
