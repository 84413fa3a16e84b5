#include "core/problem/node_problem.h"

#include <gtest/gtest.h>

#include <random>

#include "core/errors.h"

namespace clebsch {
namespace {

template <typename P>
std::string message(const std::string& text) {
  try {
    P::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LinearProblem, MapsEqualIrreps) {
  const LinearProblem problem = LinearProblem::parse("linear in=4x0e+2x0e+3x1o+5x2e out=7x1o+2x0e+1x1e");
  EXPECT_EQ(problem.in.str(), "6x0e+3x1o+5x2e");
  ASSERT_EQ(problem.maps.size(), 2u);
  EXPECT_EQ(problem.maps[0].l, 1);
  EXPECT_EQ(problem.maps[0].in_offset, 6);
  EXPECT_EQ(problem.maps[0].in_mul, 3);
  EXPECT_EQ(problem.maps[0].out_offset, 0);
  EXPECT_EQ(problem.maps[0].out_mul, 7);
  EXPECT_EQ(problem.maps[0].weight_offset, 0);
  EXPECT_EQ(problem.maps[1].in_offset, 0);
  EXPECT_EQ(problem.maps[1].out_offset, 21);
  EXPECT_EQ(problem.maps[1].weight_offset, 21);
  EXPECT_EQ(problem.weight_count, 21 + 12);
}

TEST(LinearProblem, SplitInputsGiveSeveralMaps) {
  const LinearProblem problem = LinearProblem::parse("linear in=4x0e+3x1o+2x0e out=5x0e");
  ASSERT_EQ(problem.maps.size(), 2u);
  EXPECT_EQ(problem.maps[0].out_offset, problem.maps[1].out_offset);
  EXPECT_EQ(problem.maps[1].in_offset, 4 + 9);
  EXPECT_EQ(problem.maps[1].weight_offset, 20);
  EXPECT_EQ(problem.weight_count, 30);
}

TEST(LinearProblem, Refusals) {
  EXPECT_NE(message<LinearProblem>("conv in=1x0e out=1x0e").find("starts with 'linear'"), std::string::npos);
  EXPECT_NE(message<LinearProblem>("linear in=1x0e").find("field 'out='"), std::string::npos);
  EXPECT_NE(message<LinearProblem>("linear in=1x0q out=1x0e").find("field 'in'"), std::string::npos);
  EXPECT_NE(message<LinearProblem>("linear in=1x0e out=1x0e x=1").find("end of the text"), std::string::npos);
  EXPECT_NE(message<LinearProblem>("linear in=1000000x0e out=1000000x0e").find("weights"), std::string::npos);
}

TEST(GateProblem, ConcatenatesBlocks) {
  const GateProblem problem =
      GateProblem::parse("gate scalars=128x0e+16x0o gates=96x0e gated=64x1o+32x2e silu=1.679 tanh=1.5927");
  EXPECT_EQ(problem.in.str(), "128x0e+16x0o+96x0e+64x1o+32x2e");
  EXPECT_EQ(problem.out.str(), "128x0e+16x0o+64x1o+32x2e");
  EXPECT_DOUBLE_EQ(problem.silu, 1.679);
  EXPECT_DOUBLE_EQ(problem.tanh, 1.5927);
  EXPECT_FALSE(problem.sigmoid.has_value());
  EXPECT_EQ(GateProblem::parse("gate scalars=4x0e gates= gated= silu=1 tanh=1 sigmoid=1.8").sigmoid, 1.8);
}

TEST(GateProblem, OddGatesFlipParity) {
  const GateProblem problem = GateProblem::parse("gate scalars=1x0e gates=3x0o+2x0e gated=3x1o+2x2e silu=1 tanh=1");
  EXPECT_EQ(problem.out.str(), "1x0e+3x1e+2x2e");
}

TEST(GateProblem, MayHaveNoGatedIrreps) {
  EXPECT_EQ(GateProblem::parse("gate scalars=4x0e gates= gated= silu=1 tanh=1").out.str(), "4x0e");
}

TEST(GateProblem, Refusals) {
  const auto got = [](const char* text) { return message<GateProblem>(text); };
  EXPECT_NE(got("gate scalars=4x1e gates= gated= silu=1 tanh=1").find("scalars (l = 0)"), std::string::npos);
  EXPECT_NE(got("gate scalars=4x0e gates=2x0e gated=3x1o silu=1 tanh=1").find("one gate for each of the 3"),
            std::string::npos);
  EXPECT_NE(got("gate scalars=4x0e gates=1x0e+2x0o gated=3x1o silu=1 tanh=1").find("one parity"), std::string::npos);
  EXPECT_NE(got("gate scalars=4x0e gates= gated= silu=nan tanh=1").find("finite number"), std::string::npos);
}

TEST(ZblProblem, ScreeningIsRead) {
  EXPECT_DOUBLE_EQ(ZblProblem::parse("zbl p=6 scale=7.2").exponent, 0.23);
  const ZblProblem problem = ZblProblem::parse("zbl p=5 scale=7.2 screening=0.3,0.24,0.1,3.2,0.2,0.9,0.3,0.4,0.4,0.2");
  EXPECT_DOUBLE_EQ(problem.exponent, 0.3);
  EXPECT_DOUBLE_EQ(problem.length, 0.24);
  EXPECT_DOUBLE_EQ(problem.weights[1], 0.2);
  EXPECT_DOUBLE_EQ(problem.rates[3], 0.2);
  const auto got = [](const char* text) { return message<ZblProblem>(text); };
  EXPECT_NE(got("zbl p=5 scale=7.2 screening=0.3,0.24").find("4 weights with their rates"), std::string::npos);
  EXPECT_NE(got("zbl p=5 scale=7.2 screening=0.3,0,1,1,1,1,1,1,1,1").find("a positive length"), std::string::npos);
  EXPECT_NE(got("zbl p=5 scale=7.2 screening=1,1,1,1,1,1,1,1,1,1,1").find("got more"), std::string::npos);
  EXPECT_NE(got("zbl p=1 scale=7.2").find("at least 2"), std::string::npos);
}

TEST(NodeProblems, DamagedTextNeverCrashes) {
  std::mt19937 rng(3);
  const std::string alphabet = "0123456789eox+-=. \n\xff";
  const std::string texts[] = {"linear in=4x0e+2x0e+3x1o out=7x1o+2x0e",
                               "gate scalars=8x0e+6x0o gates=2x0o+3x0e gated=2x1o+3x2e silu=1.6 tanh=1.5"};
  for (int round = 0; round < 20000; ++round) {
    std::string text = texts[round % 2];
    for (int i = 0; i < 2 && !text.empty(); ++i) {
      const size_t at = rng() % text.size();
      if (rng() % 3 == 0) {
        text.resize(at);
      } else {
        text[at] = alphabet[rng() % alphabet.size()];
      }
    }
    try {
      if (round % 2 == 0) {
        LinearProblem::parse(text);
      } else {
        GateProblem::parse(text);
      }
    } catch (const Error&) {
    }
  }
}

TEST(NodeProblems, CacheGivesTheSameObject) {
  const std::string text = "linear in=4x0e out=4x0e";
  EXPECT_EQ(cached_linear_problem(text).get(), cached_linear_problem(text).get());
  const std::string gate = "gate scalars=4x0e gates= gated= silu=1 tanh=1";
  EXPECT_EQ(cached_gate_problem(gate).get(), cached_gate_problem(gate).get());
}

}  // namespace
}  // namespace clebsch
