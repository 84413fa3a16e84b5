// The table of kernels that op calls need. Nothing is compiled here: that is cuda_compile_test.
#include "cuda/runtime/kernel_table.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cuda/conv/conv_source.h"
#include "cuda/conv/tensor_product_conv.h"
#include "cuda/interaction/interaction_source.h"
#include "cuda/nodes/symmetric_source.h"
#include "cuda/plan/device_limits.h"
#include "symmetric_problems.h"

namespace clebsch::cuda {
namespace {

TEST(KernelTable, VeryLargeDoubleBackwardsAreMadeOfOtherPasses) {
  const auto jobs = [](const char* name, Scalar scalar) {
    const OpCall call{"tensor_product_conv_double_backward", named_problem(name).problem, scalar,
                      std::vector<bool>(7, true), true};
    const bool fused = fuses_double_backward(*cached_problem(call.problem), scalar);
    // In fp32 dX is summed from the rows of edges or in windows, as the graph has it.
    const size_t sums = scalar == Scalar::f32 ? 2 : 1;
    EXPECT_EQ(kernel_jobs(call, limits_of_architecture(90)).size(), fused ? sums : 0u) << name;
    return fused;
  };
  EXPECT_TRUE(jobs("7net-l3i5", Scalar::f32));
  EXPECT_TRUE(jobs("mace-L", Scalar::f64));
  EXPECT_FALSE(jobs("nequip-XL", Scalar::f32));
  EXPECT_FALSE(jobs("test-l7", Scalar::f64));
  EXPECT_FALSE(jobs("test-uvw", Scalar::f32));
}

TEST(KernelTable, OneJobForEachKernel) {
  const DeviceLimits limits = limits_of_architecture(90);
  const std::string text = named_problem("nequip-M").problem;
  const std::vector<OpCall> calls{
      {"tensor_product_conv", text, Scalar::f32, {}, true},
      {"tensor_product_conv_backward", text, Scalar::f32, {true, true, true}, true},
      {"tensor_product_conv_backward", text, Scalar::f32, {true, true, true}, true},
      {"tensor_product_conv_backward", text, Scalar::f32, {true, true, true}, false},
      {"tensor_product_conv_backward", text, Scalar::f64, {false, true, true}, true},
      {"tensor_product_conv_backward", text, Scalar::f32, {false, false, false}, true},
      {"edge_graph", "", Scalar::f32, {}, true},
  };
  const std::vector<KernelJob> jobs = kernel_jobs(calls, limits);
  std::vector<std::string> labels;
  for (const KernelJob& job : jobs) {
    labels.push_back(job.label);
    EXPECT_EQ(job.problem, text);
  }
  EXPECT_EQ(labels, (std::vector<std::string>{"tensor_product_conv float",
                                              "tensor_product_conv_backward x harmonics weights float",
                                              "tensor_product_conv_backward x harmonics weights atomic float",
                                              "tensor_product_conv_backward harmonics weights double"}));
}

TEST(KernelTable, SymmetricContraction) {
  const DeviceLimits limits = limits_of_architecture(90);
  const std::string text = "symmetric in=4x0e out=4x0e terms=0,0.0";
  EXPECT_EQ(kernel_jobs(OpCall{"symmetric_contraction", text, Scalar::f32, {}, true}, limits).size(), 1u);
  EXPECT_EQ(
      kernel_jobs(OpCall{"symmetric_contraction_backward", text, Scalar::f32, {true, false}, true}, limits).size(), 1u);
  // Gradients of the coefficients are torch's work.
  EXPECT_TRUE(
      kernel_jobs(OpCall{"symmetric_contraction_backward", text, Scalar::f32, {false, true}, true}, limits).empty());
}

TEST(KernelTable, InteractionsWithADensity) {
  const std::string text = named_problem("mace-l1").problem;
  const std::vector<OpCall> calls{{"interaction", text, Scalar::f32, {}, true},
                                  {"interaction_density", text, Scalar::f32, {}, true},
                                  {"interaction_density_backward", text, Scalar::f32, {true, true}, true},
                                  {"interaction_density_backward", text, Scalar::f32, {false, true}, true},
                                  {"interaction_density_backward", text, Scalar::f32, {true, false}, true},
                                  {"interaction_backward", text, Scalar::f32, {true, false}, true}};
  std::vector<std::string> labels;
  for (const KernelJob& job : kernel_jobs(calls, limits_of_architecture(90))) labels.push_back(job.label);
  // The density has a gradient by the vectors alone.
  EXPECT_EQ(labels,
            (std::vector<std::string>{"interaction float", "interaction_density float",
                                      "interaction_density_backward x edge_vec float",
                                      "interaction_density_backward edge_vec float", "interaction_backward x float"}));
}

TEST(KernelTable, NodeOps) {
  const DeviceLimits limits = limits_of_architecture(90);
  const std::string linear = "linear in=192x0e+384x1o out=128x0e+64x1o";
  const std::vector<OpCall> calls{{"linear", linear, Scalar::f32, {}, true},
                                  {"species_linear", linear, Scalar::f32, {}, true},
                                  {"pair_repulsion", "zbl p=6 scale=7.2", Scalar::f64, {}, true},
                                  {"pair_repulsion_backward", "zbl p=6 scale=7.2", Scalar::f64, {}, true}};
  // Both maps share theirs, in three tilings, with the transposes of derivatives, and forward, where every sum has 128
  // channels or more, in that of warpgroups; so do both directions of the last.
  EXPECT_EQ(kernel_jobs(calls, limits).size(), 7u + 1);
  EXPECT_EQ(kernel_jobs(calls, limits_of_architecture(80)).size(), 6u + 1);
  EXPECT_EQ(kernel_jobs(OpCall{kEdgeForces, "", Scalar::f64, {}, true}, limits).size(), 1u);
}

TEST(KernelTable, AllegroEnergiesAndGradientsShareKernels) {
  const std::string text = named_problem("allegro-l2").problem;
  const std::vector<OpCall> calls{{"allegro_energy", text, Scalar::f32, {}, true},
                                  {"allegro_energy_gradient", text, Scalar::f32, {}, true},
                                  {"allegro_features", text, Scalar::f32, {}, true},
                                  {"allegro_features_gradient", text, Scalar::f32, {}, true},
                                  {"allegro_energy_backward", "", Scalar::f64, {}, true}};
  EXPECT_EQ(kernel_jobs(calls, limits_of_architecture(90)).size(), 2u);
}

TEST(KernelTable, RefusesWhatIsNotAProblem) {
  const DeviceLimits limits = limits_of_architecture(90);
  EXPECT_THROW(kernel_jobs(OpCall{"tensor_product_conv", "conv in1=", Scalar::f32, {}, true}, limits), Error);
  EXPECT_THROW(
      kernel_jobs(OpCall{"tensor_product_conv_backward", named_problem("mace-M").problem, Scalar::f32, {}, true},
                  limits),
      Error);
}

TEST(KernelTable, ErrorsNameKernelsAndLogs) {
  const auto fails = [](const CubinCache&) -> std::vector<CompiledPart> { fail("the log of the compiler"); };
  const auto works = [](const CubinCache&) { return std::vector<CompiledPart>(1); };
  const auto results = compile_jobs(
      {{"forward float", "conv a", works}, {"backward float", "conv b", fails}, {"backward double", "conv c", fails}},
      CubinCache(""), 2);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].parts.size(), 1u);
  EXPECT_EQ(results[1].label, "backward float");
  try {
    require_compiled(results);
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part :
         {"2 of 3", "backward float", "conv b", "backward double", "conv c", "the log of the compiler"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    EXPECT_EQ(text.find("forward float"), std::string::npos) << text;
  }
  EXPECT_NO_THROW(require_compiled({results[0]}));
}

// A cache filled on one machine serves another: devices of one architecture differ in their multiprocessors alone.
TEST(KnownDevices, MultiprocessorsDoNotEnterSources) {
  for (const char* name : {"mace-M", "nequip-water", "7net-l3i5"}) {
    const auto problem = cached_problem(named_problem(name).problem);
    for (const int arch : known_architectures()) {
      DeviceLimits small = limits_of_architecture(arch), large = small;
      small.multiprocessors = 7;
      large.multiprocessors = 1000;
      EXPECT_EQ(conv_forward_source(*problem, Scalar::f32, small).source,
                conv_forward_source(*problem, Scalar::f32, large).source);
      EXPECT_EQ(conv_backward_source(*problem, Scalar::f32, {}, small).source,
                conv_backward_source(*problem, Scalar::f32, {}, large).source);
      EXPECT_EQ(conv_double_backward_source(*problem, Scalar::f32, {}, small).source,
                conv_double_backward_source(*problem, Scalar::f32, {}, large).source);
      EXPECT_EQ(interaction_forward_source(*problem, Scalar::f32, small).source,
                interaction_forward_source(*problem, Scalar::f32, large).source);
      EXPECT_EQ(interaction_backward_source(*problem, Scalar::f32, {}, small).source,
                interaction_backward_source(*problem, Scalar::f32, {}, large).source);
    }
  }
  DeviceLimits small = limits_of_architecture(90), large = small;
  small.multiprocessors = 7;
  const SymmetricProblem symmetric = named_symmetric_problem("mace-M");
  EXPECT_EQ(plan_symmetric(symmetric, SymmetricPass::backward, Scalar::f32, small).str(),
            plan_symmetric(symmetric, SymmetricPass::backward, Scalar::f32, large).str());
}

TEST(KnownDevices, OthersAreRefused) {
  EXPECT_EQ(limits_of_architecture(80).shared_per_multiprocessor, 167936);
  EXPECT_EQ(limits_of_architecture(120).warps_per_multiprocessor, 48);
  try {
    limits_of_architecture(70);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("80, 86"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace clebsch::cuda
