// SPDX-License-Identifier: GPL-2.0-only
#include "graph_kokkos.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace clebsch_lammps {
namespace {

/// Room for `size` entries, which are not kept: views grow by 1.3, so that a steady step allocates nothing.
template <class View>
void make_room(View& view, std::int64_t size, const char* name) {
  if (static_cast<std::int64_t>(view.extent(0)) >= size) return;
  const std::int64_t room = static_cast<std::int64_t>(1.3 * static_cast<double>(size)) + 16;
  view = View();
  view = View(Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string(name)), room);
}

}  // namespace

template <class DeviceType>
void GraphKokkos<DeviceType>::set_types(const std::vector<int>& model_type, const std::vector<double>& pair_cutoffs,
                                        int types, int layers) {
  stride_ = static_cast<int>(model_type.size());
  layers_ = std::max(layers, 1);
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
  host_faults_ = Kokkos::create_mirror_view(faults_);
  counts_ = {};
}

template <class DeviceType>
typename GraphKokkos<DeviceType>::Counts GraphKokkos<DeviceType>::count(LAMMPS_NS::NeighListKokkos<DeviceType>* list,
                                                                        const Step& step) {
  step_ = step;
  neighbors_ = list->d_neighbors;
  neighbor_count_ = list->d_numneigh;
  list_atoms_ = list->d_ilist;
  list_size_ = list->inum;
  make_room(atoms_, step.all, "clebsch:atoms");
  make_room(offset_, step.all, "clebsch:offset");
  if (static_cast<int>(node_of_.extent(0)) < step.all) {
    make_room(node_of_, step.all, "clebsch:node_of");
    step_.new_list = true;
  }
  if (step_.new_list) {
    find_owned_nodes();
  } else if (!step_.fold) {
    const Ints node_of = node_of_;
    const int owned = counts_.owned;
    Kokkos::parallel_for(
        "clebsch:forget_ghosts", Kokkos::RangePolicy<Execution>(0, step.all), KOKKOS_LAMBDA(const int j) {
          if (node_of(j) >= owned) node_of(j) = -1;
        });
  }

  int begin = 0, end = counts_.owned;
  for (int hop = 0; hop < layers_; ++hop) {
    layer_rows_[layers_ - 1 - hop] = end;
    if (end > begin) {
      count_rows(begin, end);
      begin = end;
      if (!step_.fold) end = number_marked(end);
    }
  }
  counts_.rows = begin;
  counts_.nodes = end;
  read_totals();
  return counts_;
}

template <class DeviceType>
void GraphKokkos<DeviceType>::find_owned_nodes() {
  const Ints node_of = node_of_, atoms = atoms_, model_type = model_type_;
  const auto type = step_.type;
  const auto list_atoms = list_atoms_;
  Kokkos::deep_copy(Execution(), node_of, -1);
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
}

template <class DeviceType>
void GraphKokkos<DeviceType>::count_rows(int begin, int end) {
  const auto x = step_.x;
  const auto type = step_.type;
  const auto neighbors = neighbors_;
  const auto neighbor_count = neighbor_count_;
  const Ints atoms = atoms_, node_of = node_of_, offset = offset_;
  const auto cutoff_squared = cutoff_squared_;
  const Faults faults = faults_;
  const int stride = stride_;
  const bool mark = !step_.fold;
  Kokkos::parallel_for(
      "clebsch:count_rows", row_policy(end - begin), KOKKOS_LAMBDA(const typename Policy::member_type& team) {
        const int node = begin + team.league_rank() * team.team_size() + team.team_rank();
        if (node >= end) return;
        const int i = atoms(node);
        const int row = type(i) * stride;
        const double xi = x(i, 0), yi = x(i, 1), zi = x(i, 2);
        int count = 0;
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, neighbor_count(i)),
            [&](const int k, int& sum) {
              const int j = neighbors(i, k) & NEIGHMASK;
              const double dx = x(j, 0) - xi, dy = x(j, 1) - yi, dz = x(j, 2) - zi;
              if (dx * dx + dy * dy + dz * dz >= cutoff_squared(row + type(j))) return;
              ++sum;
              if (mark && node_of(j) == -1) Kokkos::atomic_store(&node_of(j), -2);
            },
            count);
        Kokkos::single(Kokkos::PerThread(team), [&]() {
          offset(node) = count;
          // A position that is not a number compares as out of every cutoff: the atom would quietly count as isolated.
          const double sum = xi + yi + zi;
          if (!(sum - sum == 0.0)) Kokkos::atomic_or(&faults(0), std::int64_t{kBadPosition});
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
void GraphKokkos<DeviceType>::read_totals() {
  const Ints offset = offset_;
  const Faults faults = faults_;
  const int rows = counts_.rows;
  // The sum is not handed back by the scan, so that one transfer brings it and the faults.
  Kokkos::parallel_scan(
      "clebsch:row_offsets", Kokkos::RangePolicy<Execution>(0, std::max(rows, 1)),
      KOKKOS_LAMBDA(const int row, std::int64_t& sum, const bool final) {
        const int count = row < rows ? offset(row) : 0;
        if (final && row < rows) offset(row) = static_cast<int>(sum);
        sum += count;
        if (final && row + 1 >= rows) faults(1) = sum;
      });
  Kokkos::deep_copy(Execution(), host_faults_, faults);
  Execution().fence();
  counts_.faults = host_faults_(0);
  counts_.edges = host_faults_(1);
}

template <class DeviceType>
void GraphKokkos<DeviceType>::fill(const clebsch::DeviceGraph& graph) {
  graph_ = graph;
  filled_edges_ = static_cast<int>(counts_.edges);
  make_room(place_, graph.nodes, "clebsch:place");
  fill_nodes(graph);
  fill_edges(graph);
  transpose(graph);
}

template <class DeviceType>
void GraphKokkos<DeviceType>::fill_nodes(const clebsch::DeviceGraph& graph) {
  const auto type = step_.type;
  const Ints atoms = atoms_, offset = offset_, model_type = model_type_, place = place_;
  const auto layer_rows = layer_rows_;
  const int owned = counts_.owned, rows = counts_.rows, nodes = counts_.nodes;
  const int edges = static_cast<int>(counts_.edges);
  const clebsch::DeviceGraph g = graph;
  Kokkos::parallel_for(
      "clebsch:nodes", Kokkos::RangePolicy<Execution>(0, std::max({g.nodes, g.rows + 1, g.layers})),
      KOKKOS_LAMBDA(const int node) {
        if (node < g.nodes) {
          g.types[node] = node < nodes ? model_type(type(atoms(node))) : g.padding_type;
          place(node) = 0;
        }
        if (node <= g.rows) g.row_ptr[node] = node < rows ? offset(node) : edges;
        if (node < g.rows) g.weight[node] = node < owned ? 1.0 : 0.0;
        if (node < g.layers) g.layer_rows[node] = layer_rows[node];
        if (node == 0) *g.n_local = owned;
      });
}

template <class DeviceType>
void GraphKokkos<DeviceType>::fill_edges(const clebsch::DeviceGraph& graph) {
  const int rows = counts_.rows;
  if (rows == 0) return;
  const auto x = step_.x;
  const auto type = step_.type;
  const auto neighbors = neighbors_;
  const auto neighbor_count = neighbor_count_;
  const Ints atoms = atoms_, node_of = node_of_, offset = offset_, place = place_, owner = step_.owner;
  const auto cutoff_squared = cutoff_squared_;
  const Faults faults = faults_;
  const int stride = stride_;
  const bool fold = step_.fold;
  const clebsch::DeviceGraph g = graph;
  Kokkos::parallel_for(
      "clebsch:edges", row_policy(rows), KOKKOS_LAMBDA(const typename Policy::member_type& team) {
        const int node = team.league_rank() * team.team_size() + team.team_rank();
        if (node >= rows) return;
        const int i = atoms(node);
        const int row = type(i) * stride, first = offset(node);
        const double xi = x(i, 0), yi = x(i, 1), zi = x(i, 2);
        Kokkos::parallel_scan(Kokkos::ThreadVectorRange(team, neighbor_count(i)),
                              [&](const int k, int& count, const bool final) {
                                const int j = neighbors(i, k) & NEIGHMASK;
                                const double dx = x(j, 0) - xi, dy = x(j, 1) - yi, dz = x(j, 2) - zi;
                                if (dx * dx + dy * dy + dz * dz >= cutoff_squared(row + type(j))) return;
                                if (final) {
                                  int sender = node_of(fold ? owner(j) : j);
                                  if (sender < 0) {
                                    Kokkos::atomic_or(&faults(0), std::int64_t{kNoOwner});
                                    sender = 0;
                                  }
                                  const std::int64_t e = std::int64_t{first} + count;
                                  g.senders[e] = sender;
                                  g.receivers[e] = node;
                                  g.edge_vec[3 * e] = dx;
                                  g.edge_vec[3 * e + 1] = dy;
                                  g.edge_vec[3 * e + 2] = dz;
                                  Kokkos::atomic_add(&place(sender), 1);
                                }
                                ++count;
                              });
      });
}

// A counting sort by sender. Places within a sender are handed out by atomics, in any order, and then put in order.
template <class DeviceType>
void GraphKokkos<DeviceType>::transpose(const clebsch::DeviceGraph& graph) {
  const Ints place = place_;
  const int nodes = counts_.nodes, edges = static_cast<int>(counts_.edges);
  const clebsch::DeviceGraph g = graph;
  Kokkos::parallel_scan(
      "clebsch:sender_offsets", Kokkos::RangePolicy<Execution>(0, g.nodes + 1),
      KOKKOS_LAMBDA(const int node, int& sum, const bool final) {
        const int count = node < nodes ? place(node) : 0;
        if (final) {
          g.col_ptr[node] = sum;
          if (node < nodes) place(node) = sum;
        }
        sum += count;
      });
  if (!kOnHost) make_room(places_, g.edges, "clebsch:places");
  int* const unordered = kOnHost ? g.col_edge : places_.data();
  Kokkos::parallel_for(
      "clebsch:place_edges", Kokkos::RangePolicy<Execution>(0, edges),
      KOKKOS_LAMBDA(const int e) { unordered[Kokkos::atomic_fetch_add(&place(g.senders[e]), 1)] = e; });
  if constexpr (kOnHost) {
    // Nearly in order already: an insertion sort is one pass.
    Kokkos::parallel_for(
        "clebsch:order_edges", Kokkos::RangePolicy<Execution>(0, nodes), KOKKOS_LAMBDA(const int node) {
          for (int k = g.col_ptr[node] + 1; k < g.col_ptr[node + 1]; ++k) {
            const int edge = g.col_edge[k];
            int to = k;
            for (; to > g.col_ptr[node] && g.col_edge[to - 1] > edge; --to) g.col_edge[to] = g.col_edge[to - 1];
            g.col_edge[to] = edge;
          }
        });
  } else {
    // An edge's rank is the number of smaller edges of its sender.
    Kokkos::parallel_for(
        "clebsch:order_edges", row_policy(nodes), KOKKOS_LAMBDA(const typename Policy::member_type& team) {
          const int node = team.league_rank() * team.team_size() + team.team_rank();
          if (node >= nodes) return;
          const int begin = g.col_ptr[node], end = g.col_ptr[node + 1];
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, end - begin), [&](const int k) {
            const int edge = unordered[begin + k];
            int rank = 0;
            for (int other = begin; other < end; ++other) rank += unordered[other] < edge ? 1 : 0;
            g.col_edge[begin + rank] = edge;
          });
        });
  }
}

template <class DeviceType>
std::int64_t GraphKokkos<DeviceType>::read_faults() {
  if (faults_.extent(0) == 0) return 0;
  Kokkos::deep_copy(Execution(), host_faults_, faults_);
  Execution().fence();
  return host_faults_(0);
}

template <class DeviceType>
typename GraphKokkos<DeviceType>::Pair GraphKokkos<DeviceType>::closest_pair() const {
  using Reducer = Kokkos::MinLoc<double, int>;
  const clebsch::DeviceGraph g = graph_;
  const int edges = filled_edges_;
  Pair result;
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
  const std::size_t ints =
      atoms_.extent(0) + node_of_.extent(0) + offset_.extent(0) + place_.extent(0) + places_.extent(0);
  return static_cast<double>(ints * sizeof(int));
}

template class GraphKokkos<LMPDeviceType>;
#ifdef LMP_KOKKOS_GPU
template class GraphKokkos<LMPHostType>;
#endif

}  // namespace clebsch_lammps
