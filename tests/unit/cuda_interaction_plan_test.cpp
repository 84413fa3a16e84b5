// Plans of the interaction's kernels: complete, and enough warps for the models' problems. Compilation is in
// cuda_compile_test.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cuda/interaction/interaction_source.h"
#include "cuda/kernels/fixed_point.h"
#include "cuda/plan/device_limits.h"

namespace clebsch::cuda {
namespace {

KernelSource generate(const Problem& problem, int variant, Scalar scalar, const DeviceLimits& limits,
                      const ScheduleOptions& options = {}) {
  InteractionOutputs outputs;
  outputs.deterministic = variant == 1;
  return variant == 0 ? interaction_forward_source(problem, scalar, limits, options)
                      : interaction_backward_source(problem, scalar, outputs, limits, options);
}

/// What the models use leaves enough warps on a multiprocessor to hide memory, within its shared memory.
TEST(CudaInteractionPlan, ModelsKeepMultiprocessorsBusy) {
  for (const int arch : {80, 90, 120}) {
    const DeviceLimits limits = limits_of_architecture(arch);
    for (const char* name : {"nequip-S", "nequip-M", "nequip-L", "nequip-water", "mace-l1", "mace-M", "mace-L"}) {
      const auto problem = cached_problem(named_problem(name).problem);
      for (int variant : {0, 1, 2}) {
        const Schedule schedule = generate(*problem, variant, Scalar::f32, limits).schedule;
        const std::string label = name + (", variant " + std::to_string(variant)) + ": " + schedule.str();
        EXPECT_GE(schedule.min_blocks * schedule.warps(), 8) << label;
        EXPECT_LE(table_shared_bytes(*problem, schedule), limits.shared_per_block) << label;
        EXPECT_LE((table_shared_bytes(*problem, schedule) + 1024) * schedule.min_blocks,
                  limits.shared_per_multiprocessor)
            << label;
      }
    }
  }
}

/// Sums of 2^16 edges' terms stay within 64 bits, also where several tiles add to one number for an edge.
TEST(CudaInteractionPlan, IntegersHoldTheSumsOfAllTiles) {
  int cut = 0;
  for (const NamedProblem& named : named_problems()) {
    const auto problem = cached_problem(named.problem);
    if (!problem->radial) continue;
    InteractionOutputs outputs{true, true, true};
    outputs.fixed_point = true;
    ScheduleOptions options;
    options.registers = 60;  // cuts units by paths
    const KernelSource kernel = interaction_backward_source(*problem, Scalar::f32, outputs, {}, options);
    const int parts = max_input_parts(*problem, kernel.schedule);
    cut += parts > 1;
    size_t found = 0;
    for (size_t at = 0; (at = kernel.source.find(")) s.bad[", at)) != std::string::npos; ++at, ++found) {
      const size_t number = kernel.source.rfind("< ", at) + 2;
      // Fewer than 2^16 terms leave room for the rounding of the number in the source.
      EXPECT_LE(std::stod(kernel.source.substr(number)) * parts * 65535, std::ldexp(1.0, 63)) << named.name;
    }
    EXPECT_GT(found, 0) << named.name;
  }
  EXPECT_GT(cut, 0);
}

/// Everything the generator is asked for in the registry has a plan that names each path and slice once.
TEST(CudaInteractionPlan, EveryPathAndSliceBelongsToExactlyOneUnit) {
  for (const NamedProblem& named : named_problems()) {
    const auto problem = cached_problem(named.problem);
    if (!problem->radial) continue;
    for (int variant : {0, 1}) {
      for (Scalar scalar : {Scalar::f32, Scalar::f64}) {
        const KernelSource kernel = generate(*problem, variant, scalar, {});
        EXPECT_EQ(kernel.source, generate(*problem, variant, scalar, {}).source) << named.name;
        EXPECT_EQ(kernel.source.find("#include"), std::string::npos) << named.name;
        const Schedule& schedule = kernel.schedule;
        EXPECT_EQ(static_cast<int>(schedule.units.size()), schedule.units_per_launch() * schedule.launches);
        EXPECT_LE(schedule.threads(), 1024) << named.name;
        EXPECT_LE(schedule.receivers_per_block, 15) << named.name;  // one named barrier a receiver
        EXPECT_GE(schedule.chunk, 32) << named.name;
        EXPECT_LE(schedule.chunk, 255) << named.name;  // a key's place has eight bits
        std::map<std::pair<int, int>, int> count;
        size_t expected = 0;
        for (const Unit& unit : schedule.units) {
          for (const Tile& tile : schedule.kinds[static_cast<size_t>(unit.kind)].tiles) {
            for (int path : tile.paths) ++count[{path, unit.first_slice + tile.slice}];
          }
        }
        for (size_t path = 0; path < problem->paths.size(); ++path) {
          const int64_t slices = (problem->in1[problem->paths[path].in1].mul + 31) / 32;
          for (int slice = 0; slice < slices; ++slice, ++expected) {
            EXPECT_EQ((count[{static_cast<int>(path), slice}]), 1) << named.name << " path " << path;
          }
        }
        EXPECT_EQ(count.size(), expected) << named.name;
      }
    }
  }
}

TEST(CudaInteractionPlan, RefusesProblemsWithoutRadialPart) {
  const Problem problem = Problem::parse(named_problem("test-weightless").problem);
  EXPECT_THROW(generate(problem, 0, Scalar::f32, {}), Error);
  EXPECT_THROW(generate(problem, 1, Scalar::f32, {}), Error);
}

/// Receivers of a few hundred atoms are split where the last round of blocks would be nearly empty; of a few so that
/// all multiprocessors have blocks; of many not at all.
TEST(CudaInteractionPlan, RoundsOfBlocksEndFull) {
  const DeviceLimits limits = limits_of_architecture(90);
  const Schedule schedule = generate(*cached_problem(named_problem("mace-M").problem), 1, Scalar::f32, limits).schedule;
  ASSERT_EQ(schedule.receivers_per_block, 1);
  const int64_t slots = int64_t{limits.multiprocessors} * schedule.min_blocks;
  const auto backward = [&](int64_t rows) { return balanced_splits(schedule, limits, rows, 158 * rows); };
  const auto forward = [&](int64_t rows) { return receiver_parts(schedule, limits, rows, 158 * rows); };
  EXPECT_EQ(backward(slots), 1);
  EXPECT_GE(backward(slots + slots / 4), 3);
  EXPECT_EQ(backward(20 * slots), 1);
  EXPECT_EQ(backward(slots / 6), 6);
  EXPECT_LE(backward(1), 158 / 16);
  EXPECT_EQ(backward(0), 1);
  EXPECT_EQ(balanced_splits(schedule, limits, 1, 5 * 512), 64);
  for (const int64_t rows : {slots, 20 * slots + slots / 4}) {
    EXPECT_EQ(forward(rows).whole, rows);
    EXPECT_EQ(forward(rows).splits, 1);
  }
  EXPECT_EQ(forward(slots + slots / 4).whole, slots);
  EXPECT_EQ(forward(slots + slots / 4).splits, 4);
  EXPECT_EQ(forward(slots / 6).whole, 0);
  EXPECT_EQ(forward(slots / 6).splits, 6);
  EXPECT_EQ(receiver_parts(schedule, limits, 1, 5 * 512).splits, 64);
  EXPECT_EQ(receiver_parts(schedule, limits, 2 * slots, 2 * slots * 600).splits, 2);
}

}  // namespace
}  // namespace clebsch::cuda
