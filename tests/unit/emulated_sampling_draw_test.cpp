// The sampler's CUDA kernels in the emulator, against the sampler of the CPU: Gram matrices and draws for numbers of
// columns that take every kernel, entries that are set, numbers out of the usual range, errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/errors.h"
#include "multilinear/sampling/device_khatri_rao_sampler.h"
#include "multilinear/sampling/khatri_rao_sampler.h"
#include "sampling_support.h"

namespace clebsch::testing {
namespace {

using namespace sampling;

/// Device memory is the host's, filled with what is no number.
Memory allocate(std::size_t bytes) {
  void* memory = std::malloc(bytes + 1);
  std::memset(memory, 0xff, bytes);
  return Memory(memory, std::free);
}

struct Both {
  std::vector<OwnFactor> numbers;
  std::vector<Factor> host;
  std::vector<DeviceFactor> device;
  explicit Both(std::vector<OwnFactor> factors) : numbers(std::move(factors)) {
    for (OwnFactor& one : numbers) {
      host.push_back(one.view());
      device.push_back({one.numbers.data(), one.rows, one.columns});
    }
  }
};

void compare_draws(KhatriRaoSampler& host, DeviceKhatriRaoSampler& device, int64_t count, int exclude, uint64_t seed) {
  const auto factors = static_cast<size_t>(host.factors()), columns = static_cast<size_t>(host.columns());
  const auto samples = static_cast<size_t>(count);
  std::vector<int64_t> index(samples * factors, -1), other(index);
  std::vector<double> rows(samples * columns, NAN), weights(samples, NAN), other_rows(rows), other_weights(weights);
  std::vector<double> scores(samples, NAN);
  const int rank = host.draw(count, exclude, seed, index.data(), rows.data(), weights.data());
  EXPECT_EQ(device.draw(count, exclude, seed, other.data(), other_rows.data(), other_weights.data(), nullptr), rank);
  EXPECT_EQ(device.scores(index.data(), count, exclude, scores.data(), nullptr), rank);
  size_t same = 0;
  for (size_t s = 0; s < samples; ++s) {
    if (!std::equal(&index[s * factors], &index[(s + 1) * factors], &other[s * factors])) continue;
    ++same;
    ASSERT_NEAR(weights[s], other_weights[s], 1e-8 * weights[s]) << s;
    ASSERT_NEAR(scores[s] * static_cast<double>(count) * weights[s], rank, 1e-8 * rank) << s;
    for (size_t c = 0; c < columns; ++c) {
      ASSERT_NEAR(rows[s * columns + c], other_rows[s * columns + c], 1e-12 * std::fabs(rows[s * columns + c]));
    }
  }
  EXPECT_GE(static_cast<double>(same), 0.9999 * static_cast<double>(count));
}

TEST(EmulatedSampling, AsOnTheCpu) {
  std::mt19937_64 random(5);
  // columns, rows of the first factor, rows of a leaf, samples
  struct Case {
    int columns;
    int64_t rows, leaf_rows, count;
  };
  for (const Case& c :
       {Case{1, 9, 0, 40}, Case{3, 100, 2, 70}, Case{7, 37, 1, 33}, Case{16, 300, 0, 40}, Case{33, 120, 5, 20},
        Case{40, 60, 0, 20}, Case{50, 140, 8, 60}, Case{66, 90, 7, 12}, Case{94, 100, 9, 12}, Case{132, 80, 20, 12}}) {
    SCOPED_TRACE(c.columns);
    std::vector<OwnFactor> factors{normal_factor(c.rows, c.columns, random), normal_factor(11, c.columns, random)};
    if (c.columns > 40) factors[1] = normal_factor(c.columns + 7, c.columns, random);
    Both both(factors);
    KhatriRaoSampler host(both.host, c.leaf_rows);
    DeviceKhatriRaoSampler device(both.device, c.leaf_rows, allocate, nullptr);
    for (int k = 0; k < 2; ++k) {
      const std::vector<double> expected = host.tree(k).unit_gram(), got = device.tree(k).unit_gram();
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-12);
    }
    compare_draws(host, device, c.count, -1, 17);
    if (c.columns < 40) compare_draws(host, device, c.count, 0, 3);
  }
}

/// Compares the matrices of a tree with plain sums; returns that of a node.
std::vector<double> compare_matrices(const DeviceTreeView& tree, int level, int64_t node) {
  const TreeShape& shape = tree.shape;
  const auto columns = static_cast<size_t>(shape.columns), packed = static_cast<size_t>(packed_size(shape.columns));
  std::vector<double> expected(packed, 0.0);
  if (level == shape.depth) {
    for (int64_t i = node * shape.leaf_rows; i < std::min<int64_t>((node + 1) * shape.leaf_rows, shape.rows); ++i) {
      const double* row = tree.u + static_cast<size_t>(i) * columns;
      for (size_t a = 0, at = 0; a < columns; ++a) {
        const double x = row[a] * (tree.scale ? tree.scale[a] : 1.0);
        for (size_t b = 0; b <= a; ++b, ++at) {
          expected[at] += (a == b ? 1.0 : 2.0) * x * row[b] * (tree.scale ? tree.scale[b] : 1.0);
        }
      }
    }
  } else {
    expected = compare_matrices(tree, level + 1, 2 * node);
    if (node < shape.pairs[level + 1]) {
      const std::vector<double> right = compare_matrices(tree, level + 1, 2 * node + 1);
      for (size_t at = 0; at < packed; ++at) expected[at] += right[at];
    }
  }
  const double* got = level == 0 ? tree.root : nullptr;
  if (level > 0 && node % 2 == 0 && node / 2 < shape.pairs[level]) {
    got = tree.nodes + static_cast<size_t>(shape.offset[level] + node / 2) * packed;
  }
  for (size_t a = 0, at = 0; got && a < columns; ++a) {
    for (size_t b = 0; b <= a; ++b, ++at) {
      const auto diagonal = [&](size_t c) {
        return expected[static_cast<size_t>(packed_row(static_cast<int>(c))) + c];
      };
      const double error = std::fabs(got[at] - expected[at]), size = std::sqrt(diagonal(a) * diagonal(b));
      if (!(error <= 1e-13 * size)) ADD_FAILURE() << "level " << level << ", node " << node << ", " << a << ", " << b;
      if (!(error <= 1e-13 * size)) return expected;
    }
  }
  return expected;
}

TEST(EmulatedSampling, MatricesOfEveryWidth) {
  std::mt19937_64 random(11);
  // All kernels; those with many leaves have subtrees of eight and a shorter one, the emulated device being small.
  struct Case {
    int columns;
    int64_t rows, leaf_rows;
    double size = 1.0;
    size_t shift = 0;  ///< numbers before the matrix
  };
  for (const Case& c :
       {Case{8, 4001, 1}, Case{32, 300, 0, 1e120}, Case{33, 2597, 1}, Case{64, 300, 0, 1.0, 1},
        Case{50, 100, 3, 1e-120}, Case{66, 12822, 10}, Case{96, 300, 0, 1e120, 1}, Case{128, 775, 1}, Case{128, 600, 0},
        Case{127, 200, 9}, Case{98, 100, 40}, Case{260, 60, 7, 1e120}, Case{131, 90, 24}}) {
    SCOPED_TRACE(c.columns);
    OwnFactor u = normal_factor(c.rows, c.columns, random);
    for (double& number : u.numbers) number *= c.size;
    u.numbers.insert(u.numbers.begin(), c.shift, 1.0);
    DeviceTree tree(u.numbers.data() + c.shift, c.rows, c.columns, c.leaf_rows, allocate, nullptr, "tree");
    EXPECT_EQ(tree.view().scale != nullptr, c.size != 1.0);
    compare_matrices(tree.view(), 0, 0);
  }
}

TEST(EmulatedSampling, ThreeFactorsAndChanges) {
  std::mt19937_64 random(7);
  Both both({normal_factor(64, 4, random), normal_factor(33, 4, random), normal_factor(5, 4, random)});
  KhatriRaoSampler host(both.host, 3);
  std::vector<OwnFactor> copies = both.numbers;
  Both of_device(copies);
  DeviceKhatriRaoSampler device(of_device.device, 3, allocate, nullptr);
  compare_draws(host, device, 60, -1, 1);
  compare_draws(host, device, 60, 1, 1);
  for (int k = 0; k < 20; ++k) {
    const auto row = static_cast<int64_t>(random() % 33);
    const auto column = static_cast<int>(random() % 4);
    const double value = std::normal_distribution<double>()(random);
    host.set(1, row, column, value);
    device.set(1, row, column, value, nullptr);
  }
  EXPECT_EQ(both.numbers[1].numbers, of_device.numbers[1].numbers);
  compare_draws(host, device, 60, -1, 2);
  OwnFactor other = normal_factor(70, 4, random);
  host.set_factor(2, other.view());
  device.set_factor(2, {other.numbers.data(), other.rows, other.columns}, nullptr);
  compare_draws(host, device, 60, -1, 3);
}

TEST(EmulatedSampling, NumbersOutOfRangeAndDeficientFactors) {
  std::mt19937_64 random(9);
  OwnFactor large = normal_factor(40, 3, random), small = normal_factor(20, 3, random),
            equal = normal_factor(20, 3, random);
  for (double& number : large.numbers) number *= 1e150;
  for (int64_t i = 0; i < 20; ++i) {
    small.at(i, 1) *= 1e-150;
    equal.at(i, 2) = equal.at(i, 0);
  }
  for (int c = 0; c < 3; ++c) small.at(7, c) = 0;
  for (const auto& factors : {std::vector<OwnFactor>{large, small}, std::vector<OwnFactor>{equal}}) {
    Both both(factors);
    KhatriRaoSampler host(both.host, 2);
    DeviceKhatriRaoSampler device(both.device, 2, allocate, nullptr);
    compare_draws(host, device, 50, -1, 4);
  }
  large.at(31, 2) = std::numeric_limits<double>::infinity();
  Both bad({small, large});
  try {
    DeviceKhatriRaoSampler sampler(bad.device, 0, allocate, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "KhatriRaoSampler: factor 1: expected finite numbers, got inf in row 31, column 2");
  }
}

/// Memory that ends after `left` allocations.
struct Budget {
  int64_t left = int64_t{1} << 40;
  Memory operator()(std::size_t bytes) {
    require(left-- > 0, "no memory is left");
    return allocate(bytes);
  }
};

TEST(EmulatedSampling, AnErrorLeavesTheSamplerAsItWas) {
  std::mt19937_64 random(13);
  Both both({normal_factor(40, 3, random), normal_factor(20, 3, random)});
  KhatriRaoSampler host(both.host, 2);
  Budget budget;
  const Allocate allocate_some = [&](std::size_t bytes) { return budget(bytes); };
  DeviceKhatriRaoSampler device(both.device, 2, allocate_some, nullptr);
  compare_draws(host, device, 50, -1, 1);
  OwnFactor other = normal_factor(70, 3, random), bad = other;
  bad.at(5, 1) = NAN;
  const auto set_factor = [&](OwnFactor& u) { device.set_factor(0, {u.numbers.data(), u.rows, u.columns}, nullptr); };
  EXPECT_THROW(set_factor(bad), Error);
  compare_draws(host, device, 50, -1, 1);
  int64_t allocations = 0;
  for (bool done = false; !done; ++allocations) {
    ASSERT_LT(allocations, 50);
    budget.left = allocations;
    try {
      set_factor(other);
      done = true;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "no memory is left");
      budget = Budget();
      compare_draws(host, device, 50, -1, 2);
      compare_draws(host, device, 50, 1, 2);
    }
  }
  EXPECT_GT(allocations, 3);
  budget = Budget();
  host.set_factor(0, other.view());
  compare_draws(host, device, 50, -1, 3);
}

TEST(EmulatedSampling, ATreeThatWasNotBuiltIsNotDrawnFrom) {
  std::mt19937_64 random(15);
  Both both({normal_factor(40, 3, random), normal_factor(20, 3, random)});
  Budget budget;
  const Allocate allocate_some = [&](std::size_t bytes) { return budget(bytes); };
  DeviceKhatriRaoSampler device(both.device, 2, allocate_some, nullptr);
  std::vector<int64_t> index(100);
  std::vector<double> rows(150), weights(50);
  const auto draw = [&] { device.draw(50, -1, 1, index.data(), rows.data(), weights.data(), nullptr); };
  draw();
  budget.left = 0;
  EXPECT_THROW(device.set(0, 3, 1, 1e90, nullptr), Error);  // an entry for which the tree is built anew
  budget = Budget();
  try {
    draw();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("KhatriRaoSampler: factor 0: expected a tree, but its last building"), 0u);
  }
  EXPECT_ANY_THROW(device.set(0, 3, 1, 1.0, nullptr));
  device.set_factor(0, both.device[0], nullptr);
  draw();

  OwnFactor u = normal_factor(20, 3, random);
  DeviceTree tree(u.numbers.data(), u.rows, u.columns, 2, allocate, nullptr, "RowSampler");
  u.at(4, 2) = NAN;
  EXPECT_THROW(tree.rebuild(nullptr), Error);
  EXPECT_THROW(tree.view(), Error);
  u.at(4, 2) = 1;
  tree.rebuild(nullptr);
  compare_matrices(tree.view(), 0, 0);
}

}  // namespace
}  // namespace clebsch::testing
