// The CUDA kernels of graph attention in the emulator, against the CPU's in double precision: number types, rows by 16
// bytes and by numbers, grouped heads, values that are the keys, empty and long rows, gradients, sums and dot products.
#include <gtest/gtest.h>

#include <random>

#include "attention_tensors.h"
#include "multilinear/attention/device_graph.h"
#include "multilinear/attention/graph_attention.h"

namespace clebsch::testing {
namespace {

using namespace attention;

/// Rows of 3, 0, 11, 1, 6, 0 and 2 edges, from nine senders of which one sends nothing; and the same by sender.
struct Edges {
  static constexpr int kReceivers = 7, kSenders = 9;
  std::vector<int> row_ptr{0, 3, 3, 14, 15, 21, 21, 23}, senders, receivers, col_ptr{0}, col_edge, col_receivers;

  Edges() {
    for (int receiver = 0; receiver < kReceivers; ++receiver) {
      for (int edge = row_ptr[static_cast<size_t>(receiver)]; edge < row_ptr[static_cast<size_t>(receiver) + 1];
           ++edge) {
        senders.push_back(edge * 5 % 8);
        receivers.push_back(receiver);
      }
    }
    for (int sender = 0; sender < kSenders; ++sender) {
      for (size_t edge = 0; edge < senders.size(); ++edge) {
        if (senders[edge] != sender) continue;
        col_edge.push_back(static_cast<int>(edge));
        col_receivers.push_back(receivers[edge]);
      }
      col_ptr.push_back(static_cast<int>(col_edge.size()));
    }
  }
  int64_t count() const { return static_cast<int64_t>(senders.size()); }
  EdgeRows rows() const { return {kReceivers, row_ptr.data(), senders.data()}; }
};

Tensor widened(const Tensor& x) {
  Tensor wide(kFloat64, static_cast<int64_t>(x.count));
  for (size_t at = 0; at < x.count; ++at) {
    const double value = x.get(at);
    std::memcpy(wide.bytes.data() + 8 * at, &value, 8);
  }
  return wide;
}

/// Tensors of a call and room for its results.
struct Call {
  Tensor q, k, v, envelope, grad;
  Tensor out, norm, grad_q, grad_k, grad_v, weights, slopes, grad_envelope;

  GraphArguments arguments(const Edges& edges, int heads, int key_heads, bool shared, bool with_envelope) {
    GraphArguments a;
    a.rows = edges.rows();
    a.heads = heads;
    a.key_heads = key_heads;
    a.q = q.data();
    a.k = k.data();
    a.v = shared ? k.data() : v.data();
    a.envelope = with_envelope ? envelope.data() : nullptr;
    a.eps = 0.03;
    a.scale = 0.4;
    a.out = out.data();
    a.norm = norm.data();
    a.grad = grad.data();
    a.grad_q = grad_q.data();
    a.weights = weights.data();
    a.slopes = slopes.data();
    a.grad_envelope = with_envelope ? grad_envelope.data() : nullptr;
    return a;
  }
  EdgeSumArguments key_sums(const Edges& edges, int heads, int key_heads, bool shared) {
    EdgeSumArguments a;
    a.rows = Edges::kSenders;
    a.heads = key_heads;
    a.source_heads = heads;
    a.ptr = edges.col_ptr.data();
    a.edges = edges.col_edge.data();
    a.nodes = edges.col_receivers.data();
    a.a = slopes.data();
    a.x = q.data();
    a.b = shared ? weights.data() : nullptr;
    a.y = shared ? grad.data() : nullptr;
    a.out = grad_k.data();
    return a;
  }
};

/// Scores of some hundreds, of one head, and an envelope of zero where that of a receiver is largest.
void hide_largest_scores(Call& call, const Edges& edges, int d) {
  for (size_t at = 0; at < call.q.count; ++at) call.q.set(at, 300 * call.q.get(at));
  for (int receiver = 0; receiver < Edges::kReceivers; ++receiver) {
    double largest = -INFINITY;
    int hidden = -1;
    for (int edge = edges.row_ptr[receiver]; edge < edges.row_ptr[receiver + 1]; ++edge) {
      double score = 0;
      for (int i = 0; i < d; ++i) score += call.q.get(receiver * d + i) * call.k.get(edges.senders[edge] * d + i);
      if (score <= largest) continue;
      largest = score;
      hidden = edge;
    }
    if (hidden >= 0) call.envelope.set(hidden, 0);
  }
}

void compare(int number, int heads, int key_heads, int d, int dv, int normalise, bool shared, bool with_envelope,
             double output_error, double gradient_error, bool hide_largest = false) {
  SCOPED_TRACE(::testing::Message() << number << " " << d << " " << dv << " " << normalise);
  const Edges edges;
  const int real = number == kFloat64 ? kFloat64 : kFloat32;
  const int64_t query_heads = int64_t{Edges::kReceivers} * heads, sender_heads = int64_t{Edges::kSenders} * key_heads;
  const auto made = [&](int type, int wide) {
    const int64_t each = edges.count() * heads;
    return Call{Tensor(type, query_heads * d),
                Tensor(type, sender_heads * d),
                Tensor(type, sender_heads * dv),
                Tensor(wide, edges.count()),
                Tensor(type, query_heads * dv),
                Tensor(type, query_heads * dv),
                Tensor(wide, query_heads),
                Tensor(type, query_heads * d),
                Tensor(type, sender_heads * d),
                Tensor(type, sender_heads * dv),
                Tensor(wide, each),
                Tensor(wide, each),
                Tensor(wide, each)};
  };
  Call device = made(number, real), host = made(kFloat64, kFloat64);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (Tensor* tensor : {&device.q, &device.k, &device.v, &device.grad}) {
    for (size_t at = 0; at < tensor->count; ++at) tensor->set(at, normal(random));
  }
  for (size_t at = 0; at < device.envelope.count; ++at) {
    device.envelope.set(at, at % 5 == 4 ? 0.0f : std::fabs(normal(random)));
  }
  if (hide_largest) hide_largest_scores(device, edges, d);
  host.q = widened(device.q);
  host.k = widened(device.k);
  host.v = widened(device.v);
  host.grad = widened(device.grad);
  host.envelope = widened(device.envelope);
  const GraphArguments a = device.arguments(edges, heads, key_heads, shared, with_envelope);
  const GraphArguments b = host.arguments(edges, heads, key_heads, shared, with_envelope);
  const GraphKind kind{number, d, dv, normalise}, exact{kFloat64, d, dv, normalise};
  device_graph_attention(kind, a, nullptr);
  host_graph_attention(exact, b);
  EXPECT_LT(worst(device.out, host.out), output_error);
  if (normalise != kPlain) {
    EXPECT_LT(worst(device.norm, host.norm), output_error);
  }
  device_graph_row_gradients(kind, a, nullptr);
  host_graph_row_gradients(exact, b);
  EXPECT_LT(worst(device.grad_q, host.grad_q), gradient_error);
  EXPECT_LT(worst(device.weights, host.weights), gradient_error);
  EXPECT_LT(worst(device.slopes, host.slopes), gradient_error);
  if (with_envelope && !hide_largest) {  // of an edge with an envelope of zero it may be more than 32 bits have
    EXPECT_LT(worst(device.grad_envelope, host.grad_envelope), gradient_error);
  }
  EdgeSumArguments of_device = device.key_sums(edges, heads, key_heads, shared);
  EdgeSumArguments of_host = host.key_sums(edges, heads, key_heads, shared);
  device_edge_sums(number, d, of_device, nullptr);
  host_edge_sums(kFloat64, d, of_host);
  EXPECT_LT(worst(device.grad_k, host.grad_k), gradient_error);
  if (shared) return;
  of_device.a = device.weights.data();
  of_device.x = device.grad.data();
  of_device.out = device.grad_v.data();
  of_host.a = host.weights.data();
  of_host.x = host.grad.data();
  of_host.out = host.grad_v.data();
  device_edge_sums(number, dv, of_device, nullptr);
  host_edge_sums(kFloat64, dv, of_host);
  EXPECT_LT(worst(device.grad_v, host.grad_v), gradient_error);
}

TEST(EmulatedGraphAttention, DoublePrecision) { compare(kFloat64, 2, 1, 8, 4, kUnitLength, false, true, 1e-12, 1e-12); }

TEST(EmulatedGraphAttention, SinglePrecision) {
  compare(kFloat32, 1, 1, 40, 40, kSoftmax, true, true, 1e-5, 1e-5);
  compare(kFloat32, 3, 3, 3, 5, kPlain, false, true, 1e-5, 1e-5);
}

TEST(EmulatedGraphAttention, HiddenEdgesMayHaveLargeScores) {
  // Weights are near 0 and 1, so that their slopes are differences which rounding decides: they are to be finite.
  compare(kFloat32, 1, 1, 8, 4, kSoftmax, false, true, 1e-3, 1e300, true);
}

TEST(EmulatedGraphAttention, SixteenBits) {
  // Outputs are rounded: one unit of the largest number beside the root mean square.
  compare(kFloat16, 4, 2, 16, 24, kSoftmax, false, false, 5e-3, 2e-2);
  compare(kBfloat16, 1, 1, 264, 264, kUnitLength, true, false, 4e-2, 1e-1);
}

TEST(EmulatedGraphAttention, SumsAndDotProductsByReceiver) {
  const Edges edges;
  constexpr int kHeads = 2, kColumns = 8;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  Tensor a(kFloat32, int64_t{Edges::kReceivers} * kHeads * kColumns), b(kFloat32, int64_t{Edges::kSenders} * kColumns);
  for (Tensor* tensor : {&a, &b}) {
    for (size_t at = 0; at < tensor->count; ++at) tensor->set(at, normal(random));
  }
  Tensor dots[2] = {Tensor(kFloat32, edges.count() * kHeads), Tensor(kFloat32, edges.count() * kHeads)};
  Tensor out[2] = {Tensor(kFloat32, static_cast<int64_t>(a.count)), Tensor(kFloat32, static_cast<int64_t>(a.count))};
  for (const int device : {0, 1}) {
    const EdgeDotArguments call{edges.rows(), kHeads, 1, a.data(), b.data(), dots[device].data()};
    EdgeSumArguments sum;
    sum.rows = Edges::kReceivers;
    sum.heads = kHeads;
    sum.source_heads = 1;
    sum.ptr = edges.row_ptr.data();
    sum.nodes = edges.senders.data();
    sum.a = dots[device].data();
    sum.x = b.data();
    sum.out = out[device].data();
    if (device) {
      device_edge_dots(kFloat32, kColumns, call, nullptr);
      device_edge_sums(kFloat32, kColumns, sum, nullptr);
    } else {
      host_edge_dots(kFloat32, kColumns, call);
      host_edge_sums(kFloat32, kColumns, sum);
    }
  }
  EXPECT_LT(worst(dots[1], dots[0]), 1e-5);
  EXPECT_LT(worst(out[1], out[0]), 1e-5);
}

}  // namespace
}  // namespace clebsch::testing
