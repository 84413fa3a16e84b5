#include "model/device/device_buffers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/edges/graph_transpose.h"
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

constexpr double kMostGrowth = 0.3, kFirstGrowth = 0.02, kEdgeReserve = 0.05;
/// Room that is cheap whatever the system.
constexpr double kFewMore = 128;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

/// All copies in one parallel region, by a few threads.
void copy_all(const std::vector<Copy>& copies, int threads) {
  constexpr std::size_t kPiece = std::size_t{1} << 18;
  std::vector<Copy> pieces;
  for (const Copy& c : copies) {
    for (std::size_t begin = 0; begin < c.bytes; begin += kPiece) {
      pieces.push_back({static_cast<char*>(c.to) + begin, static_cast<const char*>(c.from) + begin,
                        std::min(kPiece, c.bytes - begin)});
    }
  }
  threads = std::min(threads, kCopyThreads);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && pieces.size() > 4)
  for (const Copy& piece : pieces) std::memcpy(piece.to, piece.from, piece.bytes);
}

/// Offsets 0 .. count of a graph and, up to the capacity, as many rows without edges.
int32_t* copy_offsets(int32_t* to, const int32_t* from, int64_t count, int64_t capacity) {
  std::copy_n(from, count + 1, to);
  std::fill(to + count + 1, to + capacity + 1, from[count]);
  return to + capacity + 1;
}

}  // namespace

Capacity Capacity::of(const GraphView& graph) { return {graph.n_rows, graph.n_nodes, graph.row_ptr[graph.n_rows]}; }

bool Capacity::holds(const Capacity& need) const {
  return need.rows <= rows && need.nodes <= nodes && need.edges <= edges;
}

Capacity grown(const Capacity& last, const Capacity& need) {
  const auto with = [](int64_t count, double more) {
    const double wanted = static_cast<double>(count) + std::ceil(more);
    return std::max(count,
                    std::min<int64_t>(static_cast<int64_t>(wanted), std::numeric_limits<int32_t>::max() - 65536));
  };
  if (need.nodes > 2 * last.nodes || far_below(last, need))
    return {need.rows, need.nodes, with(need.edges, kEdgeReserve * static_cast<double>(need.edges))};
  const double part = std::min(kMostGrowth, std::ldexp(kFirstGrowth, std::min(last.growths, 16)));
  const auto grow = [&](int64_t have, int64_t count, double least) {
    if (count <= have) return have;
    const double all = static_cast<double>(count);
    return with(count, std::max(std::max(part, least) * all, std::min(kFewMore, kMostGrowth * all)));
  };
  Capacity result{grow(last.rows, need.rows, 0), grow(last.nodes, need.nodes, 0),
                  grow(last.edges, need.edges, kEdgeReserve), last.growths + 1};
  result.nodes = std::max(result.nodes, result.rows);
  return result;
}

bool far_below(const Capacity& capacity, const Capacity& need) {
  return need.nodes < capacity.nodes / 4 || need.rows < capacity.rows / 4;
}

DeviceBuffers::DeviceBuffers(c10::Device device, const Capacity& capacity, int layers, int32_t padding_type)
    : capacity_(capacity), layers_(layers), padding_type_(padding_type), on_gpu_(!device.is_cpu()) {
  const auto ints = at::TensorOptions().dtype(at::kInt).device(device);
  const auto reals = at::TensorOptions().dtype(at::kDouble).device(device);
  const bool pinned = !device.is_cpu();
  const auto staged = [&](at::ScalarType dtype) { return at::TensorOptions().dtype(dtype).pinned_memory(pinned); };
  const int64_t rows = capacity.rows, nodes = capacity.nodes, edges = capacity.edges;
  const int64_t count = 1 + layers + nodes + (rows + 1) + (nodes + 1);
  nodes_ = at::zeros({count}, ints);
  staged_nodes_ = at::zeros({count}, staged(at::kInt));
  edges_ = at::zeros({3, edges}, ints);
  edge_vec_ = at::full({edges, 3}, std::numeric_limits<double>::quiet_NaN(), reals);
  weight_ = at::zeros({rows}, reals);
  int64_t at = 0;
  const auto part = [&](int64_t length) {
    const at::Tensor view = nodes_.narrow(0, at, length);
    at += length;
    return view;
  };
  n_local_ = part(1);
  layer_rows_ = part(layers);
  types_ = part(nodes);
  row_ptr_ = part(rows + 1);
  col_ptr_ = part(nodes + 1);
  senders_ = edges_[0];
  receivers_ = edges_[1];
  col_edge_ = edges_[2];
  none_ = at::empty({0}, ints);
}

int32_t* DeviceBuffers::stage_nodes(const GraphView& graph) {
  int32_t* place = staged_nodes_.mutable_data_ptr<int32_t>();
  *place++ = graph.n_local;
  place = std::copy_n(graph.layer_rows, layers_, place);
  place = std::copy_n(graph.types, graph.n_nodes, place);
  return std::fill_n(place, capacity_.nodes - graph.n_nodes, padding_type_);
}

void DeviceBuffers::set_weight(int32_t n_local) {
  if (owned_ == n_local) return;
  weight_.zero_();
  weight_.narrow(0, 0, n_local).fill_(1.0);
  owned_ = n_local;
}

void DeviceBuffers::upload_nodes(const GraphView& graph) {
  const int64_t count = stage_nodes(graph) - staged_nodes_.const_data_ptr<int32_t>();
  nodes_.narrow(0, 0, count).copy_(staged_nodes_.narrow(0, 0, count), true);
  set_weight(graph.n_local);
}

void DeviceBuffers::upload(const GraphView& graph, int threads) {
  int32_t* place = stage_nodes(graph);
  place = copy_offsets(place, graph.row_ptr, graph.n_rows, capacity_.rows);
  if (!on_gpu_) copy_offsets(place, graph.col_ptr, graph.n_nodes, capacity_.nodes);
  // On a GPU the transpose is made there, over what it has of the last graph.
  const int64_t count = on_gpu_ ? nodes_.numel() - (capacity_.nodes + 1) : nodes_.numel();
  nodes_.narrow(0, 0, count).copy_(staged_nodes_.narrow(0, 0, count), true);

  const int64_t edges = Capacity::of(graph).edges;
  if (edges > 0) {
    if (!staged_edges_.defined()) {  // edges that are found on the device need none
      const auto staged = at::TensorOptions().pinned_memory(on_gpu_);
      staged_edges_ = at::empty({3, capacity_.edges}, staged.dtype(at::kInt));
      staged_edge_vec_ = at::empty({capacity_.edges, 3}, staged.dtype(at::kDouble));
    }
    const std::size_t count = static_cast<std::size_t>(edges);
    int32_t* staged = staged_edges_.mutable_data_ptr<int32_t>();
    std::vector<Copy> copies{{staged_edge_vec_.mutable_data_ptr<double>(), graph.edge_vec, 3 * count * sizeof(double)}};
    const int32_t* sources[3] = {graph.senders, graph.receivers, graph.col_edge};
    const int arrays = on_gpu_ ? 1 : 3;
    for (int k = 0; k < arrays; ++k) {
      copies.push_back({staged + k * capacity_.edges, sources[k], count * sizeof(int32_t)});
    }
    copy_all(copies, threads);
    edge_vec_.narrow(0, 0, edges).copy_(staged_edge_vec_.narrow(0, 0, edges), true);
    for (int k = 0; k < arrays; ++k) {
      edges_[k].narrow(0, 0, edges).copy_(staged_edges_[k].narrow(0, 0, edges), true);
    }
  }
  if (on_gpu_) transpose();
  set_weight(graph.n_local);
}

DeviceGraph DeviceBuffers::arrays() {
  owned_ = -1;  // the caller writes the weights
  DeviceGraph g;
  g.rows = static_cast<int32_t>(capacity_.rows);
  g.nodes = static_cast<int32_t>(capacity_.nodes);
  g.edges = capacity_.edges;
  g.layers = layers_;
  g.padding_type = padding_type_;
  g.n_local = n_local_.mutable_data_ptr<int32_t>();
  g.layer_rows = layer_rows_.mutable_data_ptr<int32_t>();
  g.types = types_.mutable_data_ptr<int32_t>();
  g.row_ptr = row_ptr_.mutable_data_ptr<int32_t>();
  g.col_ptr = col_ptr_.mutable_data_ptr<int32_t>();
  g.senders = senders_.mutable_data_ptr<int32_t>();
  g.receivers = receivers_.mutable_data_ptr<int32_t>();
  g.col_edge = col_edge_.mutable_data_ptr<int32_t>();
  g.edge_vec = edge_vec_.mutable_data_ptr<double>();
  g.weight = weight_.mutable_data_ptr<double>();
  return g;
}

void DeviceBuffers::transpose() {
  if (!on_gpu_) {
    GraphView view;
    view.n_rows = static_cast<int32_t>(capacity_.rows);
    view.n_nodes = static_cast<int32_t>(capacity_.nodes);
    view.row_ptr = row_ptr_.const_data_ptr<int32_t>();
    view.senders = senders_.const_data_ptr<int32_t>();
    std::vector<int32_t> col_ptr, col_edge;
    transpose_graph(view, col_ptr, col_edge);
    std::copy(col_ptr.begin(), col_ptr.end(), col_ptr_.mutable_data_ptr<int32_t>());
    std::copy(col_edge.begin(), col_edge.end(), col_edge_.mutable_data_ptr<int32_t>());
    int32_t* receivers = receivers_.mutable_data_ptr<int32_t>();
    for (int32_t i = 0; i < view.n_rows; ++i)
      std::fill(receivers + view.row_ptr[i], receivers + view.row_ptr[i + 1], i);
    return;
  }
#ifdef CLEBSCH_HAS_CUDA
  cuda::TransposeOperands o;
  o.row_ptr = row_ptr_.const_data_ptr<int32_t>();
  o.senders = senders_.const_data_ptr<int32_t>();
  o.receivers = receivers_.mutable_data_ptr<int32_t>();
  o.col_ptr = col_ptr_.mutable_data_ptr<int32_t>();
  o.col_edge = col_edge_.mutable_data_ptr<int32_t>();
  o.rows = static_cast<int32_t>(capacity_.rows);
  o.nodes = static_cast<int32_t>(capacity_.nodes);
  o.edges = capacity_.edges;
  const at::Tensor workspace = ops::scratch(cuda::GraphTranspose::workspace(o), edge_vec_);
  cuda::GraphTranspose::make()->run(o, ops::address(workspace), ops::current_stream(edge_vec_.device()));
#endif
}

c10::List<at::Tensor> DeviceBuffers::graph_list(bool deterministic) const {
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : {row_ptr_, senders_, receivers_, col_ptr_, col_edge_, layer_rows_, n_local_})
    list.push_back(tensor);
  if (!deterministic) list.push_back(none_);
  return list;
}

}  // namespace clebsch
