// A module that says it starts early (kernels/early_start.cuh): every kernel in it must wait for those before it.
#include <gtest/gtest.h>

#include "core/problem/named_problems.h"
#include "core/problem/node_problem.h"
#include "cuda/emit/reductions.h"
#include "cuda/interaction/interaction_source.h"
#include "cuda/interaction/projection.h"
#include "cuda/kernels/embedded_source.h"
#include "cuda/nodes/gate_source.h"
#include "cuda/nodes/node_linear_source.h"
#include "cuda/nodes/symmetric_source.h"
#include "symmetric_problems.h"

namespace clebsch::cuda {
namespace {

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++found;
  return found;
}

void expect_waits(const std::string& name, const std::string& source) {
  EXPECT_EQ(count(source, "extern \"C\" __constant__ char clebsch_starts_early"), 1) << name;
  const int kernels = count(source, "extern \"C\" __global__");
  EXPECT_GT(kernels, 0) << name;
  EXPECT_EQ(count(source, "start_early();"), kernels) << name;
}

TEST(EarlyStart, EveryKernelOfASteppingModuleWaits) {
  for (const char* name :
       {"scan.cu", "fixed_point.cu", "edge_forces.cu", "group_rows.cu", "edge_finder.cu", "graph_transpose.cu"})
    expect_waits(name, embedded_source(name));
  const auto problem = cached_problem(named_problem("mace-l1").problem);
  for (const bool density : {false, true}) {
    expect_waits("forward", interaction_forward_source(*problem, Scalar::f32, {}, {}, density).source);
    const KernelSource backward =
        interaction_backward_source(*problem, Scalar::f32, {true, true, false}, {}, {}, density);
    expect_waits("backward", backward.source);
    expect_waits("sums", interaction_sums_source(*problem, backward.schedule));
    expect_waits("reductions", reductions_source(*problem, backward.schedule));
  }
  const LinearProblem linear = LinearProblem::parse("linear in=32x0e+16x1o out=16x0e+32x1o");
  for (const bool wide : {false, true}) {
    for (const bool tensor : {false, true})
      expect_waits("linear", node_linear_source(linear, wide, Scalar::f32, linear_tiling(Scalar::f32, wide, tensor)));
  }
  expect_waits("gate",
               gate_source(GateProblem::parse("gate scalars=8x0e gates=8x0e gated=8x1o silu=1 tanh=1"), Scalar::f32));
  const SymmetricProblem symmetric = named_symmetric_problem("test-uneven");
  for (const auto pass : {SymmetricPass::forward, SymmetricPass::backward, SymmetricPass::tangent})
    expect_waits("symmetric", symmetric_source(symmetric, plan_symmetric(symmetric, pass, Scalar::f32, {})));
  const auto scalars = cached_problem(
      "conv in1=8x0e in2=1x0e+1x1o out=8x0e+8x1o paths=uvu:0,0,0,1;uvu:0,1,1,1 radial=bessel,0.08,6,8-16-16,silu");
  expect_waits("projection", projection_source(density_projection(*scalars, 16, 1)));
}

}  // namespace
}  // namespace clebsch::cuda
