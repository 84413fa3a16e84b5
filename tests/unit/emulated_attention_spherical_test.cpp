// The CUDA kernels of spherical attention in the emulator, against the CPU's, which compute in double precision:
// 16-bit tensor cores, the sums in double precision, grouped heads, offsets, multiplicity, flagged queries, gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "attention_tensors.h"
#include "multilinear/attention/device_spherical.h"
#include "multilinear/attention/spherical.h"

namespace clebsch::testing {
namespace {

using namespace attention;

struct Case {
  int number, sequences, heads, key_heads, d, dv;
  int64_t queries, keys;
  bool multiplicity = false, flagged = false;
  std::vector<int> offsets = {};
  bool uneven = false;  ///< queries of sizes from 1 to 2^-7, large gradients
  bool causal = false;
  bool masked = false;  ///< multiplicities are 0 and 1
};

void compare(const Case& c, double output_error, double gradient_error) {
  SCOPED_TRACE(::testing::Message() << c.number << " " << c.d << " " << c.dv << " " << c.queries << " " << c.keys);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const int64_t batch = c.offsets.empty() ? c.sequences : 1;
  const int64_t query_rows = batch * c.heads * c.queries, key_rows = batch * c.key_heads * c.keys;
  const int real = c.number == kFloat64 ? kFloat64 : kFloat32;
  Tensor q(c.number, query_rows * c.d), k(c.number, key_rows * c.d), v(c.number, key_rows * c.dv),
      m(c.number, batch * c.keys), grad(c.number, query_rows * c.dv), grad_norm(real, query_rows);
  for (Tensor* tensor : {&q, &k, &v, &m, &grad, &grad_norm}) {
    for (size_t at = 0; at < tensor->count; ++at) tensor->set(at, normal(random));
  }
  for (size_t at = 0; c.masked && at < m.count; ++at) m.set(at, at % 3 == 1 ? 0.0f : 1.0f);
  if (c.flagged) {  // keys have next to nothing in the second half of the columns, where every third query lives
    for (size_t at = 0; at < k.count; ++at) {
      if (static_cast<int>(at % static_cast<size_t>(c.d)) >= c.d / 2) k.set(at, 1e-3f * normal(random));
    }
    for (size_t at = 0; at < q.count; ++at) {
      if (at / static_cast<size_t>(c.d) % 3 == 0 && static_cast<int>(at % static_cast<size_t>(c.d)) < c.d / 2)
        q.set(at, 0);
    }
  }
  if (c.uneven) {
    for (size_t at = 0; at < q.count; ++at) {
      q.set(at, static_cast<float>(std::ldexp(q.get(at), -static_cast<int>(at / static_cast<size_t>(c.d) % 8))));
    }
    for (size_t at = 0; at < grad.count; ++at) grad.set(at, static_cast<float>(64 * grad.get(at)));
  }
  const int64_t sums = int64_t{c.sequences} * c.key_heads * c.d * (c.d + c.dv);
  struct Results {
    Tensor out, norm, grad_q, grad_k, grad_v, grad_m;
    std::vector<double> sums;
  };
  const auto made = [&] {
    return Results{Tensor(c.number, query_rows * c.dv),
                   Tensor(real, query_rows),
                   Tensor(c.number, query_rows * c.d),
                   Tensor(c.number, key_rows * c.d),
                   Tensor(c.number, key_rows * c.dv),
                   Tensor(real, key_rows),
                   std::vector<double>(static_cast<size_t>(sums))};
  };
  Results host = made(), device = made();
  const auto fill = [&](auto& a, Results& r) {
    a.shape = {c.sequences, c.heads,   c.key_heads, c.d,
               c.dv,        c.queries, c.keys,      c.offsets.empty() ? nullptr : c.offsets.data()};
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    a.multiplicity = c.multiplicity ? m.data() : nullptr;
    a.out = r.out.data();
    a.norm = r.norm.data();
    a.grad = grad.data();
    a.grad_norm = grad_norm.data();
    a.grad_q = r.grad_q.data();
    a.grad_k = r.grad_k.data();
    a.grad_v = r.grad_v.data();
    a.grad_multiplicity = c.multiplicity ? r.grad_m.data() : nullptr;
  };
  HostArguments a;
  fill(a, host);
  a.number = c.number;
  a.sums = host.sums.data();
  (c.causal ? host_causal_forward : host_forward)(a);
  RowArguments b;
  fill(b, device);
  const KernelShape kernels{c.number, c.d, c.dv};
  if (c.causal) {
    device_causal_forward(kernels, b, allocate, nullptr);
  } else {
    device_forward(kernels, b, device.sums.data(), allocate, nullptr);
  }
  EXPECT_LT(worst(device.out, host.out), output_error);
  EXPECT_LT(worst(device.norm, host.norm), output_error);
  (c.causal ? host_causal_backward : host_backward)(a);
  b.sums = device.sums.data();
  (c.causal ? device_causal_backward : device_backward)(kernels, b, allocate, nullptr);
  EXPECT_LT(worst(device.grad_q, host.grad_q), gradient_error);
  EXPECT_LT(worst(device.grad_k, host.grad_k), gradient_error);
  EXPECT_LT(worst(device.grad_v, host.grad_v), gradient_error);
  if (c.multiplicity) {
    EXPECT_LT(worst(device.grad_m, host.grad_m), gradient_error);
  }
}

TEST(EmulatedAttention, InDoublePrecision) {
  compare({kFloat64, 2, 2, 1, 8, 16, 19, 37}, 1e-11, 1e-11);
  compare({kFloat64, 1, 2, 2, 17, 3, 9, 70, true}, 1e-11, 1e-11);
  compare({kFloat32, 1, 1, 1, 72, 8, 40, 33}, 1e-5, 1e-5);
  compare({kFloat32, 3, 4, 2, 4, 4, 9, 9, true, false, {0, 0, 7, 9}}, 1e-5, 1e-5);
  compare({kFloat32, 1, 4, 2, 32, 64, 140, 70, true}, 1e-5, 1e-5);
  compare({kFloat32, 2, 2, 2, 96, 32, 70, 70, false, false, {0, 5, 70}}, 1e-5, 1e-5);
  compare({kFloat64, 1, 1, 1, 8, 16, 0, 5}, 1e-11, 1e-11);
  compare({kFloat64, 1, 1, 1, 8, 16, 5, 0}, 1e-11, 1e-11);
}

TEST(EmulatedAttention, CausalInDoublePrecision) {
  const auto causal = [](Case c, double error) {
    c.causal = true;
    c.keys = c.queries;
    compare(c, error, error);
  };
  causal({kFloat64, 2, 2, 1, 8, 16, 140, 0}, 1e-11);
  causal({kFloat64, 1, 1, 1, 17, 3, 30, 0, true}, 1e-11);
  causal({kFloat32, 1, 1, 1, 72, 8, 40, 0}, 1e-5);
  causal({kFloat64, 4, 4, 2, 8, 16, 170, 0, true, false, {0, 0, 130, 131, 170}}, 1e-11);
  causal({kFloat64, 1, 1, 1, 8, 16, 1, 0}, 1e-11);
  causal({kFloat64, 1, 1, 1, 8, 16, 0, 0}, 1e-11);
}

TEST(EmulatedAttention, SixteenBits) {
  // Outputs are rounded: one unit of the largest number beside the root mean square.
  compare({kFloat16, 1, 2, 1, 32, 32, 45, 300}, 5e-3, 2e-2);
  compare({kFloat16, 2, 1, 1, 64, 32, 140, 70}, 5e-3, 2e-2);
  compare({kBfloat16, 1, 1, 1, 32, 64, 33, 150}, 4e-2, 1e-1);
  compare({kFloat16, 3, 2, 2, 32, 32, 40, 40, false, false, {0, 33, 33, 40}}, 5e-3, 2e-2);
  compare({kFloat16, 1, 1, 1, 32, 32, 20, 50, true}, 5e-3, 2e-2);
  compare({kFloat16, 1, 1, 1, 16, 24, 20, 50}, 5e-3, 2e-2);
  compare({kFloat16, 2, 4, 2, 64, 64, 300, 200}, 5e-3, 1e-2);
  compare({kFloat16, 1, 2, 1, 32, 32, 150, 90, false, false, {}, true}, 5e-3, 2e-2);
  compare({kFloat16, 1, 1, 1, 32, 32, 5, 0}, 5e-3, 2e-2);
}

TEST(EmulatedAttention, MasksOfSixteenBits) {
  const auto masked = [](Case c, double output_error, double gradient_error) {
    c.multiplicity = c.masked = true;
    compare(c, output_error, gradient_error);
  };
  masked({kFloat16, 2, 2, 1, 32, 32, 45, 100}, 5e-3, 2e-2);
  masked({kBfloat16, 2, 1, 1, 64, 32, 50, 50, true, false, {0, 13, 50}}, 4e-2, 1e-1);
  masked({kFloat16, 1, 1, 1, 32, 32, 270, 270, true, false, {}, false, true}, 6e-3, 3e-2);
  compare({kFloat16, 1, 2, 1, 32, 32, 40, 40, true, false, {}, false, true}, 6e-3, 3e-2);  // other multiplicities
}

TEST(EmulatedAttention, CausalSixteenBits) {
  const auto causal = [](Case c, double error) {
    c.causal = true;
    c.keys = c.queries;
    compare(c, error, 4 * error);
  };
  causal({kFloat16, 1, 2, 1, 32, 64, 270, 0}, 6e-3);
  causal({kBfloat16, 3, 1, 1, 32, 32, 290, 0, false, false, {0, 0, 33, 290}}, 5e-2);
  causal({kFloat16, 1, 1, 1, 32, 32, 70, 0, false, true}, 6e-3);
  causal({kFloat16, 1, 1, 1, 32, 32, 300, 0, false, true}, 6e-3);
  causal({kFloat16, 1, 1, 1, 96, 64, 60, 0}, 6e-3);
  causal({kFloat16, 2, 4, 2, 32, 32, 550, 0, false, false, {0, 280, 550}}, 6e-3);
}

TEST(EmulatedAttention, LargeSixteenBits) {
  compare({kFloat16, 1, 2, 2, 128, 128, 40, 70}, 5e-3, 2e-2);
  compare({kBfloat16, 1, 1, 1, 96, 32, 150, 40}, 4e-2, 1e-1);
}

TEST(EmulatedAttention, FlaggedQueries) {
  compare({kFloat16, 1, 2, 2, 32, 32, 45, 300, false, true}, 5e-3, 2e-2);
  compare({kBfloat16, 1, 1, 1, 32, 32, 40, 100, false, true}, 4e-2, 1e-1);
}

}  // namespace
}  // namespace clebsch::testing
