#include "model/device/point_buffers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/edges/edge_finder.h"
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

constexpr double kWithoutCell[9] = {0};

}  // namespace

PointBuffers::PointBuffers(c10::Device device, int64_t rows, int64_t points, int64_t pairs, bool shifts,
                           const std::vector<double>& pair_cutoffs, int types)
    : on_gpu_(!device.is_cpu()), shifts_(shifts), types_(types), rows_(rows) {
  const auto ints = at::TensorOptions().dtype(at::kInt).device(device);
  const auto reals = at::TensorOptions().dtype(at::kDouble).device(device);
  const auto staged = [&](at::ScalarType dtype) { return at::TensorOptions().dtype(dtype).pinned_memory(on_gpu_); };
  pair_ptr_ = at::zeros({rows + 1}, ints);
  staged_pair_ptr_ = at::empty({rows + 1}, staged(at::kInt));
  pairs_ = at::zeros({shifts ? 2 : 1, pairs}, ints);
  staged_pairs_ = at::empty(pairs_.sizes(), staged(at::kInt));
  owners_ = at::zeros({points}, ints);
  staged_owners_ = at::empty({points}, staged(at::kInt));
  positions_ = at::zeros({points + 3, 3}, reals);
  staged_positions_ = at::zeros({points + 3, 3}, staged(at::kDouble));
  found_ = at::zeros({1}, ints);
  staged_found_ = at::zeros({1}, staged(at::kInt));
  cutoffs_ = at::empty({types, types}, at::TensorOptions().dtype(at::kDouble));
  std::copy(pair_cutoffs.begin(), pair_cutoffs.end(), cutoffs_.mutable_data_ptr<double>());
  cutoffs_ = cutoffs_.to(reals);
}

bool PointBuffers::holds(const PairListView& list, int64_t rows) const {
  return rows <= rows_ && list.n_points <= points() && list.pairs() <= pairs() && (list.shifts != nullptr) == shifts_;
}

void PointBuffers::upload(const PairListView& list) {
  list_ = list;
  if (!on_gpu_) return;
  int32_t* rows = staged_pair_ptr_.mutable_data_ptr<int32_t>();
  const int32_t pairs = static_cast<int32_t>(list.pairs());
  if (list.n_rows > 0) std::copy_n(list.row_ptr, list.n_rows, rows);
  std::fill(rows + list.n_rows, rows + rows_ + 1, pairs);
  pair_ptr_.copy_(staged_pair_ptr_, true);
  int32_t* owners = staged_owners_.mutable_data_ptr<int32_t>();
  for (int32_t i = 0; i < list.n_nodes; ++i) owners[i] = i;
  std::copy_n(list.owners, list.n_points - list.n_nodes, owners + list.n_nodes);
  owners_.narrow(0, 0, list.n_points).copy_(staged_owners_.narrow(0, 0, list.n_points), true);
  if (pairs == 0) return;
  int32_t* staged = staged_pairs_.mutable_data_ptr<int32_t>();
  std::copy_n(list.neighbours, pairs, staged);
  for (int64_t p = 0; shifts_ && p < pairs; ++p) staged[this->pairs() + p] = packed_shift(list.shifts + 3 * p);
  for (int64_t k = 0; k < pairs_.size(0); ++k)
    pairs_[k].narrow(0, 0, pairs).copy_(staged_pairs_[k].narrow(0, 0, pairs), true);
}

void PointBuffers::upload(const PairListView& list, const PointsView& points) {
  const int64_t count = 3 * int64_t{list.n_points};
  double* staged = staged_positions_.mutable_data_ptr<double>();
  const double* cell = shifts_ ? points.cell : kWithoutCell;
  std::copy_n(cell, 9, staged);
  std::copy_n(points.positions, count, staged + 9);
  at_ = {staged + 9, staged};
  if (on_gpu_)
    positions_.narrow(0, 0, list.n_points + 3).copy_(staged_positions_.narrow(0, 0, list.n_points + 3), true);
}

void PointBuffers::find_edges(const DeviceBuffers& graph, int threads) {
  if (!on_gpu_) {
    find_on_cpu(graph, threads);
    return;
  }
#ifdef CLEBSCH_HAS_CUDA
  cuda::EdgeFinderOperands o;
  o.pair_ptr = pair_ptr_.const_data_ptr<int32_t>();
  o.neighbours = pairs_.const_data_ptr<int32_t>();
  o.shifts = shifts_ ? o.neighbours + pairs() : nullptr;
  o.owners = owners_.const_data_ptr<int32_t>();
  o.types = graph.types().const_data_ptr<int32_t>();
  o.cell = positions_.const_data_ptr<double>();
  o.positions = o.cell + 9;
  o.cutoffs = cutoffs_.const_data_ptr<double>();
  o.type_count = types_;
  o.rows = static_cast<int32_t>(graph.capacity().rows);
  o.room = static_cast<int32_t>(graph.capacity().edges);
  o.row_ptr = graph.row_ptr().mutable_data_ptr<int32_t>();
  o.senders = graph.senders().mutable_data_ptr<int32_t>();
  o.edge_vec = graph.edge_vec().mutable_data_ptr<double>();
  o.found = found_.mutable_data_ptr<int32_t>();
  const at::Tensor workspace = ops::scratch(cuda::EdgeFinder::workspace(o), graph.edge_vec());
  cuda::EdgeFinder::make()->run(o, ops::address(workspace), ops::current_stream(graph.edge_vec().device()));
#endif
}

void PointBuffers::find_on_cpu(const DeviceBuffers& graph, int threads) {
  int32_t* row_ptr = graph.row_ptr().mutable_data_ptr<int32_t>();
  const double* cutoffs = cutoffs_.const_data_ptr<double>();
  const int64_t count = count_edges(list_, at_, cutoffs, types_, row_ptr, threads);
  const int32_t room = static_cast<int32_t>(graph.capacity().edges);
  for (int32_t i = 0; i <= list_.n_rows; ++i) row_ptr[i] = std::min(row_ptr[i], room);
  std::fill(row_ptr + list_.n_rows + 1, row_ptr + graph.capacity().rows + 1, row_ptr[list_.n_rows]);
  fill_edges(list_, at_, cutoffs, types_, row_ptr, graph.senders().mutable_data_ptr<int32_t>(),
             graph.edge_vec().mutable_data_ptr<double>(), threads);
  *found_.mutable_data_ptr<int32_t>() = static_cast<int32_t>(count);
}

}  // namespace clebsch
