// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/graph_kokkos.h"

#include <algorithm>
#include <cmath>

#include "kokkos/edge_order.h"
#include "kokkos/make_room.h"

namespace clebsch_lammps {
template <class DeviceType>
void GraphKokkos<DeviceType>::set_types(const std::vector<int>& model_type, const std::vector<double>& pair_cutoffs,
                                        int types, int layers) {
  stride_ = static_cast<int>(model_type.size());
  layers_ = std::max(layers, 1);
  has_null_ = std::any_of(model_type.begin() + 1, model_type.end(), [](int type) { return type < 0; });
  model_type_ = Ints("clebsch:model_type", stride_);
  cutoff_squared_ = Kokkos::View<double*, DeviceType>("clebsch:cutoff_squared", stride_ * stride_);
  const auto host_type = Kokkos::create_mirror_view(model_type_);
  const auto host_cutoff = Kokkos::create_mirror_view(cutoff_squared_);
  for (int a = 0; a < stride_; ++a) {
    host_type(a) = a == 0 ? -1 : model_type[a];
    for (int b = 0; b < stride_; ++b) {
      const bool both = a > 0 && b > 0 && model_type[a] >= 0 && model_type[b] >= 0;
      const double cutoff = both ? pair_cutoffs[static_cast<std::size_t>(model_type[a]) * types + model_type[b]] : 0.0;
      host_cutoff(a * stride_ + b) = cutoff * cutoff;
    }
  }
  Kokkos::deep_copy(model_type_, host_type);
  Kokkos::deep_copy(cutoff_squared_, host_cutoff);
  faults_ = Faults("clebsch:faults", 2);
  totals_ = HostTotals("clebsch:totals", 2);
  counts_ = {};
}

template <class DeviceType>
void GraphKokkos<DeviceType>::start(LAMMPS_NS::NeighListKokkos<DeviceType>* list, const Step& step) {
  step_ = step;
  neighbors_ = list->d_neighbors;
  neighbor_count_ = list->d_numneigh;
  list_atoms_ = list->d_ilist;
  list_size_ = list->inum;
  make_room(atoms_, step.all, "clebsch:atoms");
  make_room(offset_, step.all, "clebsch:offset");
  if (static_cast<int>(node_of_.extent(0)) < step.all) {
    make_room(node_of_, step.all, "clebsch:node_of");
    make_room(sent_, step.all, "clebsch:sent");
    step_.new_list = true;
  }
  if (step_.new_list) {
    find_owned_nodes();
  } else if (step_.mode == GhostMode::expand) {
    const Ints node_of = node_of_;
    const int owned = counts_.owned;
    Kokkos::parallel_for(
        "clebsch:forget_ghosts", Kokkos::RangePolicy<Execution>(0, step.all), KOKKOS_LAMBDA(const int j) {
          if (node_of(j) >= owned) node_of(j) = -1;
        });
  }
  if (has_null_) check_owned_nodes();
}

template <class DeviceType>
void GraphKokkos<DeviceType>::count() {
  if (step_.mode == GhostMode::halo) step_.owner = node_atom_;
  int begin = 0, end = counts_.owned;
  for (int hop = 0; hop < layers_; ++hop) {
    layer_rows_[layers_ - 1 - hop] = end;
    if (end > begin) {
      count_rows(begin, end);
      begin = end;
      if (step_.mode == GhostMode::expand) end = number_marked(end);
    }
  }
  counts_.rows = begin;
  counts_.nodes = step_.mode == GhostMode::halo ? end + remote_ : end;
}

template <class DeviceType>
void GraphKokkos<DeviceType>::find_owned_nodes() {
  const Ints node_of = node_of_, atoms = atoms_, model_type = model_type_;
  const auto type = step_.type;
  const auto list_atoms = list_atoms_;
  Kokkos::deep_copy(Execution(), node_of, -1);
  // With the same list this need not be repeated: whoever writes an edge takes it off, so every count is zero again
  // after a step.
  Kokkos::deep_copy(Execution(), sent_, 0);
  int owned = 0;
  Kokkos::parallel_scan(
      "clebsch:owned_nodes", Kokkos::RangePolicy<Execution>(0, list_size_),
      KOKKOS_LAMBDA(const int k, int& node, const bool final) {
        const int i = list_atoms(k);
        if (model_type(type(i)) < 0) return;
        if (final) {
          atoms(node) = i;
          node_of(i) = node;
        }
        ++node;
      },
      owned);
  counts_.owned = owned;
  ++numbering_;
}

template <class DeviceType>
void GraphKokkos<DeviceType>::check_owned_nodes() {
  const int *const type = step_.type.data(), *const model_type = model_type_.data(), *const node_of = node_of_.data();
  std::int64_t* const faults = faults_.data();
  const int owned = counts_.owned;
  Kokkos::parallel_for(
      "clebsch:check_owned_nodes", Kokkos::RangePolicy<Execution>(0, step_.local), KOKKOS_LAMBDA(const int i) {
        const bool is_node = node_of[i] >= 0 && node_of[i] < owned;
        if (is_node != (model_type[type[i]] >= 0)) Kokkos::atomic_or(&faults[0], std::int64_t{kOtherNodes});
      });
}

template <class DeviceType>
void GraphKokkos<DeviceType>::count_rows(int begin, int end) {
  const auto x = step_.x;
  const auto neighbors = neighbors_;
  const int *const type = step_.type.data(), *const neighbor_count = neighbor_count_.data();
  const int *const atoms = atoms_.data(), *const owner = step_.owner.data();
  int *const node_of = node_of_.data(), *const offset = offset_.data(), *const sent = sent_.data();
  const double* const cutoff_squared = cutoff_squared_.data();
  std::int64_t* const faults = faults_.data();
  const int stride = stride_;
  const bool fold = step_.mode != GhostMode::expand;
  Kokkos::parallel_for(
      "clebsch:count_rows", Rows::policy(end - begin), KOKKOS_LAMBDA(const typename Rows::Policy::member_type& team) {
        const int node = begin + team.league_rank() * team.team_size() + team.team_rank();
        if (node >= end) return;
        const int i = atoms[node];
        const int row = type[i] * stride;
        const double xi = x(i, 0), yi = x(i, 1), zi = x(i, 2);
        int count = 0;
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, neighbor_count[i]),
            [&](const int k, int& sum) {
              const int j = neighbors(i, k) & NEIGHMASK;
              const double dx = x(j, 0) - xi, dy = x(j, 1) - yi, dz = x(j, 2) - zi;
              const int sender = fold ? owner[j] : j;
              const int typed = sender >= 0 ? sender : j;  // atoms that are no nodes have a cutoff of 0
              if (!(dx * dx + dy * dy + dz * dz < cutoff_squared[row + type[typed]])) return;
              if (fold && (sender < 0 || node_of[sender] < 0)) {
                Kokkos::atomic_or(&faults[0], std::int64_t{kNoOwner});
                return;
              }
              ++sum;
              Kokkos::atomic_add(&sent[sender], 1);
              if (!fold && node_of[j] == -1) Kokkos::atomic_store(&node_of[j], -2);
            },
            count);
        Kokkos::single(Kokkos::PerThread(team), [&]() {
          offset[node] = count;
          // A position that is not a number compares as beyond every cutoff: without this check the atom would quietly
          // count as isolated.
          const double sum = xi + yi + zi;
          if (!(sum - sum == 0.0)) Kokkos::atomic_or(&faults[0], std::int64_t{kBadPosition});
        });
      });
}

template <class DeviceType>
int GraphKokkos<DeviceType>::number_marked(int end) {
  const Ints node_of = node_of_, atoms = atoms_;
  int found = 0;
  Kokkos::parallel_scan(
      "clebsch:number_ghosts", Kokkos::RangePolicy<Execution>(0, step_.all),
      KOKKOS_LAMBDA(const int j, int& count, const bool final) {
        if (node_of(j) != -2) return;
        if (final) {
          atoms(end + count) = j;
          node_of(j) = end + count;
        }
        ++count;
      },
      found);
  return end + found;
}

template <class DeviceType>
std::int64_t GraphKokkos<DeviceType>::count_edges() {
  const Ints offset = offset_;
  counts_.edges = 0;
  if (counts_.rows > 0)
    Kokkos::parallel_reduce(
        "clebsch:count_edges", Kokkos::RangePolicy<Execution>(0, counts_.rows),
        KOKKOS_LAMBDA(const int row, std::int64_t& sum) { sum += offset(row); }, counts_.edges);
  return counts_.edges;
}

template <class DeviceType>
void GraphKokkos<DeviceType>::fill(const clebsch::DeviceGraph& graph) {
  graph_ = graph;
  if (!Rows::kOnHost) make_room(places_, graph.edges, "clebsch:places");
  fill_nodes(graph);
  fill_edges(graph);
  order_edges<DeviceType>(graph, places_.data(), faults_.data() + 1);
  Kokkos::deep_copy(Execution(), totals_, faults_);
  filled_.record(Execution());
}

// One sum for the first edge of every receiver (upper half of the number) and of every sender (lower half).
template <class DeviceType>
void GraphKokkos<DeviceType>::fill_nodes(const clebsch::DeviceGraph& graph) {
  const int *const type = step_.type.data(), *const atoms = atoms_.data(), *const offset = offset_.data();
  const int *const model_type = model_type_.data(), *const sent = sent_.data();
  std::int64_t* const faults = faults_.data();
  const auto layer_rows = layer_rows_;
  const int owned = counts_.owned, rows = counts_.rows, nodes = counts_.nodes;
  const clebsch::DeviceGraph g = graph;
  Kokkos::parallel_scan(
      "clebsch:nodes", Kokkos::RangePolicy<Execution>(0, std::max({g.nodes, g.rows, g.layers}) + 1),
      KOKKOS_LAMBDA(const int node, std::uint64_t& sum, const bool final) {
        if (final) {
          if (node < g.nodes) {
            const int node_type = node < nodes ? model_type[type[atoms[node]]] : -1;
            g.types[node] = node_type < 0 ? g.padding_type : node_type;
          }
          if (node <= g.rows) g.row_ptr[node] = static_cast<int>(sum >> 32);
          if (node <= g.nodes) g.col_ptr[node] = static_cast<int>(sum & 0xffffffffu);
          if (node < g.rows) g.weight[node] = node < owned ? 1.0 : 0.0;
          if (node < g.layers) g.layer_rows[node] = layer_rows[node];
          if (node == 0) *g.n_local = owned;
          if (node == g.nodes) faults[1] = static_cast<std::int64_t>(sum >> 32);
        }
        if (node < rows) sum += static_cast<std::uint64_t>(offset[node]) << 32;
        if (node < nodes) sum += static_cast<std::uint64_t>(sent[atoms[node]]);
      });
}

template <class DeviceType>
void GraphKokkos<DeviceType>::fill_edges(const clebsch::DeviceGraph& graph) {
  const int rows = counts_.rows;
  if (rows == 0) return;
  const auto x = step_.x;
  const auto neighbors = neighbors_;
  const int *const type = step_.type.data(), *const neighbor_count = neighbor_count_.data();
  const int *const atoms = atoms_.data(), *const node_of = node_of_.data(), *const owner = step_.owner.data();
  int* const sent = sent_.data();
  const double* const cutoff_squared = cutoff_squared_.data();
  const std::int64_t* const faults = faults_.data();
  const int stride = stride_;
  const bool fold = step_.mode != GhostMode::expand;
  // The kernel takes these pointers and not the whole of `graph`: with more than 512 bytes of operands Kokkos would
  // send them through its one constant buffer, for which the host waits.
  int *const senders = graph.senders, *const receivers = graph.receivers;
  int* const unordered = Rows::kOnHost ? graph.col_edge : places_.data();
  const int *const row_ptr = graph.row_ptr, *const col_ptr = graph.col_ptr;
  double* const edge_vec = graph.edge_vec;
  const std::int64_t room = graph.edges;
  Kokkos::parallel_for(
      "clebsch:edges", Rows::policy(rows), KOKKOS_LAMBDA(const typename Rows::Policy::member_type& team) {
        const int node = team.league_rank() * team.team_size() + team.team_rank();
        if (node >= rows || faults[1] > room) return;
        const int i = atoms[node];
        const int row = type[i] * stride, first = row_ptr[node];
        const double xi = x(i, 0), yi = x(i, 1), zi = x(i, 2);
        Kokkos::parallel_scan(
            Kokkos::ThreadVectorRange(team, neighbor_count[i]), [&](const int k, int& count, const bool final) {
              const int j = neighbors(i, k) & NEIGHMASK;
              const double dx = x(j, 0) - xi, dy = x(j, 1) - yi, dz = x(j, 2) - zi;
              const int from = fold ? owner[j] : j;
              const bool near = from >= 0 && dx * dx + dy * dy + dz * dz < cutoff_squared[row + type[from]];
              const int sender = near ? node_of[from] : -1;
              if (sender < 0) return;  // not counted either
              if (final) {
                const std::int64_t e = std::int64_t{first} + count;
                senders[e] = sender;
                receivers[e] = node;
                edge_vec[3 * e] = dx;
                edge_vec[3 * e + 1] = dy;
                edge_vec[3 * e + 2] = dz;
                const int left = Kokkos::atomic_fetch_sub(&sent[from], 1);
                unordered[col_ptr[sender + 1] - left] = static_cast<int>(e);
              }
              ++count;
            });
      });
}

template <class DeviceType>
typename GraphKokkos<DeviceType>::Counts GraphKokkos<DeviceType>::totals() {
  filled_.wait();
  counts_.faults = totals_(0);
  counts_.edges = totals_(1);
  return counts_;
}

template <class DeviceType>
std::int64_t GraphKokkos<DeviceType>::read_faults() {
  if (faults_.extent(0) == 0) return 0;
  Kokkos::deep_copy(Execution(), totals_, faults_);
  Execution().fence();
  return totals_(0);
}

template <class DeviceType>
void GraphKokkos<DeviceType>::forget_faults() {
  const Faults faults = faults_;
  const std::int64_t found_here = kBadPosition | kNoOwner | kOtherNodes;
  Kokkos::parallel_for(
      "clebsch:forget_faults", Kokkos::RangePolicy<Execution>(0, 1), KOKKOS_LAMBDA(int) { faults(0) &= ~found_here; });
}

template <class DeviceType>
ClosestPair GraphKokkos<DeviceType>::closest_pair() const {
  using Reducer = Kokkos::MinLoc<double, int>;
  const clebsch::DeviceGraph g = graph_;
  const int edges = static_cast<int>(counts_.edges);
  ClosestPair result;
  if (edges == 0 || g.edge_vec == nullptr) return result;
  typename Reducer::value_type best;
  Kokkos::parallel_reduce(
      "clebsch:closest_pair", Kokkos::RangePolicy<Execution>(0, edges),
      KOKKOS_LAMBDA(const int e, typename Reducer::value_type& least) {
        const double* v = g.edge_vec + 3 * static_cast<std::int64_t>(e);
        const double squared = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
        if (squared < least.val) {
          least.val = squared;
          least.loc = e;
        }
      },
      Reducer(best));
  const auto entry = [](const auto& view, int at) {
    int value = 0;
    Kokkos::deep_copy(value, Kokkos::subview(view, at));
    return value;
  };
  using Unmanaged = Kokkos::View<const int*, DeviceType, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  result.first = entry(atoms_, entry(Unmanaged(g.receivers, edges), best.loc));
  result.second = entry(atoms_, entry(Unmanaged(g.senders, edges), best.loc));
  result.distance = std::sqrt(best.val);
  return result;
}

template <class DeviceType>
double GraphKokkos<DeviceType>::memory_usage() const {
  const std::size_t ints = atoms_.extent(0) + node_of_.extent(0) + offset_.extent(0) + sent_.extent(0) +
                           places_.extent(0) + node_atom_.extent(0) + needed_.extent(0);
  return static_cast<double>(ints * sizeof(int));
}

template class GraphKokkos<LMPDeviceType>;
#ifdef LMP_KOKKOS_GPU
template class GraphKokkos<LMPHostType>;
#endif

}  // namespace clebsch_lammps
