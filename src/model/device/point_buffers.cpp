#include "model/device/point_buffers.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "model/device/start_copy.h"

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/edges/edge_finder.h"
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

constexpr double kWithoutCell[9] = {0};

}  // namespace

PointBuffers::PointBuffers(c10::Device device, int64_t rows, const PointCapacity& capacity,
                           const std::vector<double>& pair_cutoffs, int types)
    : on_gpu_(!device.is_cpu()), types_(types), rows_(rows), capacity_(capacity) {
  const int64_t points = capacity.points, pairs = capacity.pairs, systems = capacity.systems;
  const auto ints = at::TensorOptions().dtype(at::kInt).device(device);
  const auto reals = at::TensorOptions().dtype(at::kDouble).device(device);
  const auto staged = [&](at::ScalarType dtype) { return at::TensorOptions().dtype(dtype).pinned_memory(on_gpu_); };
  pair_ptr_ = at::zeros({rows + 1}, ints);
  staged_pair_ptr_ = at::empty({rows + 1}, staged(at::kInt));
  pairs_ = at::zeros({capacity.shifts ? 2 : 1, pairs}, ints);
  owners_ = at::zeros({points}, ints);
  staged_owners_ = at::empty({points}, staged(at::kInt));
  positions_ = at::zeros({points + 3 * systems, 3}, reals);
  staged_positions_ = at::zeros({points + 3 * systems, 3}, staged(at::kDouble));
  if (systems > 1) {
    system_of_ = at::zeros({rows}, ints);
    system_rows_ = at::zeros({systems + 1}, ints);
    staged_systems_ = at::zeros({systems + 1}, staged(at::kInt));
    virials_ = at::zeros({systems, 6}, reals);
    staged_virials_ = at::zeros({systems, 6}, staged(at::kDouble));
  }
  found_ = at::zeros({1}, ints);
  staged_found_ = at::zeros({1}, staged(at::kInt));
  cutoffs_ = at::empty({types, types}, at::TensorOptions().dtype(at::kDouble));
  std::copy(pair_cutoffs.begin(), pair_cutoffs.end(), cutoffs_.mutable_data_ptr<double>());
  cutoffs_ = cutoffs_.to(reals);
}

bool PointBuffers::holds(const PointCapacity& need, int64_t rows) const {
  // Points of one system take fewer steps, so that buffers of several are not used for them.
  return rows <= rows_ && need.points <= capacity_.points && need.pairs <= capacity_.pairs &&
         need.systems <= capacity_.systems && (need.systems > 1) == (capacity_.systems > 1) &&
         need.shifts == capacity_.shifts;
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
  if (!staged_pairs_.defined())  // pairs that are found on the device need none
    staged_pairs_ = at::empty(pairs_.sizes(), at::TensorOptions().dtype(at::kInt).pinned_memory(true));
  int32_t* staged = staged_pairs_.mutable_data_ptr<int32_t>();
  std::copy_n(list.neighbours, pairs, staged);
  for (int64_t p = 0; capacity_.shifts && p < pairs; ++p)
    staged[capacity_.pairs + p] = packed_shift(list.shifts + 3 * p);
  for (int64_t k = 0; k < pairs_.size(0); ++k)
    pairs_[k].narrow(0, 0, pairs).copy_(staged_pairs_[k].narrow(0, 0, pairs), true);
}

void PointBuffers::upload(const PairListView& list, const PointsView& points) {
  // On the CPU the list of systems is read as it is, cells included.
  const int64_t cells = on_gpu_ ? 1 : list.n_systems;
  if (cells > capacity_.systems) {
    at_ = points;
    return;
  }
  const int64_t count = 3 * int64_t{list.n_points};
  double* staged = staged_positions_.mutable_data_ptr<double>();
  const double* cell = capacity_.shifts ? points.cell : kWithoutCell;
  std::copy_n(cell, 9, staged);
  std::copy_n(points.positions, count, staged + 9);
  at_ = {staged + 9, staged};
}

void PointBuffers::upload(const SystemsView& systems, const PairSearch& search) {
  const int64_t atoms = systems.atoms;
  int32_t* neighbours = pairs_.mutable_data_ptr<int32_t>();
  search.fill(neighbours, neighbours + capacity_.pairs);
  pair_ptr_.narrow(0, 0, atoms + 1).copy_(search.pair_ptr());
  pair_ptr_.narrow(0, atoms, rows_ + 1 - atoms).fill_(search.pairs());  // rows beyond the atoms have no pairs
  at::arange_out(owners_, owners_.numel());
  if (capacity_.systems == 1) return;
  system_of_.narrow(0, 0, atoms).copy_(search.system_of());
  int32_t* starts = staged_systems_.mutable_data_ptr<int32_t>();
  std::copy_n(systems.starts, systems.count, starts);
  std::fill(starts + systems.count, starts + capacity_.systems + 1, systems.atoms);
  system_rows_.copy_(staged_systems_, true);
}

void PointBuffers::upload(const SystemsView& systems) {
  const int64_t cells = 3 * capacity_.systems;
  double* staged = staged_positions_.mutable_data_ptr<double>();
  std::copy_n(systems.cells, 9 * int64_t{systems.count}, staged);
  std::copy_n(systems.positions, 3 * int64_t{systems.atoms}, staged + 3 * cells);
  if (capacity_.systems > 1) start_copy(positions_, staged_positions_);
}

void PointBuffers::fetch() {
  start_copy(staged_found_, found_);
  if (virials_.defined()) start_copy(staged_virials_, virials_);
}

void PointBuffers::find_edges(const DeviceBuffers& graph, int threads) {
  if (!on_gpu_) {
    find_on_cpu(graph, threads);
    return;
  }
#ifdef CLEBSCH_HAS_CUDA
  if (capacity_.systems == 1) start_copy(positions_, staged_positions_);
  cuda::EdgeFinderOperands o;
  o.pair_ptr = pair_ptr_.const_data_ptr<int32_t>();
  o.neighbours = pairs_.const_data_ptr<int32_t>();
  o.shifts = capacity_.shifts ? o.neighbours + capacity_.pairs : nullptr;
  o.owners = owners_.const_data_ptr<int32_t>();
  o.types = graph.types().const_data_ptr<int32_t>();
  o.cell = positions_.const_data_ptr<double>();
  o.positions = o.cell + 9 * capacity_.systems;
  o.systems = system_of_.defined() ? system_of_.const_data_ptr<int32_t>() : nullptr;
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
