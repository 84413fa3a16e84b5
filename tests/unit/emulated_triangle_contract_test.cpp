// The triangle's own contraction in the emulator, against plain loops in double precision: layouts of the forward and
// the backward passes, sizes with and without remainders, batches, and what lies beyond lines.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "multilinear/triangle/device_contract.h"

namespace clebsch::testing {
namespace {

using namespace triangle;

struct Case {
  long long n, planes;
  bool transposed_a, transposed_b;
  int number = kBfloat16;
  int multiprocessors = 5;
};

/// Numbers of a few bits, which both types have.
double read(int number, unsigned bits) {
  const uint32_t word = number == kBfloat16 ? bits << 16
                        : (bits & 0x7fff) == 0
                            ? 0
                            : (bits & 0x8000) << 16 | ((bits >> 10 & 31) + 112) << 23 | (bits & 1023) << 13;
  float x;
  std::memcpy(&x, &word, 4);
  return static_cast<double>(x);
}
uint16_t written(int number, float x) {
  uint32_t word;
  std::memcpy(&word, &x, 4);
  if (number == kBfloat16 || x == 0.0f) return static_cast<uint16_t>(word >> 16);
  return static_cast<uint16_t>((word >> 16 & 0x8000) | ((word >> 23 & 255) - 112) << 10 | (word >> 13 & 1023));
}

void compare(const Case& c) {
  SCOPED_TRACE(::testing::Message() << "n " << c.n << " planes " << c.planes << " transposed " << c.transposed_a << " "
                                    << c.transposed_b << " number " << c.number);
  const long long pitch = (c.n + 7) / 8 * 8, plane = c.n * pitch, plane_of_c = plane + 8 * c.planes;
  const auto memory = [](long long numbers) {
    return std::shared_ptr<uint16_t>(static_cast<uint16_t*>(std::aligned_alloc(256, (2 * numbers + 255) / 256 * 256)),
                                     std::free);
  };
  std::mt19937 random(static_cast<unsigned>(c.n));
  const auto a = memory(plane * c.planes), b = memory(plane * c.planes), o = memory(plane_of_c * c.planes);
  for (const auto& operand : {a, b}) {
    for (long long at = 0; at < plane * c.planes; ++at) {
      const bool beyond = at % pitch >= c.n;  // not a number there
      operand.get()[at] =
          beyond ? 0xffff : written(c.number, static_cast<float>(static_cast<int>(random() % 31) - 15) / 8);
    }
  }
  std::memset(o.get(), 0xff, 2 * plane_of_c * c.planes);
  PlaneProduct product;
  product.number = c.number;
  product.a = a.get();
  product.b = b.get();
  product.c = o.get();
  product.transposed_a = c.transposed_a;
  product.transposed_b = c.transposed_b;
  product.n = c.n;
  product.planes = c.planes;
  product.pitch = pitch;
  product.plane = plane;
  product.plane_of_c = plane_of_c;
  cuda::DeviceLimits limits = cuda::limits_of_architecture(90);
  limits.multiprocessors = c.multiprocessors;
  contract_planes(product, limits, nullptr);

  long long wrong = 0, written_beyond = 0;
  const auto number = [&](const std::shared_ptr<uint16_t>& of, long long m, long long row, long long column, bool t) {
    return read(c.number, of.get()[m * plane + (t ? column * pitch + row : row * pitch + column)]);
  };
  std::vector<double> rows(c.n * c.n), columns(c.n * c.n);
  for (long long m = 0; m < c.planes; ++m) {
    for (long long i = 0; i < c.n; ++i) {
      for (long long k = 0; k < c.n; ++k) {
        rows[i * c.n + k] = number(a, m, i, k, c.transposed_a);
        columns[i * c.n + k] = number(b, m, k, i, c.transposed_b);
      }
    }
    for (long long i = 0; i < c.n; ++i) {
      for (long long j = 0; j < pitch; ++j) {
        const unsigned found = o.get()[m * plane_of_c + i * pitch + j];
        if (j >= c.n) {
          written_beyond += found != 0xffff ? 1 : 0;
          continue;
        }
        double sum = 0;
        for (long long k = 0; k < c.n; ++k) sum += rows[i * c.n + k] * columns[j * c.n + k];
        const double unit = c.number == kBfloat16 ? 1.0 / 256 : 1.0 / 2048, difference = read(c.number, found) - sum;
        wrong += std::fabs(difference) <= unit * std::fabs(sum) ? 0 : 1;
      }
    }
    for (long long at = plane; at < plane_of_c; ++at) {
      written_beyond += o.get()[m * plane_of_c + at] != 0xffff ? 1 : 0;
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(written_beyond, 0);
}

constexpr bool kLayouts[4][2] = {{false, true}, {true, false}, {false, false}, {true, true}};

TEST(EmulatedTriangleContraction, SmallMatrices) {
  for (const auto& [a, b] : kLayouts) {
    for (const long long n : {1, 8, 13, 40, 64}) compare({n, 3, a, b});
  }
}

TEST(EmulatedTriangleContraction, SeveralTiles) {
  for (const auto& [a, b] : kLayouts) {
    compare({136, 2, a, b});
    compare({200, 5, a, b, kFloat16, 4});  // the last round in parts
    compare({256, 3, a, b});
  }
}

TEST(EmulatedTriangleContraction, SeveralColumnsOfTiles) {
  compare({300, 1, false, true});
  compare({304, 1, true, false, kFloat16, 4});
  compare({320, 1, false, false});
  compare({264, 2, true, false});
  compare({640, 1, false, true, kBfloat16, 7});
  compare({520, 1, true, true, kFloat16, 4});
}

}  // namespace
}  // namespace clebsch::testing
