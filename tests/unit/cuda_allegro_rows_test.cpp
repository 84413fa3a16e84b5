// How Allegro's matrix products are launched on GPUs with much and with little shared memory.
#include <gtest/gtest.h>

#include "core/problem/named_problems.h"
#include "cuda/allegro/allegro.h"

namespace clebsch::cuda {
namespace {

TEST(AllegroRows, LaunchesFollowTheDevice) {
  const auto problem = cached_allegro_problem(named_problem("allegro-l2").problem);
  const AllegroDense dense(*problem, AllegroLayout(*problem));
  const int pack = dense_pack(dense, Scalar::f32);
  EXPECT_EQ(pack, 4);
  for (const int arch : {80, 86, 90, 100, 120}) {
    const DeviceLimits limits = limits_of_architecture(arch);
    const RowsTiling tiling = rows_tiling(dense, {}, limits);
    EXPECT_EQ(tiling.split, arch == 90 || arch == 100) << arch;
    EXPECT_EQ(tiling.depth, arch == 90 ? 32 : 16) << arch;
    ASSERT_TRUE(rows_fit(dense, tiling, limits)) << arch;
    for (const DenseCall& call : dense.calls) {
      for (const bool few : {false, true}) {
        const RowsLaunch launch = *rows_launch(call, pack, 1 << 17, few, tiling, limits);
        EXPECT_LE(launch.shared, static_cast<unsigned>(most_shared_per_block(limits)));
        EXPECT_GE(launch.parts * launch.part, call.columns());
        EXPECT_LT((launch.parts - 1) * launch.part, call.columns());
        EXPECT_LE(launch.warps, kRowsMostWarps);
        // Where a multiprocessor has 99 KB, warps make room for what they read besides.
        const bool reads = call.times_slope || call.out.front().add;
        if (!few) {
          EXPECT_EQ(launch.parts, 1);
          EXPECT_EQ(launch.warps, kRowsMostWarps / (arch == 80 || tiling.split || !reads ? 1 : 2));
        }
        EXPECT_EQ(rows_launch(call, pack, 1, few, tiling, limits)->blocks, 1);
      }
    }
  }
}

}  // namespace
}  // namespace clebsch::cuda
