// The fused forward pass of the triangle multiplicative update in the emulator, against plain loops in double
// precision: left, right, o and out, for rows in registers and in shared memory, gates computed again and stored, any
// n.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "multilinear/triangle/device_fused.h"

namespace clebsch::testing {
namespace {

using namespace triangle;
using Numbers = std::vector<double>;

/// Device memory is the host's, filled with what is no number.
Memory allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xff, bytes);
  return Memory(memory, std::free);
}

size_t size_of(int number) { return number == kFloat32 ? 4 : 2; }

double read(int number, const void* memory, size_t at) {
  if (number == kFloat32) return static_cast<double>(static_cast<const float*>(memory)[at]);
  const unsigned bits = static_cast<const uint16_t*>(memory)[at];
  if (number == kBfloat16) {
    const uint32_t word = bits << 16;
    float x;
    std::memcpy(&x, &word, 4);
    return static_cast<double>(x);
  }
  const int exponent = static_cast<int>(bits >> 10 & 31), part = static_cast<int>(bits & 1023);
  if (exponent == 31) return part ? NAN : bits & 0x8000 ? -INFINITY : INFINITY;
  const double size = exponent == 0 ? std::ldexp(part, -24) : std::ldexp(1024 + part, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

/// Numbers near x, as a type has them, cut off; those that were read back.
Memory written(int number, Numbers& x) {
  Memory memory = allocate(x.size() * size_of(number));
  for (size_t at = 0; at < x.size(); ++at) {
    const float value = static_cast<float>(x[at]);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (number == kFloat32) {
      static_cast<float*>(memory.get())[at] = value;
    } else if (number == kBfloat16) {
      static_cast<uint16_t*>(memory.get())[at] = static_cast<uint16_t>(bits >> 16);
    } else {
      const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
      const uint32_t half = exponent <= 0    ? 0
                            : exponent >= 31 ? 0x7bff
                                             : static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 1023);
      static_cast<uint16_t*>(memory.get())[at] = static_cast<uint16_t>((bits >> 16 & 0x8000) | half);
    }
    x[at] = read(number, memory.get(), at);
  }
  return memory;
}

struct Case {
  int number, precision;
  long long batch, n;
  int d, hidden, out;
  bool incoming = false, gate_before = false;
  int mask = kNoMask;
  bool biases = false, cauchy = false, norms = true;
  bool warpgroups = false;  ///< the kernels of compute capability 9.0
  int weights = kFloat32;   ///< their number type
};

/// A tensor of a case as numbers and in memory.
struct Tensor {
  Numbers numbers;
  Memory memory;
};

struct Reference {
  Numbers left, right, o, out;  ///< (batch, hidden, n, n) thrice, (batch, n, n, out)
};

/// Rows of width d to (x - mean) / deviation weight + bias.
Numbers normed(const double* x, size_t width, const Numbers& weight, const Numbers& bias) {
  double mean = 0, square = 0;
  for (size_t k = 0; k < width; ++k) mean += x[k] / static_cast<double>(width);
  for (size_t k = 0; k < width; ++k) square += (x[k] - mean) * (x[k] - mean) / static_cast<double>(width);
  Numbers y(width);
  for (size_t k = 0; k < width; ++k) {
    y[k] =
        (x[k] - mean) / std::sqrt(square + 1e-5) * (weight.empty() ? 1.0 : weight[k]) + (bias.empty() ? 0.0 : bias[k]);
  }
  return y;
}

double linear(const Numbers& x, const Numbers& weight, const Numbers& bias, size_t row) {
  double sum = bias.empty() ? 0.0 : bias[row];
  for (size_t k = 0; k < x.size(); ++k) sum += x[k] * weight[row * x.size() + k];
  return sum;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Indices: p_in, g_in, p_out, g_out weights; their biases; norm_in weight, bias, norm_out weight, bias.
Reference reference(const Case& c, const Numbers& x, const Numbers& mask, const Numbers (&w)[12]) {
  const auto n = static_cast<size_t>(c.n), batch = static_cast<size_t>(c.batch), d = static_cast<size_t>(c.d),
             hidden = static_cast<size_t>(c.hidden), width = static_cast<size_t>(c.out);
  const size_t square = n * n, rows = batch * square;
  Reference r;
  r.left.assign(rows * hidden, 0);
  r.right = r.o = r.left;
  r.out.assign(rows * width, 0);
  std::vector<Numbers> inputs;
  for (size_t row = 0; row < rows; ++row) {
    inputs.push_back(normed(x.data() + row * d, d, w[8], w[9]));
    for (size_t h = 0; h < 2 * hidden; ++h) {
      const double by = mask.empty() ? 1.0 : mask[row];
      const double value = linear(inputs[row], w[0], w[4], h) * sigmoid(linear(inputs[row], w[1], w[5], h));
      (h < hidden ? r.left : r.right)[(row / square * hidden + h % hidden) * square + row % square] =
          by == 0 ? 0 : by * value;
    }
  }
  for (size_t plane = 0; plane < batch * hidden; ++plane) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (size_t k = 0; k < n; ++k) {
          sum += c.incoming ? r.left[plane * square + k * n + i] * r.right[plane * square + k * n + j]
                            : r.left[plane * square + i * n + k] * r.right[plane * square + j * n + k];
        }
        r.o[plane * square + i * n + j] = sum;
      }
    }
  }
  for (size_t row = 0; row < rows; ++row) {
    Numbers o(hidden);
    for (size_t h = 0; h < hidden; ++h) o[h] = r.o[(row / square * hidden + h) * square + row % square];
    Numbers y = normed(o.data(), hidden, w[10], w[11]);
    if (c.gate_before) {
      for (size_t h = 0; h < hidden; ++h) y[h] *= sigmoid(linear(inputs[row], w[3], w[7], h));
    }
    for (size_t e = 0; e < width; ++e) {
      r.out[row * width + e] =
          linear(y, w[2], w[6], e) * (c.gate_before ? 1.0 : sigmoid(linear(inputs[row], w[3], w[7], e)));
    }
  }
  return r;
}

/// Root mean square of the differences in that of the expected numbers.
double error_of(const Numbers& found, const Numbers& expected) {
  double difference = 0, scale = 0;
  for (size_t at = 0; at < found.size(); ++at) {
    difference += (found[at] - expected[at]) * (found[at] - expected[at]);
    scale += expected[at] * expected[at];
    if (!std::isfinite(found[at])) return INFINITY;
  }
  return std::sqrt(difference / (scale + 1e-30));
}

void compare(const Case& c) {
  SCOPED_TRACE(::testing::Message() << "x " << c.number << " precision " << c.precision << " batch " << c.batch << " n "
                                    << c.n << " d " << c.d << " hidden " << c.hidden << " out " << c.out << " incoming "
                                    << c.incoming << " before " << c.gate_before << " mask " << c.mask);
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::cauchy_distribution<double> cauchy(0, 2);
  const size_t rows = static_cast<size_t>(c.batch * c.n * c.n),
               gate = static_cast<size_t>(c.gate_before ? c.hidden : c.out);
  const auto d = static_cast<size_t>(c.d), hidden = static_cast<size_t>(c.hidden), out = static_cast<size_t>(c.out);
  Numbers x(rows * d), mask;
  for (double& value : x) value = c.cauchy ? cauchy(random) : normal(random);
  const Memory x_memory = written(c.number, x);
  Memory mask_memory = allocate(rows * 4);
  if (c.mask != kNoMask) {
    for (size_t row = 0; row < rows; ++row) {
      mask.push_back(random() % 3 == 0     ? 0.0
                     : c.mask == kByteMask ? 1.0
                                           : 0.25 * static_cast<double>(1 + random() % 8));
      if (c.mask == kByteMask) static_cast<unsigned char*>(mask_memory.get())[row] = mask[row] != 0 ? 1 : 0;
      if (c.mask == kNumberMask) static_cast<float*>(mask_memory.get())[row] = static_cast<float>(mask[row]);
    }
  }
  Numbers weights[12];
  Memory memories[12];
  const size_t sizes[12] = {
      2 * hidden * d, 2 * hidden * d, out * hidden, gate * d, 2 * hidden, 2 * hidden, out, gate, d, d, hidden, hidden};
  for (size_t i = 0; i < 12; ++i) {
    if ((i >= 4 && i < 8 && !c.biases) || (i >= 8 && !c.norms)) continue;
    weights[i].resize(sizes[i]);
    const double scale = i < 4 ? 1 / std::sqrt(static_cast<double>(i == 2 ? hidden : d)) : 1.0;
    for (double& value : weights[i]) value = scale * normal(random);
    memories[i] = written(c.weights, weights[i]);
  }
  const Reference expected = reference(c, x, mask, weights);

  DeviceArguments a;
  a.shape = {c.batch, c.n, c.d, c.hidden, c.out, c.incoming, c.gate_before};
  a.weights = {memories[8].get(), memories[9].get(), memories[0].get(),  memories[4].get(),
               memories[1].get(), memories[5].get(), memories[10].get(), memories[11].get(),
               memories[2].get(), memories[6].get(), memories[3].get(),  memories[7].get()};
  a.weights_number = c.weights;
  a.number = c.number;
  a.precision = c.precision;
  a.x = x_memory.get();
  a.mask_kind = c.mask;
  a.mask = mask_memory.get();
  const Memory result = allocate(rows * out * size_of(c.number));
  a.out = result.get();
  const long long pitch = pitch_of(c.precision, c.n);
  const size_t plane = static_cast<size_t>(c.batch * c.hidden * c.n * pitch) * 2;
  const size_t slack = static_cast<size_t>(slack_of(c.precision, c.n)) * 2;
  const Memory left = allocate(plane), right = allocate(plane + slack), o = allocate(plane);
  a.keep = true;
  a.left = left.get();
  a.right = right.get();
  a.o = o.get();
  auto plan = fused_plan(a.shape, a.number, a.precision, a.mask_kind,
                         c.warpgroups ? cuda::limits_of_architecture(90) : cuda::device_limits(0));
  ASSERT_TRUE(plan.has_value());
  ASSERT_TRUE(plan->warpgroups || !c.warpgroups);
  fused_forward(*plan, a, allocate, nullptr);

  // A rounding of 16 bits is a relative 2^-9 (bfloat16) or 2^-12 (half) at most, three parts of ten in the mean.
  const double unit = c.precision == kBrain ? 1.0 / 256 : 1.0 / 2048;
  const int operand = operand_number(c.precision);
  const double factor = std::ldexp(1.0, left_exponent(c.precision, c.n));
  const auto planes = [&](const Memory& memory, double by) {
    Numbers numbers;
    for (size_t line = 0; line < static_cast<size_t>(c.batch * c.hidden * c.n); ++line) {
      for (size_t k = 0; k < static_cast<size_t>(c.n); ++k) {
        numbers.push_back(by * read(operand, memory.get(), line * static_cast<size_t>(pitch) + k));
      }
    }
    return numbers;
  };
  const auto results = [&](const Memory& memory) {
    Numbers numbers;
    for (size_t at = 0; at < rows * out; ++at) numbers.push_back(read(c.number, memory.get(), at));
    return numbers;
  };
  EXPECT_LT(error_of(planes(left, factor), expected.left), unit);
  EXPECT_LT(error_of(planes(right, 1), expected.right), unit);
  EXPECT_LT(error_of(planes(o, factor), expected.o), 1.5 * unit);
  const Numbers found = results(result);
  EXPECT_LT(error_of(found, expected.out), 2 * std::max(unit, c.number == kBfloat16 ? 1.0 / 256 : 0.0));

  // Left in the memory of out, the others allocated, o with more lines or partly where right was: the same bits.
  for (const bool in_halves : {false, true}) {
    plan->in_halves = in_halves;
    const Memory again = allocate(std::max(rows * out * size_of(c.number), plane));
    a.keep = false;
    a.left = a.out = again.get();
    a.right = a.o = nullptr;
    fused_forward(*plan, a, allocate, nullptr);
    EXPECT_EQ(std::memcmp(again.get(), result.get(), rows * out * size_of(c.number)), 0);
  }
}

TEST(EmulatedTriangle, RowsInRegisters) {
  compare({kFloat32, kBrain, 1, 8, 32, 32, 32});
  compare({kBfloat16, kBrain, 2, 7, 64, 32, 64, true, false, kByteMask, true});
  compare({kFloat16, kHalf, 1, 12, 32, 64, 96, false, true, kNumberMask, true});
  compare({kFloat32, kHalf, 2, 5, 96, 32, 32, true, true, kByteMask});
  compare({kFloat32, kHalf, 1, 1, 32, 32, 32, false, false, kNoMask, true, false, false});
}

TEST(EmulatedTriangle, RowsInSharedMemory) {
  compare({kFloat32, kBrain, 1, 8, 160, 32, 64, false, true, kByteMask, true});
  compare({kBfloat16, kBrain, 1, 12, 192, 32, 32, true, false, kNumberMask, true});
  compare({kFloat16, kBrain, 2, 7, 256, 64, 96, false, false});
  compare({kFloat32, kHalf, 1, 6, 768, 32, 768, true, true});
}

TEST(EmulatedTriangle, SizesOfModels) {
  compare({kBfloat16, kBrain, 1, 16, 128, 128, 128, false, false, kByteMask});
  compare({kFloat32, kHalf, 1, 13, 128, 128, 128, true, true, kNumberMask, true, true});
  compare({kFloat32, kHalf, 1, 10, 384, 128, 384, false, true, kByteMask});
  compare({kFloat16, kHalf, 1, 8, 64, 256, 64, true, false});
}

/// Heavy tails, where E[x^2] - mean^2 would cancel.
TEST(EmulatedTriangle, CauchyRows) {
  compare({kFloat32, kHalf, 1, 12, 128, 32, 128, false, true, kNoMask, false, true});
  compare({kFloat32, kBrain, 1, 6, 384, 32, 384, true, true, kByteMask, false, true});
}

Case with_warpgroups(Case c, int weights = kFloat32) {
  c.warpgroups = true;
  c.weights = weights;
  return c;
}

/// Products and epilogues of a warpgroup overlap where all weights are in shared memory.
TEST(EmulatedTriangle, Warpgroups) {
  compare(with_warpgroups({kBfloat16, kBrain, 1, 48, 128, 128, 128, false, false, kByteMask, true}));
  compare(with_warpgroups({kBfloat16, kBrain, 2, 13, 128, 128, 128, true, false, kNoMask, true}, kBfloat16));
  compare(with_warpgroups({kFloat16, kHalf, 1, 48, 64, 64, 64, true, false, kNumberMask, true},
                          kFloat16));  // parts in turn
  compare(with_warpgroups({kFloat32, kHalf, 1, 16, 128, 128, 128, false, true, kNumberMask, false, true}));
  // Blocks that take several parts of numbers of 32 bits, which come in two ways; many units of weights.
  compare(with_warpgroups({kFloat32, kHalf, 1, 40, 128, 128, 64, false, false, kByteMask, true}));
  compare(with_warpgroups({kFloat32, kBrain, 1, 37, 128, 64, 64, true, false, kNoMask, true}));
  compare(with_warpgroups({kFloat32, kBrain, 2, 31, 128, 128, 64, true, true, kNumberMask, true}));
  compare(with_warpgroups({kBfloat16, kBrain, 1, 24, 64, 256, 64, true, false, kByteMask, true}));
  compare(
      with_warpgroups({kBfloat16, kBrain, 1, 16, 128, 64, 128, true, false, kByteMask, true, true}));  // heavy tails
}

/// Rows whose squares overflow become zeros, no numbers, or what they should be; nothing finite beside that.
TEST(EmulatedTriangle, RowsThatOverflow) {
  constexpr size_t kN = 16, kWidth = 128, kRows = kN * kN;
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  Numbers x(kRows * kWidth);
  for (double& value : x) value = normal(random);
  for (size_t k = 0; k < kWidth; ++k) {
    x[5 * kWidth + k] *= 3e19;
    x[9 * kWidth + k] = (k == 0 ? -3e19 : 3e19) * (1 + 0.1 * x[9 * kWidth + k]);
    x[70 * kWidth + k] = -2e38 * (1 + 0.1 * x[70 * kWidth + k]);
  }
  const Memory x_memory = written(kBfloat16, x);
  Numbers weights[12];
  Memory memories[12];
  for (const size_t i : {0, 1, 2, 3}) {
    weights[i].resize((i < 2 ? 2 : 1) * kWidth * kWidth);
    for (double& value : weights[i]) value = normal(random) / std::sqrt(static_cast<double>(kWidth));
    memories[i] = written(kFloat32, weights[i]);
  }
  const Case c{kBfloat16, kBrain, 1, kN, kWidth, kWidth, kWidth};
  const Reference expected = reference(c, x, {}, weights);
  DeviceArguments a;
  a.shape = {1, kN, kWidth, kWidth, kWidth, false, false};
  a.weights.p_in_weight = memories[0].get();
  a.weights.g_in_weight = memories[1].get();
  a.weights.p_out_weight = memories[2].get();
  a.weights.g_out_weight = memories[3].get();
  a.weights_number = kFloat32;
  a.number = kBfloat16;
  a.precision = kBrain;
  a.x = x_memory.get();
  a.keep = true;
  const Memory left = allocate(kRows * kWidth * 2), right = allocate(kRows * kWidth * 2 + 4096),
               o = allocate(kRows * kWidth * 2), out = allocate(kRows * kWidth * 2);
  a.left = left.get();
  a.right = right.get();
  a.o = o.get();
  a.out = out.get();
  const auto plan = fused_plan(a.shape, a.number, a.precision, kNoMask, cuda::limits_of_architecture(90));
  ASSERT_TRUE(plan.has_value() && plan->overlapped);
  fused_forward(*plan, a, allocate, nullptr);
  for (size_t channel = 0; channel < kWidth; ++channel) {
    for (size_t row = 0; row < kRows; ++row) {
      const double found = read(kBfloat16, left.get(), channel * kRows + row),
                   wanted = expected.left[channel * kRows + row];
      const bool overflows = row == 5 || row == 9 || row == 70;
      if (overflows && (found == 0 || std::isnan(found))) continue;
      EXPECT_NEAR(found, wanted, 0.05) << channel << " " << row;
    }
  }
}

/// Weights in a ring, gates that are stored, and sets of channels in turn.
TEST(EmulatedTriangle, WarpgroupsInTurn) {
  compare(with_warpgroups({kFloat32, kHalf, 1, 12, 384, 128, 384, false, true, kByteMask, true}));
  compare(with_warpgroups({kBfloat16, kBrain, 1, 48, 128, 32, 64, false, false, kByteMask, true}));
  compare(with_warpgroups({kFloat16, kBrain, 1, 40, 64, 96, 64, true, false, kNumberMask}));
}

TEST(EmulatedTriangle, PlansOfOtherShapes) {
  const cuda::DeviceLimits hopper = cuda::limits_of_architecture(90), workstation = cuda::limits_of_architecture(120);
  const Shape usual{1, 64, 128, 128, 128, false, false};
  EXPECT_TRUE(fused_plan(usual, kFloat32, kBrain, kNoMask, hopper)->in_resident);
  EXPECT_FALSE(fused_plan(usual, kFloat32, kBrain, kNoMask, workstation)->in_resident);
  EXPECT_EQ(fused_plan({1, 64, 384, 128, 384, false, true}, kFloat32, kHalf, kNoMask, workstation)->row_warps, 2);
  EXPECT_EQ(fused_plan({1, 64, 352, 128, 384, false, true}, kFloat32, kHalf, kNoMask, hopper)->in_high, 2);
  // Warpgroups take columns of x in matrices of 64; weights are in shared memory, or matrices of them in a ring.
  // Two parts of rows, or one and twice as many copies of rows under way.
  const auto narrow = fused_plan(usual, kBfloat16, kBrain, kNoMask, hopper);
  EXPECT_TRUE(narrow->overlapped && narrow->stages == 16 && narrow->buffers == 2 && narrow->slots == 2);
  const auto of_floats = fused_plan(usual, kFloat32, kBrain, kNoMask, hopper);
  EXPECT_TRUE(of_floats->overlapped && of_floats->stages == 16 && of_floats->buffers == 1 && of_floats->slots == 2);
  const auto middle = fused_plan({1, 64, 384, 128, 384, false, true}, kFloat32, kHalf, kNoMask, hopper);
  EXPECT_TRUE(middle->warpgroups && !middle->in_resident && middle->stages == 4 && middle->buffers == 2);
  const auto wide = fused_plan({1, 64, 768, 128, 768, false, true}, kFloat32, kHalf, kNoMask, hopper);
  EXPECT_TRUE(wide->warpgroups && !wide->in_resident && wide->stages == 4 && wide->buffers == 1);
  EXPECT_FALSE(fused_plan(usual, kFloat32, kBrain, kNoMask, workstation)->warpgroups);
  EXPECT_FALSE(fused_plan({1, 64, 48, 128, 128, false, false}, kFloat32, kBrain, kNoMask, hopper));
  EXPECT_FALSE(fused_plan({1, 64, 128, 288, 128, false, false}, kFloat32, kBrain, kNoMask, hopper));
  EXPECT_FALSE(fused_plan(usual, kFloat32, kTf32, kNoMask, hopper));
  EXPECT_FALSE(fused_plan(usual, kFloat32, kBrain, kNoMask, cuda::limits_of_architecture(75)));
}

}  // namespace
}  // namespace clebsch::testing
