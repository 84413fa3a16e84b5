#include "core/math/irreps.h"

#include <gtest/gtest.h>

#include "core/errors.h"

namespace clebsch {
namespace {

TEST(Irreps, ParsesE3nnText) {
  const Irreps irreps = Irreps::parse("128x0e + 64x1o+2e");
  ASSERT_EQ(irreps.size(), 3u);
  EXPECT_EQ(irreps[0], (MulIrrep{128, {0, 1}}));
  EXPECT_EQ(irreps[1], (MulIrrep{64, {1, -1}}));
  EXPECT_EQ(irreps[2], (MulIrrep{1, {2, 1}}));
  EXPECT_EQ(irreps.dim(), 128 + 192 + 5);
  EXPECT_EQ(irreps.lmax(), 2);
  EXPECT_EQ(irreps.str(), "128x0e+64x1o+1x2e");
  EXPECT_EQ(Irreps::parse(irreps.str()), irreps);
  EXPECT_EQ(Irreps::parse("").size(), 0u);
  EXPECT_EQ(Irreps::parse("  ").dim(), 0);
}

TEST(Irreps, RefusesOtherText) {
  for (const char* text : {"x",
                           "1",
                           "1x",
                           "x1o",
                           "-1x0e",
                           "1x-1e",
                           "1x1",
                           "1x1g",
                           "1xx1e",
                           "1x1e+",
                           "+1x1e",
                           "1x8e",
                           "1.5x0e",
                           "2000000x0e",
                           "99999999999999999999x0e",
                           "1x99999999999999999999e",
                           "0x1x1e",
                           "1e1",
                           "1 0e",
                           "+"}) {
    EXPECT_THROW(Irreps::parse(text), Error) << text;
  }
  EXPECT_THROW(Irreps::parse(std::string(1 << 20, '+')), Error);
}

TEST(Irreps, MessageNamesTheBadTerm) {
  try {
    Irreps::parse("1x0e+3x9o");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'3x9o'"), std::string::npos) << error.what();
  }
}

TEST(Irreps, SimplifyMergesNeighboursAndDropsEmptyBlocks) {
  EXPECT_EQ(Irreps::parse("2x0e+3x0e+0x1o+4x0e+1x1o+2x0e").simplify().str(), "9x0e+1x1o+2x0e");
  EXPECT_EQ(Irreps::parse("0x0e").simplify().size(), 0u);
}

TEST(Irreps, LayoutPutsChannelsFastest) {
  const Irreps irreps = Irreps::parse("2x0e+3x1o+0x2e+4x1o+5x2e");
  const auto layout = channel_fastest_layout(irreps);
  ASSERT_EQ(layout.size(), 5u);
  EXPECT_EQ(layout[0].offset, 0);
  EXPECT_EQ(layout[0].stride, 2);
  EXPECT_EQ(layout[1].offset, 2);
  EXPECT_EQ(layout[1].stride, 7);
  EXPECT_EQ(layout[3].offset, 5);
  EXPECT_EQ(layout[3].stride, 7);
  EXPECT_EQ(layout[3].mul, 4);
  EXPECT_EQ(layout[4].offset, 2 + 21);
  EXPECT_EQ(layout[4].stride, 5);
}

TEST(Irreps, LayoutIsThatOfTheSimplifiedIrreps) {
  // Every (block, component, channel) gets its own place, and the places fill the row.
  for (const char* text : {"4x0e", "1x1o+2x1o+3x0e+1x1o", "0x1o+2x0e+0x3e", "7x0e+5x1o+3x2e+2x2e"}) {
    const Irreps irreps = Irreps::parse(text);
    std::vector<int> seen(irreps.dim(), 0);
    for (const BlockLayout& block : channel_fastest_layout(irreps)) {
      for (int m = 0; m < block.ir.dim(); ++m) {
        for (int64_t u = 0; u < block.mul; ++u) ++seen.at(block.offset + m * block.stride + u);
      }
    }
    EXPECT_EQ(seen, std::vector<int>(irreps.dim(), 1)) << text;
  }
}

}  // namespace
}  // namespace clebsch
