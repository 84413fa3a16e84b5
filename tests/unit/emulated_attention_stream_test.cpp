// The CUDA kernels of streamed attention in the emulator, against the CPU's, which compute in double precision: 16-bit
// tensor cores, double precision, masks, biases, softmax, grouped heads, offsets, multiplicity, gradients.
#include <gtest/gtest.h>

#include <random>

#include "attention_tensors.h"
#include "multilinear/attention/device_stream.h"
#include "multilinear/attention/stream.h"

namespace clebsch::testing {
namespace {

using namespace attention;

struct Case {
  int number, heads, key_heads, d, dv;
  int64_t queries, keys;
  int normalise = kL2, mask = kNoMask;
  bool bias = false, multiplicity = false;
  std::vector<int> offsets = {};
  double size = 1;  ///< of queries and keys
  int sequences = 1;
  bool shared = false;  ///< mask and bias are the same for all heads and sequences
};

void compare(const Case& c, double output_error, double gradient_error) {
  SCOPED_TRACE(::testing::Message() << c.number << " " << c.d << " " << c.dv << " " << c.queries << " " << c.keys << " "
                                    << c.normalise << c.mask << c.bias << c.multiplicity);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const int64_t query_rows = c.sequences * c.heads * c.queries, key_rows = c.sequences * c.key_heads * c.keys;
  const int64_t pairs = (c.shared ? 1 : c.sequences * c.heads) * c.queries * c.keys;
  const int real = c.number == kFloat64 ? kFloat64 : kFloat32;
  Tensor q(c.number, query_rows * c.d), k(c.number, key_rows * c.d), v(c.number, key_rows * c.dv),
      m(c.number, c.sequences * c.keys), mask(c.number, pairs), bias(c.number, pairs),
      grad(c.number, query_rows * c.dv), grad_norm(real, query_rows);
  for (Tensor* tensor : {&q, &k, &v, &m, &mask, &bias, &grad, &grad_norm}) {
    for (size_t at = 0; at < tensor->count; ++at) tensor->set(at, normal(random));
  }
  for (Tensor* tensor : {&q, &k}) {
    for (size_t at = 0; at < tensor->count; ++at) {
      tensor->set(at, static_cast<float>(c.size * tensor->get(at)));
    }
  }
  std::vector<unsigned char> seen(static_cast<size_t>(pairs));
  for (unsigned char& one : seen) one = normal(random) > -0.5f;
  struct Results {
    Tensor out, norm, grad_q, grad_k, grad_v, grad_m, grad_bias;
  };
  const auto made = [&] {
    return Results{Tensor(c.number, query_rows * c.dv),
                   Tensor(real, query_rows),
                   Tensor(c.number, query_rows * c.d),
                   Tensor(c.number, key_rows * c.d),
                   Tensor(c.number, key_rows * c.dv),
                   Tensor(real, key_rows),
                   Tensor(c.number, pairs)};
  };
  Results host = made(), device = made();
  const auto arguments = [&](Results& r) {
    StreamArguments a;
    const int sequences = c.offsets.empty() ? c.sequences : static_cast<int>(c.offsets.size()) - 1;
    a.shape = {sequences, c.heads,   c.key_heads, c.d,
               c.dv,      c.queries, c.keys,      c.offsets.empty() ? nullptr : c.offsets.data()};
    const Pairs places{nullptr, c.shared ? 0 : c.heads * c.queries * c.keys, c.shared ? 0 : c.queries * c.keys, c.keys,
                       1};
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    if (c.multiplicity) a.multiplicity = m.data();
    if (c.mask) {
      a.mask = places;
      a.mask.data = c.mask == kBoolMask ? seen.data() : mask.data();
    }
    if (c.bias) {
      a.bias = places;
      a.bias.data = bias.data();
      a.grad_bias = {r.grad_bias.data(), {c.shared ? 1 : c.sequences, c.shared ? 1 : c.heads, c.queries, c.keys}};
    }
    a.eps = 1e-3;
    if (c.normalise == kSoftmax) a.scale = 0.25;
    a.out = r.out.data();
    a.norm = r.norm.data();
    a.grad = grad.data();
    a.grad_norm = grad_norm.data();
    a.grad_q = r.grad_q.data();
    a.grad_k = r.grad_k.data();
    a.grad_v = r.grad_v.data();
    if (c.multiplicity) a.grad_multiplicity = r.grad_m.data();
    return a;
  };
  const StreamArguments a = arguments(host);
  StreamArguments b = arguments(device);
  const HostStream on_host{a, c.number, c.normalise, c.mask};
  const float largest[2] = {8, 8};
  b.largest = largest;
  const StreamKind kind{c.number, c.d, c.dv, c.normalise, c.mask, c.bias, c.multiplicity};
  host_stream_forward(on_host);
  device_stream_forward(kind, b, allocate, nullptr);
  EXPECT_LT(worst(device.out, host.out), output_error);
  EXPECT_LT(worst(device.norm, host.norm), output_error);
  host_stream_backward(on_host);
  device_stream_backward(kind, b, allocate, nullptr);
  EXPECT_LT(worst(device.grad_q, host.grad_q), gradient_error);
  EXPECT_LT(worst(device.grad_k, host.grad_k), gradient_error);
  EXPECT_LT(worst(device.grad_v, host.grad_v), gradient_error);
  if (c.multiplicity) {
    EXPECT_LT(worst(device.grad_m, host.grad_m), gradient_error);
  }
  if (c.bias) {
    EXPECT_LT(worst(device.grad_bias, host.grad_bias), gradient_error);
  }
}

TEST(EmulatedStream, InDoublePrecision) {
  compare({kFloat64, 2, 1, 9, 17, 19, 37}, 1e-11, 1e-11);
  compare({kFloat64, 2, 2, 8, 8, 20, 33, kL2, kNumberMask, true, true}, 1e-11, 1e-11);
  compare({kFloat32, 2, 1, 8, 5, 12, 12, kSoftmax, kBoolMask, true, true, {0, 0, 7, 12}}, 1e-5, 1e-5);
  compare({kFloat64, 2, 1, 8, 8, 5, 0}, 1e-11, 1e-11);
}

TEST(EmulatedStream, SixteenBits) {
  // Weights and outputs are rounded: the largest difference beside the root mean square.
  compare({kFloat16, 2, 1, 32, 16, 40, 100}, 5e-3, 2e-2);
  compare({kFloat16, 2, 1, 64, 64, 70, 80, kL2, kBoolMask}, 5e-3, 2e-2);
  compare({kBfloat16, 1, 1, 16, 32, 33, 70, kL2, kNumberMask, true, true}, 4e-2, 1e-1);
  compare({kFloat16, 2, 2, 32, 32, 40, 40, kL2, kNoMask, true, true, {0, 33, 33, 40}}, 1e-2, 2e-2);
}

TEST(EmulatedStream, LargeAndSmallSixteenBits) {
  compare({kFloat16, 1, 1, 128, 128, 40, 70, kL2, kBoolMask, true}, 5e-3, 2e-2);
  compare({kFloat16, 1, 1, 32, 32, 20, 50, kL2, kNoMask, false, false, {}, 1e3}, 5e-3, 2e-2);
  compare({kFloat16, 1, 1, 32, 32, 20, 50, kL2, kNoMask, false, false, {}, 1e-2}, 5e-3, 3e-2);
}

TEST(EmulatedStream, SoftmaxInSixteenBits) {
  compare({kFloat16, 2, 1, 32, 32, 45, 72, kSoftmax, kNoMask, true}, 1e-2, 2e-2);
  compare({kBfloat16, 1, 1, 32, 32, 20, 40, kSoftmax, kBoolMask, false, true, {}, 1, 2, true}, 4e-2, 1e-1);
}

}  // namespace
}  // namespace clebsch::testing
