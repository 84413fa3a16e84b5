// The generated kernels of linear and species_linear with their launcher in the emulator, against slow loops in fp64:
// blocks of any size, rows that are not computed, types out of range, all tilings.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/errors.h"
#include "cuda/nodes/node_linear.h"
#include "reference.h"

namespace clebsch {
namespace {

using reference::Values;

template <typename T>
constexpr cuda::Scalar kScalar = sizeof(T) == 4 ? cuda::Scalar::f32 : cuda::Scalar::f64;

template <typename T>
std::vector<T> cast(const Values& values) {
  return {values.begin(), values.end()};
}

template <typename T>
void expect_close(const std::vector<T>& got, const Values& expected, double scale) {
  ASSERT_EQ(got.size(), expected.size());
  const double tolerance = (sizeof(T) == 4 ? 3e-6 : 1e-14) * scale;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << i;
}

/// out = x W[type] by the definition in core/problem/node_problem.h; zero for rows from `limit` on and types out of
/// range.
Values slow_linear(const LinearProblem& p, const Values& x, const Values& weight, const std::vector<int32_t>& types,
                   int nodes, int type_count, int limit, bool transposed) {
  const int64_t d_in = (transposed ? p.out : p.in).dim(), d_out = (transposed ? p.in : p.out).dim();
  Values out(static_cast<size_t>(nodes * d_out), 0.0);
  for (int i = 0; i < std::min(nodes, limit); ++i) {
    const int type = types.empty() ? 0 : types[i];
    if (type < 0 || type >= type_count) continue;
    const double* w = weight.data() + type * p.weight_count;
    for (const LinearProblem::Map& map : p.maps) {
      for (int m = 0; m < 2 * map.l + 1; ++m) {
        for (int64_t a = 0; a < map.in_mul; ++a) {
          for (int64_t b = 0; b < map.out_mul; ++b) {
            const double v = w[map.weight_offset + a * map.out_mul + b];
            const int64_t in = map.in_offset + m * map.in_mul + a, to = map.out_offset + m * map.out_mul + b;
            if (transposed) {
              out[i * d_out + in] += v * x[i * d_in + to];
            } else {
              out[i * d_out + to] += v * x[i * d_in + in];
            }
          }
        }
      }
    }
  }
  return out;
}

/// limit -1: none given. With type_count 0 there is one weight and no types.
template <typename T>
void check_linear(const std::string& text, int nodes, int type_count, int limit) {
  SCOPED_TRACE(text);
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto problem = std::make_shared<const LinearProblem>(LinearProblem::parse(text));
  const int weights = std::max(type_count, 1);
  const Values w = reference::random_values(static_cast<size_t>(weights * problem->weight_count), random);
  std::vector<int32_t> types;
  for (int i = 0; type_count > 0 && i < nodes; ++i) types.push_back(static_cast<int32_t>(random() % type_count));
  if (!types.empty()) types[types.size() / 2] = type_count + 3;
  const auto kernels = cuda::NodeLinear::make(problem, kScalar<T>);
  for (const bool transposed : {false, true}) {
    const int64_t d_in = (transposed ? problem->out : problem->in).dim();
    const int64_t d_out = (transposed ? problem->in : problem->out).dim();
    const Values x = reference::random_values(static_cast<size_t>(nodes * d_in), random);
    const std::vector<T> xt = cast<T>(x), wt = cast<T>(w);
    std::vector<T> out(static_cast<size_t>(nodes * d_out), T(NAN));
    cuda::LinearOperands o;
    o.x = xt.data();
    o.weight = wt.data();
    o.types = types.empty() ? nullptr : types.data();
    o.row_limit = limit < 0 ? nullptr : &limit;
    o.nodes = nodes;
    o.type_count = weights;
    std::vector<char> scratch(static_cast<size_t>(kernels->workspace(o, transposed)), 77);
    kernels->run(o, transposed, out.data(), scratch.data(), nullptr);
    expect_close(out, slow_linear(*problem, x, w, types, nodes, weights, limit < 0 ? nodes : limit, transposed), 8);
  }
}

const char* const kUneven = "linear in=5x0e+1x0o+7x1o+35x2e+2x0e out=9x0e+3x1o+70x2e+4x1e+1x0o";

TEST(EmulatedLinear, UnevenBlocksAndRows) {
  check_linear<double>(kUneven, 37, 0, -1);
  check_linear<float>(kUneven, 37, 0, 20);
  check_linear<float>(kUneven, 1, 0, 0);
}

TEST(EmulatedLinear, ManyNodes) {
  // More than twice the emulator's multiprocessors in blocks: the wide tiling.
  check_linear<float>("linear in=20x0e+3x1o out=33x0e+66x1o", 9000, 0, 8990);
  check_linear<double>("linear in=17x0e+3x1o out=65x0e+3x1o", 6000, 0, -1);
}

/// CLEBSCH_CUDA_LINEAR=tensor=1 for the kernels that a test makes: fp32 on tensor cores. From some 400 nodes the tiling
/// is the wide one.
class EmulatedLinearTensor : public testing::Test {
 protected:
  void SetUp() override { setenv("CLEBSCH_CUDA_LINEAR", "tensor=1", 1); }
  void TearDown() override { unsetenv("CLEBSCH_CUDA_LINEAR"); }
};

TEST_F(EmulatedLinearTensor, UnevenBlocksAndRows) {
  check_linear<float>(kUneven, 37, 0, 20);
  check_linear<float>(kUneven, 1, 0, 0);
  check_linear<float>(kUneven, 53, 3, 50);
}

TEST_F(EmulatedLinearTensor, WideTiling) {
  check_linear<float>("linear in=20x0e+3x1o out=33x0e+66x1o", 500, 0, 490);
  check_linear<float>("linear in=20x0e out=33x0e+66x1o", 500, 2, 490);
}

TEST_F(EmulatedLinearTensor, CopiesOfFourNumbers) {
  setenv("CLEBSCH_CUDA_LINEAR", "tensor=1,walk=0", 1);
  check_linear<float>("linear in=40x0e+8x1o+36x0e out=36x0e+68x1o", 500, 0, 490);
  check_linear<float>("linear in=40x0e+8x1o+36x0e out=36x0e+68x1o", 70, 2, 60);
}

TEST_F(EmulatedLinearTensor, StoresOfTwoNumbers) {
  check_linear<float>("linear in=6x0e+36x1o out=10x0e+34x1o", 500, 0, -1);
  check_linear<float>("linear in=6x0e+36x1o out=10x0e+34x1o", 33, 0, -1);
}

// Blocks that walk through column tiles: multiplicities are multiples of four, nodes many.
TEST(EmulatedLinearWalk, BlocksOfManySizes) {
  // Narrow and wide tiles, terms of more than a step, halves of eights, and a block of out, or of in, without a map.
  check_linear<float>("linear in=40x0e+32x1o+4x2e+36x0e out=36x0e+68x1o+8x3o", 500, 0, 490);
  check_linear<float>("linear in=40x0e+32x1o+4x2e+36x0e out=36x0e+68x1o+8x3o", 600, 3, 590);
  check_linear<float>("linear in=32x0e+32x1o out=32x0e+32x1o", 800, 2, -1);
  check_linear<float>("linear in=8x0e out=8x3o", 2000, 0, -1);
  check_linear<float>("linear in=72x0e+4x1o out=100x0e", 1100, 2, -1);  // few wide tiles: narrow ones
  check_linear<float>("linear in=8x0e+4x1o out=16x0e+4x1o", 1300, 0, 0);
  // Parts have several tiles; how many parts there are depends on the number of groups.
  for (const int nodes : {500, 1300, 2100}) check_linear<float>("linear in=64x0e+32x1o out=96x0e+32x1o", nodes, 2, 490);
}

/// Blocks that keep their weights and use warpgroups: on a device of compute capability 9.0 with all its shared memory.
class EmulatedLinearKept : public testing::Test {
 protected:
  void SetUp() override {
    setenv("CLEBSCH_EMULATED_HOPPER", "1", 1);
    setenv("CLEBSCH_CUDA_LINEAR", "wgmma=1", 1);
  }
  void TearDown() override {
    unsetenv("CLEBSCH_EMULATED_HOPPER");
    unsetenv("CLEBSCH_CUDA_LINEAR");
  }
};

TEST_F(EmulatedLinearKept, BlocksOfManySizes) {
  // Every width, terms of more than a step, rests of steps, and a block of out, or of in, without a map.
  check_linear<float>("linear in=40x0e+32x1o+4x2e+36x0e out=36x0e+84x1o+8x3o", 500, 0, 490);
  check_linear<float>("linear in=40x0e+32x1o+4x2e+36x0e out=36x0e+84x1o+8x3o", 600, 3, 590);
  check_linear<float>("linear in=8x0e+16x1o out=64x0e+80x1o", 800, 2, -1);
  check_linear<float>("linear in=8x0e out=8x3o", 2000, 0, -1);
  check_linear<float>("linear in=8x0e+4x1o out=16x0e+4x1o", 1300, 0, 0);
  check_linear<float>("linear in=136x0e out=48x0e", 4100, 1, 4000);
  // Blocks begin and end within tiles, types and components; which ones depends on the number of places.
  for (const int nodes : {1100, 1300, 2100})
    check_linear<float>("linear in=64x0e+32x1o out=96x0e+32x1o", nodes, 2, 490);
}

TEST_F(EmulatedLinearKept, SumsDoNotDependOnWhoMakesThem) {
  const auto problem =
      std::make_shared<const LinearProblem>(LinearProblem::parse("linear in=64x0e+24x1o out=96x0e+32x1o"));
  const auto kernels = cuda::NodeLinear::make(problem, cuda::Scalar::f32);
  std::mt19937_64 random(reference::fresh_seed());
  constexpr int kMost = 1500;
  const auto d_in = static_cast<size_t>(problem->in.dim()), d_out = static_cast<size_t>(problem->out.dim());
  const auto x = cast<float>(reference::random_values(kMost * d_in, random));
  const auto w = cast<float>(reference::random_values(static_cast<size_t>(problem->weight_count), random));
  const auto rows = [&](int nodes) {
    std::vector<float> out(static_cast<size_t>(nodes) * d_out, NAN);
    cuda::LinearOperands o;
    o.x = x.data();
    o.weight = w.data();
    o.nodes = nodes;
    kernels->run(o, false, out.data(), nullptr, nullptr);
    return out;
  };
  const std::vector<float> all = rows(kMost);
  EXPECT_EQ(rows(kMost), all);
  // Of fewer nodes other blocks and warpgroups do the same ones.
  for (const int nodes : {1400, 600}) {
    EXPECT_EQ(rows(nodes), std::vector<float>(all.begin(), all.begin() + nodes * static_cast<int64_t>(d_out)));
  }
}

TEST(LinearKept, EveryPartOfEveryTileOnceInAboutEqualTime) {
  const LinearProblem problem = LinearProblem::parse("linear in=224x0e+288x1o+256x2e out=224x0e+64x1o+32x2e");
  for (const bool transposed : {false, true}) {
    const std::vector<cuda::KeptTile> tiles = cuda::kept_tiles(problem, transposed, 232448);
    EXPECT_EQ(tiles.size(), transposed ? 13u : 6u);
    EXPECT_LE(cuda::kept_shared(tiles), 232448 - 1600);
    for (const int halves : {1, 2, 33, 125, 1000}) {
      const auto parts = cuda::kept_parts(tiles, halves, 132);
      EXPECT_LE(parts.size(), 132u);
      EXPECT_GE(parts.size(), halves < 125 ? tiles.size() : 125u);
      std::vector<int> next(tiles.size(), 0), count(tiles.size(), 0);
      for (const cuda::KeptPart& part : parts) {
        EXPECT_EQ(part.part, next[part.tile]++);
        count[part.tile] = part.parts;
      }
      EXPECT_EQ(next, count);
      // Tiles of a block of channels go through rows together.
      EXPECT_EQ(count[0], count[1]);
    }
    EXPECT_TRUE(cuda::kept_parts(tiles, 125, 4).empty());
  }
  const auto pays = [](const char* text, bool transposed) {
    return cuda::kept_pays(cuda::kept_tiles(LinearProblem::parse(text), transposed, 232448));
  };
  EXPECT_TRUE(pays("linear in=136x0e+136x1o out=128x0e+128x1o", true));
  EXPECT_TRUE(pays("linear in=224x0e out=64x0e", false));
  EXPECT_FALSE(pays("linear in=224x0e out=64x0e", true));
  EXPECT_FALSE(pays("linear in=128x0e out=128x0e+64x1o", false));                     // zeros
  EXPECT_FALSE(pays("linear in=128x0e+128x1o+128x2e out=64x0e+48x1o+32x2e", false));  // three widths
  // Weights of 512 input channels leave room for 48 columns, of 2,000 for none.
  const auto width = [](const char* text) {
    const auto tiles = cuda::kept_tiles(LinearProblem::parse(text), false, 232448);
    return tiles.empty() ? 0 : tiles.front().width;
  };
  EXPECT_EQ(width("linear in=512x0e out=144x0e"), 48);
  EXPECT_EQ(width("linear in=2000x0e out=16x0e"), 0);
}

TEST(LinearWalk, MultiplesOfFourAlone) {
  const auto walks = [](const char* text) { return cuda::linear_walks(LinearProblem::parse(text), false); };
  EXPECT_TRUE(walks("linear in=4x0e+8x1o out=12x0e"));
  EXPECT_FALSE(walks("linear in=4x0e+6x1o out=12x0e"));
  EXPECT_FALSE(walks("linear in=4x0e out=13x0e"));
  EXPECT_FALSE(walks("linear in=4x0e out=16384x0e+8192x1o"));  // tiles for which a launch has no room
}

TEST(LinearWalk, PartsHaveEveryTileOnceAndAboutEqualWork) {
  const LinearProblem problem = LinearProblem::parse("linear in=224x0e+288x1o+256x2e out=224x0e+64x1o+32x2e");
  for (const bool transposed : {false, true}) {
    const size_t tiles = cuda::linear_column_tiles(problem, transposed, cuda::linear_walk_tiling());
    for (const int groups : {1, 20, 63, 64, 1000}) {
      const auto parts = cuda::linear_walk_parts(problem, transposed, groups, 264);
      std::vector<int> found;
      for (const auto& part : parts) found.insert(found.end(), part.begin(), part.end());
      std::sort(found.begin(), found.end());
      std::vector<int> all(tiles);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(found, all);
    }
    // One round of 264 blocks rather than 63 blocks for each tile.
    EXPECT_EQ(cuda::linear_walk_parts(problem, transposed, 63, 264).size(), 4u);
  }
}

TEST(LinearSize, ManyNodesWalkWithABlockAMultiprocessor) {
  using cuda::LinearSize;
  // Two wide tiles, or four that walk.
  const LinearProblem problem = LinearProblem::parse("linear in=224x0e out=128x0e");
  const auto size = [&](int nodes, bool can_walk) {
    return cuda::linear_size(problem, false, cuda::Scalar::f32, nodes, 132, can_walk, 1);
  };
  EXPECT_EQ(size(8000, true), LinearSize::wide);
  EXPECT_EQ(size(8000, false), LinearSize::narrow);
  EXPECT_EQ(size(32 * 128, true), LinearSize::narrow);
  EXPECT_EQ(size(32 * 128 + 1, true), LinearSize::wide);
  EXPECT_EQ(size(16897, false), LinearSize::wide);
  EXPECT_EQ(size(500, true), LinearSize::few);
  // With many column tiles 512 nodes, too, would have that many blocks.
  const LinearProblem large = LinearProblem::parse("linear in=128x0e+128x4e out=192x0e+192x3e+192x4e");
  EXPECT_EQ(cuda::linear_size(large, false, cuda::Scalar::f32, 512, 132, true, 1), LinearSize::narrow);
}

/// CLEBSCH_CUDA_LINEAR for the kernels that a test makes: tiles for few nodes whatever their number, below the wide
/// tiling; or never.
TEST(EmulatedLinearFew, UnevenBlocksAndRows) {
  for (const char* option : {"few=100000", "few=0"}) {
    SCOPED_TRACE(option);
    setenv("CLEBSCH_CUDA_LINEAR", option, 1);
    check_linear<float>(kUneven, 37, 0, 20);
    check_linear<double>(kUneven, 1, 0, 0);
    check_linear<double>(kUneven, 53, 3, 50);
    check_linear<float>(kUneven, 53, 1, -1);
    check_linear<float>("linear in=161x0e+20x1o+160x0e out=36x0e+17x1o+2x2e", 40, 0, 33);
    check_linear<double>("linear in=97x0e+20x1o+96x0e out=36x0e+17x1o+2x2e", 40, 2, -1);
    unsetenv("CLEBSCH_CUDA_LINEAR");
  }
}

TEST(EmulatedLinearPlain, SinglePrecision) {
  setenv("CLEBSCH_CUDA_LINEAR", "tensor=0", 1);
  check_linear<float>(kUneven, 53, 2, 50);
  check_linear<float>("linear in=20x0e out=33x0e+2x1o", 20000, 0, 19990);
  unsetenv("CLEBSCH_CUDA_LINEAR");
}

TEST(LinearOnTensorCores, ManyNodesInFloatUnlessToldOtherwise) {
  const cuda::DeviceLimits limits = cuda::limits_of_architecture(90);
  const auto chosen = [&](bool wide) { return cuda::linear_on_tensor_cores(cuda::Scalar::f32, limits, wide); };
  EXPECT_TRUE(chosen(true));
  EXPECT_FALSE(chosen(false));
  EXPECT_FALSE(cuda::linear_on_tensor_cores(cuda::Scalar::f64, limits, true));
  EXPECT_FALSE(cuda::linear_on_tensor_cores(cuda::Scalar::f32, cuda::limits_of_architecture(75), true));
  setenv("CLEBSCH_CUDA_LINEAR", "tensor=1", 1);
  EXPECT_TRUE(chosen(false));
  setenv("CLEBSCH_CUDA_LINEAR", "tensor=0", 1);
  EXPECT_FALSE(chosen(true));
  for (const char* text : {"blocks=1", "tensor=2", "few=-1", "walk=2", "tall=1"}) {
    setenv("CLEBSCH_CUDA_LINEAR", text, 1);
    EXPECT_THROW(chosen(true), Error) << text;
  }
  setenv("CLEBSCH_CUDA_LINEAR", "few=3,tensor=0", 1);
  EXPECT_EQ(cuda::linear_options().few, 3);
  EXPECT_EQ(cuda::linear_options().tensor, 0);
  unsetenv("CLEBSCH_CUDA_LINEAR");
}

TEST(EmulatedSpeciesLinear, TypesInAnyOrder) {
  check_linear<double>(kUneven, 53, 3, 50);
  check_linear<float>(kUneven, 53, 1, -1);
  check_linear<float>("linear in=20x0e out=33x0e+2x1o", 20000, 2, 19990);
}

}  // namespace
}  // namespace clebsch
