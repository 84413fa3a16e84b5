// Products of matrices through the emulator's cuBLAS: rows and columns, transposes, batches, number types; and what is
// said where it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/errors.h"
#include "cuda/runtime/cublas_library.h"

/// The kernel of the emulator's cuBLAS that multiplied last, by its tile: rows (cuBLAS's), columns, has a counter.
extern "C" void emulated_cublas_tile(int64_t tile[3]);

namespace clebsch::testing {
namespace {

using namespace cuda;

BlasWorkspace workspace() {
  static std::vector<char> memory(64);
  return {memory.data(), memory.size()};
}

TEST(EmulatedCublas, RowsTransposesAndBatches) {
  constexpr int64_t kM = 3, kN = 4, kK = 5, kBatch = 2;
  for (int transposes = 0; transposes < 4; ++transposes) {
    BlasProduct p;
    p.m = kM, p.n = kN, p.k = kK, p.batch = kBatch;
    p.operands = p.result = BlasNumber::kFloat64;
    p.a.transposed = transposes & 1;
    p.b.transposed = transposes & 2;
    p.a.row = p.a.transposed ? kM + 1 : kK + 1;
    p.b.row = p.b.transposed ? kK + 2 : kN + 2;
    p.a.batch = 40;
    p.c_row = kN + 3;
    p.c_batch = 50;
    p.alpha = 0.5;
    p.beta = 2;
    std::vector<double> a(100), b(60), c(120, 1);
    for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<double>(i));
    for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<double>(i));
    p.a.data = a.data();
    p.b.data = b.data();
    p.c = c.data();
    product(p, workspace(), nullptr);
    for (int64_t i = 0; i < kBatch; ++i) {
      for (int64_t row = 0; row < kM; ++row) {
        for (int64_t column = 0; column < kN; ++column) {
          double sum = 0;
          for (int64_t inner = 0; inner < kK; ++inner) {
            const int64_t at_a = p.a.transposed ? inner * p.a.row + row : row * p.a.row + inner;
            const int64_t at_b = p.b.transposed ? column * p.b.row + inner : inner * p.b.row + column;
            sum += a[static_cast<size_t>(i * p.a.batch + at_a)] * b[static_cast<size_t>(at_b)];
          }
          EXPECT_NEAR(c[static_cast<size_t>(i * p.c_batch + row * p.c_row + column)], 0.5 * sum + 2, 1e-14);
        }
      }
    }
  }
}

TEST(EmulatedCublas, NumbersOfSixteenBits) {
  const std::vector<uint16_t> half{0x3c00, 0xc000, 0x3555, 0x0001};   // 1, -2, 0.33325, 2^-24
  const std::vector<uint16_t> brain{0x3f80, 0xc000, 0x3eab, 0x4049};  // 1, -2, 0.333984375, 3.140625
  const std::vector<float> expected_half{1 - 2 * 0.33325195f, -2 - 2 * 5.9604645e-8f};
  const std::vector<float> expected_brain{1 - 2 * 0.333984375f, -2 - 2 * 3.140625f};
  for (const bool is_half : {true, false}) {
    std::vector<float> c(2, 7);
    BlasProduct p;  // (1, -2) times the matrix of rows (x0, x1), (x2, x3)
    p.m = 1, p.n = 2, p.k = 2;
    p.operands = is_half ? BlasNumber::kFloat16 : BlasNumber::kBfloat16;
    p.a = {is_half ? half.data() : brain.data(), 2, 0, false};
    p.b = {is_half ? half.data() : brain.data(), 2, 0, false};
    p.c = c.data();
    p.c_row = 2;
    product(p, workspace(), nullptr);
    for (size_t i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(c[i], (is_half ? expected_half : expected_brain)[i]);
    std::vector<uint16_t> rounded(2);
    p.c = rounded.data();
    p.result = p.operands;
    product(p, workspace(), nullptr);
    EXPECT_EQ(rounded[1], is_half ? 0xc000 : 0xc104);  // -2.00000012 and -8.28125
  }
}

TEST(EmulatedCublas, KernelsByTheirTiles) {
  constexpr int64_t kM = 256, kN = 512, kK = 8, kBatch = 2;
  const auto brain = [](float x) {
    uint32_t word = 0;
    std::memcpy(&word, &x, sizeof word);
    return static_cast<uint16_t>(word >> 16);
  };
  std::vector<uint16_t> a(kBatch * kM * kK), b(kBatch * kN * kK);
  for (size_t i = 0; i < a.size(); ++i) a[i] = brain(static_cast<float>(i % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i) b[i] = brain(static_cast<float>(i % 7) - 3);
  struct Case {
    BlasTiles tiles;
    bool rows_of_b;  ///< b is transposed
    int64_t rows, columns, counted;
  };
  const std::vector<Case> cases{{{0, true}, true, 0, 0, 0},
                                {{128 * 256, true}, true, 256, 128, 1},
                                {{128 * 128, true}, true, 128, 128, 1},
                                {{128 * 128, false}, false, 128, 128, 0},
                                {{128 * 256, false}, true, 256, 128, 0},
                                {{1000, false}, true, 0, 0, 0}};
  for (const Case& c : cases) {
    std::vector<float> with(kBatch * kM * kN, 1), without(kBatch * kM * kN, 1);
    BlasProduct p;
    p.m = kM, p.n = kN, p.k = kK, p.batch = kBatch;
    p.operands = BlasNumber::kBfloat16;
    p.a = {a.data(), kK, kM * kK, false};
    p.b = {b.data(), c.rows_of_b ? kK : kN, kN * kK, c.rows_of_b};
    p.c_row = kN;
    p.c_batch = kM * kN;
    p.beta = 2;
    p.c = without.data();
    product(p, workspace(), nullptr);
    int64_t tile[3];
    emulated_cublas_tile(tile);
    EXPECT_EQ(tile[0], 0) << "cuBLAS chose";
    p.c = with.data();
    p.tiles = c.tiles;
    product(p, workspace(), nullptr);
    emulated_cublas_tile(tile);
    EXPECT_EQ(tile[0], c.rows);
    EXPECT_EQ(tile[1], c.columns);
    EXPECT_EQ(tile[2], c.counted);
    EXPECT_EQ(with, without);
  }
}

TEST(EmulatedCublas, Tf32ReadsNineteenBits) {
  const float a = 1.0f + 0x1p-11f, b = 1.0f;
  float c = 0;
  BlasProduct p;
  p.m = p.n = p.k = 1;
  p.a = {&a, 1, 0, false};
  p.b = {&b, 1, 0, false};
  p.c = &c;
  p.c_row = 1;
  product(p, workspace(), nullptr);
  EXPECT_EQ(c, a);
  p.sums = BlasSums::kTf32;
  product(p, workspace(), nullptr);
  EXPECT_EQ(c, 1.0f);
}

TEST(EmulatedCublas, SaysWhatItRefuses) {
  const float a[4] = {1, 2, 3, 4};
  float c[4] = {};
  BlasProduct p;
  p.m = p.n = p.k = 2;
  p.a = {a, 2, 0, false};
  p.b = {a, 1, 0, false};  // rows of two numbers one number apart
  p.c = c;
  p.c_row = 2;
  try {
    product(p, workspace(), nullptr);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a product (2, 2) = (2, 2) (2, 2) of a batch of 1"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("invalid value"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace clebsch::testing
