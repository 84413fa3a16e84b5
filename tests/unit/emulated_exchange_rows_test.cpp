// Rows of features copied and added by the kernels, against loops, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/exchange/exchange_rows.h"

namespace clebsch::cuda {
namespace {

constexpr int kRows = 70;

template <typename T>
std::vector<T> numbers(int rows, int width, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<T> made(static_cast<size_t>(rows) * width + 8);
  for (T& x : made) x = std::uniform_real_distribution<T>(-1, 1)(random);
  return made;
}

std::vector<int> shuffled(int rows, int seed) {
  std::vector<int> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(seed)));
  return order;
}

/// Widths that are whole 16 byte words and not, shorter and longer than a warp; addresses that are aligned and not.
template <typename T, typename Check>
void for_all_layouts(const Check& check) {
  for (const int width : {1, 2, 3, 4, 8, 26, 33, 64, 131, 512})
    for (const int shift : {0, 1, 2, 3}) check(width, shift);
}

template <typename T>
void copies() {
  const auto kernels = ExchangeRows::make();
  for_all_layouts<T>([&](int width, int shift) {
    SCOPED_TRACE(testing::Message() << "width " << width << ", shift " << shift);
    const std::vector<T> from = numbers<T>(kRows, width, width);
    const std::vector<int> order = shuffled(kRows, 1), places = shuffled(kRows, 2);
    for (const int way : {0, 1, 2, 3}) {
      const int count = way == 3 ? 17 : kRows;
      std::vector<T> to(from.size(), T(7)), expected = to;
      for (int k = 0; k < count; ++k) {
        const int source = way & 1 ? order[k] : k, place = way & 2 ? places[k] : k;
        std::copy_n(&from[shift + source * width], width, &expected[shift + place * width]);
      }
      CopyRowsArguments arguments;
      arguments.from = from.data() + shift;
      arguments.to = to.data() + shift;
      arguments.from_rows = way & 1 ? order.data() : nullptr;
      arguments.to_rows = way & 2 ? places.data() : nullptr;
      arguments.count = count;
      kernels->copy(arguments, static_cast<int64_t>(width * sizeof(T)), nullptr);
      EXPECT_EQ(to, expected) << "way " << way;
    }
  });
}

TEST(ExchangeRows, CopiesFloats) { copies<float>(); }
TEST(ExchangeRows, CopiesDoubles) { copies<double>(); }

template <typename T>
void sums() {
  const auto kernels = ExchangeRows::make();
  // Every third row gets nothing, the others up to five rows, in an order that matters to the last bit.
  std::vector<int> rows, starts = {0}, places;
  std::mt19937 random(5);
  for (const int row : shuffled(kRows, 3)) {
    if (row % 3 == 0) continue;
    rows.push_back(row);
    for (unsigned k = 0; k < 1 + random() % 5; ++k) places.push_back(static_cast<int>(random() % kRows));
    starts.push_back(static_cast<int>(places.size()));
  }
  for_all_layouts<T>([&](int width, int shift) {
    SCOPED_TRACE(testing::Message() << "width " << width << ", shift " << shift);
    const std::vector<T> received = numbers<T>(kRows, width, width + 1);
    std::vector<T> target = numbers<T>(kRows, width, width), expected = target;
    for (size_t t = 0; t < rows.size(); ++t)
      for (int j = starts[t]; j < starts[t + 1]; ++j)
        for (int c = 0; c < width; ++c)
          expected[shift + rows[t] * width + c] += received[shift + places[j] * width + c];
    AddRowsArguments arguments;
    arguments.target = target.data() + shift;
    arguments.received = received.data() + shift;
    arguments.rows = rows.data();
    arguments.starts = starts.data();
    arguments.places = places.data();
    arguments.count = static_cast<int>(rows.size());
    kernels->add(arguments, width, sizeof(T) == 8, nullptr);
    EXPECT_EQ(target, expected);
  });
}

TEST(ExchangeRows, AddsFloatsInOrder) { sums<float>(); }
TEST(ExchangeRows, AddsDoublesInOrder) { sums<double>(); }

TEST(ExchangeRows, NoRows) {
  const auto kernels = ExchangeRows::make();
  EXPECT_NO_THROW(kernels->copy({}, 16, nullptr));
  EXPECT_NO_THROW(kernels->add({}, 3, true, nullptr));
}

}  // namespace
}  // namespace clebsch::cuda
