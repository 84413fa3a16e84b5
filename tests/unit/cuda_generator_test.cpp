// Plans and sources of the CUDA generator: complete, deterministic, within limits. Needs neither GPU nor NVRTC.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cuda/conv/conv_source.h"
#include "cuda/emit/lane_sum.h"
#include "cuda/emit/reductions.h"
#include "cuda/plan/path_terms.h"

namespace clebsch::cuda {
namespace {

bool uvu_alone(const Problem& problem) {
  for (const Path& path : problem.paths) {
    if (path.mode != Connection::uvu) return false;
  }
  return true;
}

/// Calls f(name, problem, pass, scalar) for everything the generator supports.
template <typename F>
void for_each_case(F&& f) {
  for (const NamedProblem& named : named_problems()) {
    const auto problem = cached_problem(named.problem);
    if (!uvu_alone(*problem)) continue;
    for (Pass pass : {Pass::forward, Pass::backward, Pass::double_backward}) {
      for (Scalar scalar : {Scalar::f32, Scalar::f64}) f(named.name, *problem, pass, scalar);
    }
  }
}

KernelSource generate(const Problem& problem, Pass pass, Scalar scalar) {
  if (pass == Pass::double_backward) {
    return conv_double_backward_source(problem, scalar, DoubleBackwardOutputs{}, DeviceLimits{});
  }
  return pass == Pass::forward ? conv_forward_source(problem, scalar, DeviceLimits{})
                               : conv_backward_source(problem, scalar, BackwardOutputs{}, DeviceLimits{});
}

TEST(CudaGenerator, EveryPathAndSliceBelongsToExactlyOneUnit) {
  for_each_case([](const std::string& name, const Problem& problem, Pass pass, Scalar scalar) {
    const Schedule schedule = make_schedule(problem, pass, scalar, DeviceLimits{});
    std::map<std::pair<int, int>, int> count;
    for (const Unit& unit : schedule.units) {
      for (const Tile& tile : schedule.kinds[static_cast<size_t>(unit.kind)].tiles) {
        for (int path : tile.paths) ++count[{path, unit.first_slice + tile.slice}];
      }
    }
    size_t expected = 0;
    for (size_t path = 0; path < problem.paths.size(); ++path) {
      const int64_t slices = (problem.in1[problem.paths[path].in1].mul + 31) / 32;
      for (int slice = 0; slice < slices; ++slice) {
        ++expected;
        EXPECT_EQ((count[{static_cast<int>(path), slice}]), 1) << name << " path " << path << " slice " << slice;
      }
    }
    EXPECT_EQ(count.size(), expected) << name;
    EXPECT_EQ(static_cast<int>(schedule.units.size()), schedule.units_per_launch() * schedule.launches) << name;
    EXPECT_LE(schedule.threads(), 1024) << name;
    EXPECT_LE(schedule.receivers_per_block, 15) << name;  // one named barrier a receiver
  });
}

/// A convolution of all paths up to `most`, each with an output block of its own.
Problem all_paths(int mul, int most) {
  std::string in1, in2, out, paths;
  int blocks = 0;
  for (int l = 0; l <= most; ++l) {
    in1 += fmt::format("{}{}x{}{}", l > 0 ? "+" : "", mul, l, l % 2 == 0 ? "e" : "o");
    in2 += fmt::format("{}1x{}{}", l > 0 ? "+" : "", l, l % 2 == 0 ? "e" : "o");
  }
  for (int a = 0; a <= most; ++a) {
    for (int b = 0; b <= most; ++b) {
      for (int c = std::abs(a - b); c <= std::min(most, a + b); ++c) {
        out += fmt::format("{}{}x{}{}", blocks > 0 ? "+" : "", mul, c, (a + b) % 2 == 0 ? "e" : "o");
        paths += fmt::format("{}uvu:{},{},{},1", blocks > 0 ? ";" : "", a, b, blocks);
        ++blocks;
      }
    }
  }
  return Problem::parse(fmt::format("conv in1={} in2={} out={} paths={}", in1, in2, out, paths));
}

// Units of whole input blocks keep gradients in shared memory: blocks become smaller where it has no room for all
// warps.
TEST(CudaGenerator, DoubleBackwardsOfManyChannelsArePlanned) {
  for (const int arch : {80, 90, 120}) {
    const DeviceLimits limits = limits_of_architecture(arch);
    for (const int mul : {16, 96, 160, 256, 512, 1056}) {
      for (int most = 0; most <= (mul > 512 ? 2 : 4); ++most) {
        SCOPED_TRACE(fmt::format("{} channels up to l = {}, architecture {}", mul, most, arch));
        const Problem problem = all_paths(mul, most);
        for (const int stored : {-1, 1}) {
          ScheduleOptions options;
          options.stored = stored;
          const Schedule schedule = make_schedule(problem, Pass::double_backward, Scalar::f32, limits, options);
          EXPECT_LE(schedule.threads(), 512);
          EXPECT_EQ(static_cast<int>(schedule.units.size()), schedule.units_per_launch() * schedule.launches);
          EXPECT_LE(schedule.warps() * warp_memory(problem, schedule).numbers * 4, limits.shared_per_block);
        }
      }
    }
  }
}

TEST(CudaGenerator, SameProblemGivesTheSameText) {
  for_each_case([](const std::string& name, const Problem& problem, Pass pass, Scalar scalar) {
    EXPECT_EQ(generate(problem, pass, scalar).source, generate(problem, pass, scalar).source) << name;
  });
}

TEST(CudaGenerator, SourceIncludesNothingAndBalancesItsBraces) {
  for_each_case([](const std::string& name, const Problem& problem, Pass pass, Scalar scalar) {
    const KernelSource kernel = generate(problem, pass, scalar);
    for (const std::string& source : {kernel.source, reductions_source(problem, kernel.schedule)}) {
      EXPECT_EQ(source.find("#include"), std::string::npos) << name;
      int depth = 0;
      for (char c : source) {
        depth += c == '{' ? 1 : c == '}' ? -1 : 0;
        ASSERT_GE(depth, 0) << name;
      }
      EXPECT_EQ(depth, 0) << name;
    }
  });
}

TEST(CudaGenerator, RefusesWhatIsNotBuilt) {
  const Problem uvw = Problem::parse(named_problem("test-uvw").problem);
  EXPECT_THROW(make_schedule(uvw, Pass::forward, Scalar::f32, DeviceLimits{}), Error);
}

TEST(CudaGenerator, CountsOfWarpsThatDoNotFitAreReplaced) {
  const Problem problem = Problem::parse(named_problem("test-one-channel").problem);
  for (int units : {1, 4, 16, 99}) {
    ScheduleOptions options;
    options.units = units;
    const Schedule schedule = make_schedule(problem, Pass::forward, Scalar::f32, DeviceLimits{}, options);
    EXPECT_LE(schedule.units.size(), problem.paths.size());
  }
}

TEST(CudaGenerator, OptionsAreFollowed) {
  const Problem problem = Problem::parse(named_problem("mace-M").problem);
  ScheduleOptions options;
  options.units = 4;
  options.receivers_per_block = 2;
  options.min_blocks = 1;
  options.prefetch = 1;
  options.tile = 8;
  const Schedule schedule = make_schedule(problem, Pass::forward, Scalar::f32, DeviceLimits{}, options);
  EXPECT_EQ(schedule.units.size(), 4u);
  EXPECT_EQ(schedule.kinds.size(), 1u);  // four slices of the same paths share their code
  EXPECT_EQ(schedule.threads(), 256);
  EXPECT_EQ(schedule.min_blocks, 1);
  EXPECT_EQ(schedule.edges_per_tile, 8);
  EXPECT_TRUE(schedule.prefetch);
}

TEST(CudaGenerator, ARingTakesNoBlocksFromTheDevice) {
  for_each_case([](const std::string& name, const Problem& problem, Pass pass, Scalar scalar) {
    const Schedule without = make_schedule(problem, pass, scalar, DeviceLimits{});
    for (const int stages : {2, 4}) {
      ScheduleOptions options;
      options.stages = stages;
      const Schedule schedule = make_schedule(problem, pass, scalar, DeviceLimits{}, options);
      EXPECT_EQ(schedule.min_blocks, without.min_blocks) << name;
      EXPECT_TRUE(schedule.stages == 0 || schedule.stages == 2 || schedule.stages == 4) << name;
      EXPECT_LE(schedule.stages, stages) << name;
    }
  });
  ScheduleOptions options;
  options.stages = 2;
  const Problem& water = *cached_problem(named_problem("nequip-water").problem);
  EXPECT_EQ(make_schedule(water, Pass::backward, Scalar::f32, DeviceLimits{}, options).stages, 2);
  DeviceLimits old;
  old.arch = 75;  // without asynchronous copies
  EXPECT_EQ(make_schedule(water, Pass::backward, Scalar::f32, old, options).stages, 0);
  options.stages = 3;
  EXPECT_THROW(make_schedule(water, Pass::backward, Scalar::f32, DeviceLimits{}, options), Error);
}

TEST(PathTerms, ScaleTimesTermsAreTheCoefficients) {
  for (const char* name : {"mace-M", "7net-l3i5", "test-parity"}) {
    const Problem problem = Problem::parse(named_problem(name).problem);
    for (size_t p = 0; p < problem.paths.size(); ++p) {
      const PathTerms terms = path_terms(problem, static_cast<int>(p));
      double squares = 0;
      int direct = 0;
      for (const PairTerms& pair : terms.pairs) {
        direct += pair.direct();
        for (const auto& out : pair.outs) squares += terms.scale * out.second * terms.scale * out.second;
      }
      const double coefficient = problem.paths[p].coefficient;
      EXPECT_NEAR(squares, coefficient * coefficient, 1e-12) << name << " path " << p;  // sum of C^2 is 1
      EXPECT_TRUE(shares_output(problem, static_cast<int>(p)) || direct > 0 || terms.n1 * terms.n2 > 9) << name;
    }
  }
}

TEST(SourceWriter, LiteralsReadBack) {
  EXPECT_EQ(literal(1.0, Scalar::f32), "1.0f");
  EXPECT_EQ(literal(-2.0, Scalar::f64), "-2.0");
  for (double value : {1.0 / 3.0, 1e-30, 5.477225575051661, 12345678.9}) {
    EXPECT_EQ(std::stod(literal(value, Scalar::f64)), value);
    EXPECT_EQ(std::stof(literal(value, Scalar::f32)), static_cast<float>(value));
  }
}

TEST(LaneSum, HalvesTheValuesWithEveryExchange) {
  for (int n : {1, 4, 9, 16, 25, 32}) {
    std::vector<std::string> values;
    for (int i = 0; i < n; ++i) values.push_back("v" + std::to_string(i));
    SourceWriter w;
    EXPECT_EQ(write_lane_sums(w, values), "v0");
    int shuffles = 0;
    for (size_t at = 0; (at = w.str().find("__shfl_xor_sync", at)) != std::string::npos; ++at) ++shuffles;
    int width = 1, rest = 5;  // width: n rounded up to a power of two; then one value is left for the remaining lanes
    for (; width < n; width *= 2) --rest;
    EXPECT_EQ(shuffles, width - 1 + rest) << n;
  }
}

}  // namespace
}  // namespace clebsch::cuda
