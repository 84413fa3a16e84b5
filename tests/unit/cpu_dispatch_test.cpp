// The choice of the instruction set, and the compile-time selection rule of real couplings.
#include "cpu/dispatch.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "core/math/coupling.h"
#include "core/math/irreps.h"
#include "cpu/selection.h"

namespace clebsch {
namespace {

TEST(Dispatch, BaselineIsAlwaysThereAndNamesAreThoseOfTheEnvironmentVariable) {
  const cpu::Isa before = cpu::isa();
  cpu::set_isa(cpu::Isa::baseline);
  EXPECT_EQ(cpu::isa(), cpu::Isa::baseline);
  EXPECT_EQ(cpu::isa_name(cpu::Isa::baseline), "baseline");
  EXPECT_EQ(cpu::isa_name(cpu::Isa::avx2), "avx2");
  EXPECT_EQ(cpu::isa_name(cpu::Isa::avx512), "avx512");
  cpu::set_isa(before);
}

TEST(Selection, NoNonZeroOfAnyCouplingIsMissed) {
  int possible = 0, found = 0;
  for (int l1 = 0; l1 <= kMaxDegree; ++l1) {
    for (int l2 = 0; l2 <= kMaxDegree; ++l2) {
      for (int l3 = std::abs(l1 - l2); l3 <= std::min(l1 + l2, kMaxDegree); ++l3) {
        for (const CouplingEntry& entry : wigner_3j(l1, l2, l3)) {
          EXPECT_TRUE(cpu::coupled(l1, entry.m1, l2, entry.m2, l3, entry.m3))
              << l1 << l2 << l3 << ":" << entry.m1 << entry.m2 << entry.m3;
          ++found;
        }
        for (int m1 = 0; m1 <= 2 * l1; ++m1) {
          for (int m2 = 0; m2 <= 2 * l2; ++m2) {
            for (int m3 = 0; m3 <= 2 * l3; ++m3) possible += cpu::coupled(l1, m1, l2, m2, l3, m3);
          }
        }
      }
    }
  }
  // The rule is nearly sharp: what it allows beyond the true non-zeros is work for nothing.
  EXPECT_LE(possible, found * 1.1);
}

TEST(Selection, SlotsCountLinkedPairsInOrder) {
  constexpr int l1 = 2, l2 = 1, l3 = 3;
  int expected = 0;
  for (int a = 0; a <= 2 * l1; ++a) {
    for (int b = 0; b <= 2 * l3; ++b) {
      if (!cpu::linked(l1, a, l2, l3, b)) continue;
      EXPECT_EQ(cpu::pair_slot(l1, l2, l3, a, b), expected++);
    }
  }
  EXPECT_EQ(cpu::pair_count(l1, l2, l3), expected);
}

}  // namespace
}  // namespace clebsch
