// The composed forward pass and the backward pass of the triangle multiplicative update in the emulator, against the
// CPU's in double precision: every precision, both directions and gate orders, masks, biases, odd sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "multilinear/host_numbers.h"
#include "multilinear/triangle/composed_pass.h"
#include "multilinear/triangle/device_composed.h"
#include "multilinear/triangle/device_triangle.h"
#include "multilinear/triangle/host_triangle.h"

namespace clebsch::testing {
namespace {

using namespace triangle;

/// Device memory is the host's, filled with what is no number.
Memory allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  std::memset(memory, 0xff, bytes);
  return Memory(memory, std::free);
}

size_t size_of(int number) { return number == kFloat64 ? 8 : number == kFloat32 ? 4 : 2; }

/// Numbers of a type.
struct Tensor {
  int number = kFloat64;
  size_t count = 0;
  Memory memory;
  Tensor() = default;
  Tensor(int type, int64_t size)
      : number(type), count(static_cast<size_t>(size)), memory(allocate(count * size_of(type))) {}
  void* data() const { return memory.get(); }
  template <typename T>
  T& at(size_t i) const {
    return static_cast<T*>(memory.get())[i];
  }
  double get(size_t i) const {
    return number == kFloat64   ? at<double>(i)
           : number == kFloat32 ? to_double(at<float>(i))
           : number == kFloat16 ? to_double(at<Half>(i))
                                : to_double(at<Brain>(i));
  }
  void set(size_t i, double x) const {
    if (number == kFloat64) at<double>(i) = x;
    if (number == kFloat32) at<float>(i) = static_cast<float>(x);
    if (number == kFloat16) at<Half>(i) = from_double<Half>(x);
    if (number == kBfloat16) at<Brain>(i) = from_double<Brain>(x);
  }
};

struct Case {
  int number = kFloat32, precision = kIeee, mask = kNoMask;
  int64_t batch = 1, n = 9;
  int d = 32, hidden = 16, out = 48;
  bool incoming = false, before = false, biases = true;
  double grad_size = 1;
  bool of_mask = true;  ///< whether the gradient of a mask of numbers is wanted
};

/// The root mean square of a - b beside that of b.
double error(const Tensor& a, const Tensor& b) {
  double difference = 0, scale = 0;
  for (size_t i = 0; i < b.count; ++i) {
    difference += (a.get(i) - b.get(i)) * (a.get(i) - b.get(i));
    scale += b.get(i) * b.get(i);
  }
  return std::isfinite(difference) ? std::sqrt(difference / (scale + 1e-300)) : INFINITY;
}

struct Problem {
  Case c;
  std::mt19937 random{11};
  Arguments device, host;
  std::vector<Tensor> kept;
  std::vector<std::pair<const char*, std::pair<Tensor, Tensor>>> gradients;
  std::vector<void * Gradients::*> members;  ///< where each of them goes
  Tensor out, host_out;

  Tensor keep(const Tensor& tensor) {
    kept.push_back(tensor);
    return tensor;
  }

  /// Random numbers of a type, and the same numbers as doubles.
  std::pair<const void*, const void*> numbers(int type, int64_t count, double size, double middle = 0) {
    std::normal_distribution<double> normal(middle, size);
    const Tensor a = keep({type, count}), b = keep({kFloat64, count});
    for (size_t i = 0; i < a.count; ++i) {
      a.set(i, normal(random));
      b.set(i, a.get(i));
    }
    return {a.data(), b.data()};
  }

  explicit Problem(const Case& given) : c(given) {
    const int64_t rows = c.batch * c.n * c.n, gate = c.before ? c.hidden : c.out;
    device.shape = {c.batch, c.n, c.d, c.hidden, c.out, c.incoming, c.before};
    device.number = c.number;
    device.weights_number = c.precision == kDouble ? kFloat64 : kFloat32;
    device.precision = c.precision;
    device.mask_kind = c.mask;
    device.keep = true;
    host = device;
    host.number = host.weights_number = kFloat64;
    host.precision = kDouble;
    std::tie(device.x, host.x) = numbers(c.number, rows * c.d, 1.5, 0.7);
    std::tie(device.grad, host.grad) = numbers(c.number, rows * c.out, c.grad_size);
    if (c.mask == kByteMask) {
      const Tensor mask = keep({kFloat64, rows});
      for (int64_t i = 0; i < rows; ++i) static_cast<unsigned char*>(mask.data())[i] = random() % 4 != 0;
      device.mask = host.mask = mask.data();
    } else if (c.mask == kNumberMask) {
      const Tensor a = keep({c.precision == kDouble ? kFloat64 : kFloat32, rows}), b = keep({kFloat64, rows});
      for (size_t i = 0; i < a.count; ++i) {
        a.set(i, random() % 4 == 0 ? 0 : static_cast<double>(random() % 1000) / 500);
        b.set(i, a.get(i));
      }
      device.mask = a.data();
      host.mask = b.data();
    }
    const int sums = c.precision == kDouble ? kFloat64 : kFloat32;
    const int rounded = c.precision == kBrain ? kBfloat16 : sums;  // gradients of weights
    device.gradients_number = rounded;
    const auto weight = [&](const char* name, const void* Weights::*member, void* Gradients::*grad, int64_t count,
                            double size, double middle, bool given_too) {
      if (given_too)
        std::tie(device.weights.*member, host.weights.*member) = numbers(device.weights_number, count, size, middle);
      add_gradient(name, grad, rounded, count);
    };
    const double of_d = 1 / std::sqrt(c.d), of_hidden = 1 / std::sqrt(c.hidden);
    weight("norm_in_weight", &Weights::norm_in_weight, &Gradients::norm_in_weight, c.d, 0.2, 1, c.biases);
    weight("norm_in_bias", &Weights::norm_in_bias, &Gradients::norm_in_bias, c.d, 0.2, 0, c.biases);
    weight("p_in_weight", &Weights::p_in_weight, &Gradients::p_in_weight, 2 * c.hidden * c.d, of_d, 0, true);
    weight("p_in_bias", &Weights::p_in_bias, &Gradients::p_in_bias, 2 * c.hidden, 0.3, 0, c.biases);
    weight("g_in_weight", &Weights::g_in_weight, &Gradients::g_in_weight, 2 * c.hidden * c.d, of_d, 0, true);
    weight("g_in_bias", &Weights::g_in_bias, &Gradients::g_in_bias, 2 * c.hidden, 0.3, 0, c.biases);
    weight("norm_out_weight", &Weights::norm_out_weight, &Gradients::norm_out_weight, c.hidden, 0.2, 1, c.biases);
    weight("norm_out_bias", &Weights::norm_out_bias, &Gradients::norm_out_bias, c.hidden, 0.2, 0, c.biases);
    weight("p_out_weight", &Weights::p_out_weight, &Gradients::p_out_weight, c.out * c.hidden, of_hidden, 0, true);
    weight("p_out_bias", &Weights::p_out_bias, &Gradients::p_out_bias, c.out, 0.3, 0, c.biases);
    weight("g_out_weight", &Weights::g_out_weight, &Gradients::g_out_weight, gate * c.d, of_d, 0, true);
    weight("g_out_bias", &Weights::g_out_bias, &Gradients::g_out_bias, gate, 0.3, 0, c.biases);
    add_gradient("x", &Gradients::x, c.number, rows * c.d);
    if (c.mask == kNumberMask && c.of_mask) add_gradient("mask", &Gradients::mask, sums, rows);
    out = {c.number, rows * c.out};
    host_out = {kFloat64, rows * c.out};
    device.out = out.data();
    host.out = host_out.data();
    const int64_t planes = c.batch * c.hidden * c.n;
    for (void* Arguments::*member : {&Arguments::left, &Arguments::right, &Arguments::o}) {
      device.*member = keep({operand_number(c.precision), planes * pitch_of(c.precision, c.n)}).data();
      host.*member = keep({kFloat64, planes * pitch_of(kDouble, c.n)}).data();
    }
  }

  /// Number i of a tensor, on both sides.
  void set(const void* Arguments::*tensor, int64_t i, double to) {
    Tensor on_device;
    on_device.number = c.number;
    on_device.memory = Memory(const_cast<void*>(device.*tensor), [](void*) {});
    on_device.set(static_cast<size_t>(i), to);
    static_cast<double*>(const_cast<void*>(host.*tensor))[i] = to;
  }

  void run() {
    composed_forward(device, allocate, nullptr);
    host_forward(host);
    device_backward(device, allocate, nullptr);
    host_backward(host);
  }

  void add_gradient(const char* name, void* Gradients::*grad, int number, int64_t count) {
    const Tensor a(number, count), b(kFloat64, count);
    device.gradients.*grad = a.data();
    host.gradients.*grad = b.data();
    gradients.push_back({name, {a, b}});
    members.push_back(grad);
  }
};

void compare(const Case& c, double output_error, double gradient_error) {
  SCOPED_TRACE(::testing::Message() << "number " << c.number << " precision " << c.precision << " mask " << c.mask
                                    << " n " << c.n << " d " << c.d << " hidden " << c.hidden << " out " << c.out
                                    << (c.incoming ? " incoming" : "") << (c.before ? " before" : ""));
  Problem p(c);
  p.run();
  EXPECT_LT(error(p.out, p.host_out), output_error);
  for (const auto& [name, pair] : p.gradients) EXPECT_LT(error(pair.first, pair.second), gradient_error) << name;
}

// Kernels are compiled for number, precision, mask, widths and gate order: cases share them where they can.
TEST(EmulatedTriangleBackward, DoublePrecision) {
  compare({kFloat64, kDouble, kNumberMask, 2, 5, 16, 32, 48, false, false}, 1e-12, 1e-11);
  compare({kFloat64, kDouble, kNumberMask, 1, 9, 16, 32, 48, true, false}, 1e-12, 1e-11);
  compare({kFloat64, kDouble, kNumberMask, 2, 1, 16, 32, 48, false, false, false}, 1e-12, 1e-9);
  compare({kFloat64, kDouble, kNoMask, 1, 7, 32, 48, 16, false, true}, 1e-12, 1e-11);
  compare({kFloat64, kDouble, kNoMask, 2, 6, 32, 48, 16, true, true, false}, 1e-12, 1e-11);
}

TEST(EmulatedTriangleBackward, ThirtyTwoBits) {
  compare({kFloat32, kIeee, kNumberMask, 1, 11, 32, 32, 32, false, false}, 1e-6, 5e-6);
  compare({kFloat32, kTf32x3, kNumberMask, 2, 6, 32, 32, 16, false, true}, 1e-5, 2e-5);
  compare({kFloat32, kTf32x3, kNumberMask, 1, 9, 32, 32, 16, true, true}, 1e-5, 2e-5);
  compare({kFloat32, kTf32, kByteMask, 1, 9, 32, 32, 32, false, false}, 2e-3, 5e-3);
}

TEST(EmulatedTriangleBackward, SixteenBits) {
  compare({kBfloat16, kBrain, kNumberMask, 1, 13, 32, 32, 32, false, false}, 2e-2, 3e-2);
  compare({kFloat16, kHalf, kByteMask, 1, 13, 48, 16, 32, true, false}, 3e-3, 5e-3);
  compare({kFloat32, kHalf, kNumberMask, 1, 12, 32, 48, 16, false, true, true, 1e-7}, 3e-3, 5e-3);
  compare({kFloat32, kHalf, kNumberMask, 1, 12, 32, 48, 16, true, true, false, 1e6}, 3e-3, 5e-3);
}

// Sizes that the fused kernels take.
TEST(EmulatedTriangleBackward, Fused) {
  compare({kBfloat16, kBrain, kNumberMask, 1, 16, 64, 64, 32, false, false}, 2e-2, 3e-2);
  compare({kFloat32, kHalf, kByteMask, 2, 8, 64, 64, 64, true, false, true, 1e-7}, 3e-3, 5e-3);
  compare({kFloat16, kHalf, kNoMask, 1, 24, 64, 128, 32, false, false, false}, 3e-3, 5e-3);
  compare({kBfloat16, kBrain, kByteMask, 1, 16, 128, 128, 128, true, false}, 2e-2, 3e-2);
}

// By warpgroups, where nobody in this process has asked for the device before.
TEST(EmulatedTriangleBackward, FusedFor128) {
  setenv("CLEBSCH_EMULATED_HOPPER", "1", 1);
  compare({kBfloat16, kBrain, kByteMask, 1, 56, 128, 128, 128, true, false}, 2e-2, 3e-2);
  compare({kBfloat16, kBrain, kByteMask, 1, 16, 128, 128, 128, true, false}, 2e-2, 3e-2);  // warpgroups without a tile
  compare({kBfloat16, kBrain, kNoMask, 3, 16, 128, 128, 128, false, false, false}, 2e-2, 3e-2);
  compare({kFloat32, kHalf, kNumberMask, 2, 24, 128, 128, 128, false, false, true, 1e-7}, 3e-3, 5e-3);
  compare({kFloat32, kHalf, kNumberMask, 2, 24, 128, 128, 128, false, false, true, 1e-7, false}, 3e-3, 5e-3);
  compare({kFloat32, kBrain, kNumberMask, 1, 24, 128, 128, 128, false, false, true, 1, false}, 2e-2, 3e-2);
  compare({kBfloat16, kBrain, kNumberMask, 1, 24, 128, 128, 128, true, false, true, 1, false}, 2e-2, 3e-2);
  compare({kFloat16, kHalf, kByteMask, 1, 8, 128, 128, 128, true, false}, 3e-3, 5e-3);  // a single tile
  compare({kFloat32, kHalf, kNoMask, 2, 16, 128, 128, 128, false, false, false, 1e6}, 3e-3, 5e-3);
}

// Lines of more than one tile of rows.
TEST(EmulatedTriangleBackward, LongLines) {
  compare({kFloat32, kIeee, kNumberMask, 1, 67, 32, 32, 32, false, false}, 1e-6, 1e-5);
  compare({kBfloat16, kBrain, kNumberMask, 1, 70, 32, 32, 32, true, false}, 2e-2, 3e-2);
}

// Chunks of lines add to the same sums.
TEST(EmulatedTriangleBackward, SeveralChunks) {
  const int64_t before = least_chunk_bytes.exchange(0);
  compare({kFloat32, kIeee, kNumberMask, 1, 11, 32, 32, 32, false, false}, 1e-6, 5e-6);
  compare({kFloat32, kTf32x3, kNumberMask, 2, 6, 32, 32, 16, false, true}, 1e-5, 2e-5);
  compare({kFloat32, kHalf, kByteMask, 2, 8, 64, 64, 64, true, false, true, 1e-7}, 3e-3, 5e-3);
  least_chunk_bytes = before;
}

// What is behind a mask of 0 does not matter for the gradients of weights: rows that are not numbers and, without an
// eps, rows that have no deviation.
TEST(EmulatedTriangleBackward, NothingLeaksFromBehindAMask) {
  setenv("CLEBSCH_EMULATED_HOPPER", "1", 1);
  for (const Case& c : {Case{kFloat32, kTf32, kByteMask, 1, 6, 32, 32, 32, false, false},
                        Case{kFloat32, kTf32, kByteMask, 1, 6, 32, 32, 32, false, true},
                        Case{kFloat32, kHalf, kByteMask, 2, 8, 64, 64, 64, true, false},
                        Case{kFloat32, kHalf, kByteMask, 1, 16, 128, 128, 128, false, false},
                        Case{kFloat16, kHalf, kByteMask, 1, 16, 128, 128, 128, false, false}}) {
    for (const double behind : {static_cast<double>(NAN), 2.0}) {
      Problem p(c);
      if (behind == 2) p.device.eps = p.host.eps = 0;
      for (int64_t row = 0; row < c.batch * c.n * c.n; ++row) {
        if (static_cast<const unsigned char*>(p.device.mask)[row]) continue;
        for (int64_t i = 0; i < c.d; ++i) p.set(&Arguments::x, row * c.d + i, behind);
        for (int64_t i = 0; i < c.out; ++i) p.set(&Arguments::grad, row * c.out + i, 0);
      }
      p.run();
      for (const auto& [name, pair] : p.gradients) {
        if (std::string(name) == "x") continue;
        EXPECT_LT(error(pair.first, pair.second), 5e-3) << name << c.before << behind;
      }
    }
  }
}

// Padded lines of o are zeros: 1 / deviation is large, and with large weights the gradient of o more than a half can
// be.
TEST(EmulatedTriangleBackward, PaddedLines) {
  setenv("CLEBSCH_EMULATED_HOPPER", "1", 1);
  for (const Case& c : {Case{kFloat32, kHalf, kByteMask, 1, 18, 32, 32, 32, false, false},
                        Case{kFloat32, kHalf, kNumberMask, 1, 24, 64, 64, 32, true, false, true, 1, false},
                        Case{kFloat32, kHalf, kByteMask, 1, 24, 64, 64, 64, false, false},
                        Case{kFloat16, kHalf, kByteMask, 1, 24, 128, 128, 128, false, false},
                        Case{kFloat32, kHalf, kNumberMask, 1, 24, 128, 128, 128, true, false, true, 1, false}}) {
    Problem p(c);
    const int64_t length = c.n * 3 / 4;
    const int larger = c.hidden == 32 ? 128 : 32;
    for (int64_t row = 0; row < c.n * c.n; ++row) {
      for (int64_t i = 0; i < c.out; ++i) p.set(&Arguments::grad, row * c.out + i, 1);
      if (row / c.n < length && row % c.n < length) continue;
      if (c.mask == kByteMask) {
        static_cast<unsigned char*>(const_cast<void*>(p.device.mask))[row] = 0;
      } else {
        static_cast<float*>(const_cast<void*>(p.device.mask))[row] = 0;
        static_cast<double*>(const_cast<void*>(p.host.mask))[row] = 0;
      }
    }
    for (int i = 0; i < c.out * c.hidden; ++i) {
      static_cast<float*>(const_cast<void*>(p.device.weights.p_out_weight))[i] *= larger;
      static_cast<double*>(const_cast<void*>(p.host.weights.p_out_weight))[i] *= larger;
    }
    p.run();
    for (const auto& [name, pair] : p.gradients) {
      EXPECT_LT(error(pair.first, pair.second), 5e-3) << name << " " << c.d << " " << c.out;
    }
  }
}

// Without a mask all that depends on a row that is no number is none either, but what a gradient of 0 is multiplied
// with.
TEST(EmulatedTriangleBackward, RowsThatAreNoNumbers) {
  setenv("CLEBSCH_EMULATED_HOPPER", "1", 1);
  for (const Case& c : {Case{kFloat32, kHalf, kNoMask, 2, 8, 64, 64, 64, false, false},
                        Case{kFloat16, kHalf, kNoMask, 2, 16, 128, 128, 128, false, false},
                        Case{kFloat32, kHalf, kNoMask, 2, 16, 128, 128, 128, true, false},
                        Case{kBfloat16, kBrain, kNoMask, 2, 16, 128, 128, 128, true, false}}) {
    constexpr int64_t kNone = 5, kOther = 3;
    for (const bool zeros : {false, true}) {
      Problem p(c);
      for (int64_t i = 0; i < c.d; ++i) p.set(&Arguments::x, (kNone * c.n + kOther) * c.d + i, NAN);
      for (int64_t row = 0; zeros && row < c.n * c.n; ++row) p.set(&Arguments::grad, row * c.out + 7, 0);
      p.run();
      for (const auto& [name, pair] : p.gradients) {
        const std::string all(name);
        const bool bias = all == "p_out_bias" || all == "g_out_bias";
        if (zeros && !bias) continue;
        for (size_t i = 0; i < pair.first.count; ++i) {
          ASSERT_EQ(std::isnan(pair.first.get(i)), zeros ? i != 7 : std::isnan(pair.second.get(i)))
              << name << " " << i << " " << c.d << c.number << zeros;
        }
      }
    }
  }
}

// A gradient that is no number is so for all that shares an index with it, by way of o's gradient: that is kept within
// the range of its type in fp16, which must not make a number of it.
TEST(EmulatedTriangleBackward, GradientsThatAreNoNumbers) {
  setenv("CLEBSCH_EMULATED_HOPPER", "1", 1);
  for (const Case& c : {Case{kFloat32, kHalf, kNoMask, 1, 8, 64, 64, 64, false, false},
                        Case{kFloat16, kHalf, kNoMask, 1, 16, 128, 128, 128, false, false},
                        Case{kBfloat16, kBrain, kNoMask, 1, 16, 128, 128, 128, true, false}}) {
    constexpr int64_t kRow = 5, kColumn = 3;
    Problem p(c);
    for (int64_t i = 0; i < c.out; ++i) p.set(&Arguments::grad, (kRow * c.n + kColumn) * c.out + i, NAN);
    p.run();
    for (const auto& [name, pair] : p.gradients) {
      size_t none = 0;
      for (size_t i = 0; i < pair.first.count; ++i) {
        ASSERT_EQ(std::isnan(pair.first.get(i)), std::isnan(pair.second.get(i))) << name << " " << i << " " << c.d;
        none += std::isnan(pair.first.get(i)) ? 1 : 0;
      }
      EXPECT_TRUE(std::string(name) != "x" || none >= static_cast<size_t>(c.n * c.d)) << none << " " << c.d;
    }
  }
}

// Without places for them no gradient is made, and the others are the same bits.
TEST(EmulatedTriangleBackward, OnlyWhatIsWanted) {
  setenv("CLEBSCH_EMULATED_HOPPER", "1", 1);
  for (const Case& c : {Case{kFloat32, kIeee, kNumberMask, 1, 6, 32, 32, 32, false, false},
                        Case{kFloat32, kTf32x3, kNumberMask, 1, 6, 32, 32, 16, false, true},
                        Case{kFloat16, kHalf, kByteMask, 1, 16, 128, 128, 128, false, false}}) {
    Problem p(c);
    composed_forward(p.device, allocate, nullptr);
    device_backward(p.device, allocate, nullptr);
    for (const auto& wanted :
         std::vector<std::vector<std::string>>{{"x"},
                                               {"p_in_weight", "norm_out_bias", "g_out_bias"},
                                               {"g_in_bias", "p_out_weight", "norm_in_weight", "x"}}) {
      Arguments some = p.device;
      some.gradients = {};
      std::vector<std::pair<Tensor, Tensor>> found;
      for (size_t i = 0; i < p.gradients.size(); ++i) {
        const auto& [name, pair] = p.gradients[i];
        if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
        found.push_back({{pair.first.number, static_cast<int64_t>(pair.first.count)}, pair.first});
        some.gradients.*p.members[i] = found.back().first.data();
      }
      EXPECT_EQ(found.size(), wanted.size());
      device_backward(some, allocate, nullptr);
      for (const auto& [one, whole] : found) {
        EXPECT_EQ(std::memcmp(one.data(), whole.data(), one.count * size_of(one.number)), 0) << wanted[0] << c.d;
      }
    }
  }
}

}  // namespace
}  // namespace clebsch::testing
