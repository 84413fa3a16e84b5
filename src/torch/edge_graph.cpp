// clebsch::edge_graph: edges in any order to the compressed rows and the transpose that the convolutions read.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "core/errors.h"
#include "torch/index_check.h"

namespace clebsch::ops {
namespace {

/// row_ptr (rows+1), senders (E), receivers (E), col_ptr (nodes+1) or (0), col_edge (E) or (0), count (1), all int32;
/// order (E) int64: the edge that stands at each place of the rows.
using EdgeGraph = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

void check(const at::Tensor& senders, const at::Tensor& receivers, int64_t nodes, int64_t rows) {
  for (const at::Tensor& t : {senders, receivers}) {
    require(
        t.dim() == 1 && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt),
        "clebsch::edge_graph: expected senders and receivers of shape (E,), int64 or int32, got {} dimensions of {}",
        t.dim(), at::toString(t.scalar_type()));
  }
  require(senders.numel() == receivers.numel() && senders.numel() <= kMaxCount,
          "clebsch::edge_graph: expected as many senders as receivers, fewer than 2^31, got {} and {}", senders.numel(),
          receivers.numel());
  require(rows >= 0 && rows <= nodes && nodes < kMaxCount,
          "clebsch::edge_graph: expected 0 <= receivers' count <= nodes < 2^31 - 1, got {} and {}", rows, nodes);
}

/// Stable counting sort: ptr (bins+1), order (count) with key[order] ascending. Throws on a key out of range.
template <typename Key>
void counting_sort(const char* name, const Key* keys, int64_t count, int64_t bins, int32_t* ptr, int64_t* order) {
  std::fill_n(ptr, bins + 1, 0);
  for (int64_t e = 0; e < count; ++e) {
    require(keys[e] >= 0 && keys[e] < bins, "clebsch::edge_graph: expected {}[{}] in [0, {}), got {}", name, e, bins,
            keys[e]);
    ++ptr[keys[e] + 1];
  }
  for (int64_t b = 0; b < bins; ++b) ptr[b + 1] += ptr[b];
  std::vector<int32_t> next(ptr, ptr + bins);
  for (int64_t e = 0; e < count; ++e) order[next[keys[e]]++] = e;
}

EdgeGraph edge_graph_cpu(const at::Tensor& senders, const at::Tensor& receivers, int64_t nodes, int64_t rows,
                         bool transpose) {
  check(senders, receivers, nodes, rows);
  const at::Tensor from = senders.to(at::kLong).contiguous(), to = receivers.to(at::kLong).contiguous();
  const int64_t edges = from.numel();
  const auto ints = senders.options().dtype(at::kInt);
  at::Tensor row_ptr = at::empty({rows + 1}, ints), sorted_senders = at::empty({edges}, ints),
             sorted_receivers = at::empty({edges}, ints), col_ptr = at::empty({transpose ? nodes + 1 : 0}, ints),
             col_edge = at::empty({transpose ? edges : 0}, ints),
             order = at::empty({edges}, senders.options().dtype(at::kLong));
  int64_t* place = order.mutable_data_ptr<int64_t>();
  const int64_t *s = from.const_data_ptr<int64_t>(), *r = to.const_data_ptr<int64_t>();
  counting_sort("receivers", r, edges, rows, row_ptr.mutable_data_ptr<int32_t>(), place);
  int32_t *js = sorted_senders.mutable_data_ptr<int32_t>(), *is = sorted_receivers.mutable_data_ptr<int32_t>();
  for (int64_t k = 0; k < edges; ++k) {
    const int64_t sender = s[place[k]];
    require(sender >= 0 && sender < nodes, "clebsch::edge_graph: expected senders[{}] in [0, {}), got {}", place[k],
            nodes, sender);
    js[k] = static_cast<int32_t>(sender);
    is[k] = static_cast<int32_t>(r[place[k]]);
  }
  if (transpose) {
    std::vector<int64_t> by_sender(edges);
    counting_sort("senders", js, edges, nodes, col_ptr.mutable_data_ptr<int32_t>(), by_sender.data());
    std::copy(by_sender.begin(), by_sender.end(), col_edge.mutable_data_ptr<int32_t>());
  }
  return {row_ptr, sorted_senders, sorted_receivers, col_ptr, col_edge, at::full({1}, rows, ints), order};
}

/// Throws on a key out of range; the host waits for the device.
void check_keys(const char* name, const at::Tensor& keys, int64_t bins) {
  const at::Tensor outside = keys.lt(0).logical_or_(keys.ge(bins)).nonzero();
  if (outside.numel() == 0) return;
  const int64_t e = outside.select(0, 0).item<int64_t>();
  fail("clebsch::edge_graph: expected {}[{}] in [0, {}), got {}", name, e, bins, keys.select(0, e).item<int64_t>());
}

/// The same from torch's own sorts, for other devices. Indices are looked at when checks_device_indices().
EdgeGraph edge_graph_sorts(const at::Tensor& senders, const at::Tensor& receivers, int64_t nodes, int64_t rows,
                           bool transpose) {
  check(senders, receivers, nodes, rows);
  if (checks_device_indices()) {
    check_keys("receivers", receivers, rows);
    check_keys("senders", senders, nodes);
  }
  const auto ints = senders.options().dtype(at::kInt);
  const auto offsets = [&](const at::Tensor& sorted, int64_t bins) {
    return at::searchsorted(sorted, at::arange(bins + 1, ints), /*out_int32=*/true);
  };
  const at::Tensor order = at::argsort(receivers, /*stable=*/true, 0, /*descending=*/false);
  const at::Tensor sorted_receivers = receivers.index_select(0, order).to(at::kInt);
  const at::Tensor sorted_senders = senders.index_select(0, order).to(at::kInt);
  at::Tensor col_ptr = at::empty({0}, ints), col_edge = col_ptr;
  if (transpose) {
    const at::Tensor by_sender = at::argsort(sorted_senders, /*stable=*/true, 0, /*descending=*/false);
    col_ptr = offsets(sorted_senders.index_select(0, by_sender), nodes);
    col_edge = by_sender.to(at::kInt);
  }
  return {offsets(sorted_receivers, rows), sorted_senders, sorted_receivers, col_ptr, col_edge,
          at::full({1}, rows, ints),       order};
}

EdgeGraph edge_graph_meta(const at::Tensor& senders, const at::Tensor&, c10::SymInt nodes, c10::SymInt rows,
                          bool transpose) {
  const auto ints = senders.options().dtype(at::kInt);
  const c10::SymInt edges = senders.sym_size(0);
  const auto vector = [&](const c10::SymInt& size) { return at::empty_symint({size}, ints); };
  return {vector(rows + 1),
          vector(edges),
          vector(edges),
          vector(transpose ? nodes + 1 : c10::SymInt(0)),
          vector(transpose ? edges : c10::SymInt(0)),
          vector(1),
          at::empty_symint({edges}, senders.options().dtype(at::kLong))};
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) { library.impl("edge_graph", edge_graph_cpu); }
TORCH_LIBRARY_IMPL(clebsch, CUDA, library) { library.impl("edge_graph", edge_graph_sorts); }
TORCH_LIBRARY_IMPL(clebsch, Meta, library) { library.impl("edge_graph", edge_graph_meta); }

}  // namespace clebsch::ops
