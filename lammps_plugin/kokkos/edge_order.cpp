// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/edge_order.h"

#include "kokkos/row_policy.h"

namespace clebsch_lammps {

template <class DeviceType>
void order_edges(const clebsch::DeviceGraph& graph, const int* unordered, const std::int64_t* edges) {
  using Rows = RowPolicy<DeviceType>;
  using Execution = typename DeviceType::execution_space;
  const clebsch::DeviceGraph g = graph;
  if constexpr (Rows::kOnHost) {
    // Nearly in order already: an insertion sort is one pass.
    Execution().fence();
    const bool fits = *edges <= g.edges;
    Kokkos::parallel_for(
        "clebsch:order_edges", Kokkos::RangePolicy<Execution>(0, g.nodes + 1), KOKKOS_LAMBDA(const int node) {
          if (!fits) {
            g.col_ptr[node] = 0;
            if (node <= g.rows) g.row_ptr[node] = 0;
            return;
          }
          if (node == g.nodes) return;
          for (int k = g.col_ptr[node] + 1; k < g.col_ptr[node + 1]; ++k) {
            const int edge = g.col_edge[k];
            int to = k;
            for (; to > g.col_ptr[node] && g.col_edge[to - 1] > edge; --to) g.col_edge[to] = g.col_edge[to - 1];
            g.col_edge[to] = edge;
          }
        });
  } else {
    // An edge's rank is the number of smaller edges of its sender. A lane ranks several at a time: each edge that it
    // reads is compared with all of them.
    constexpr int kSeveral = 4;
    Kokkos::parallel_for(
        "clebsch:order_edges", Rows::policy(g.nodes + 1),
        KOKKOS_LAMBDA(const typename Rows::Policy::member_type& team) {
          const int node = team.league_rank() * team.team_size() + team.team_rank();
          if (node > g.nodes) return;
          if (*edges > g.edges) {
            g.col_ptr[node] = 0;
            if (node <= g.rows) g.row_ptr[node] = 0;
            return;
          }
          if (node == g.nodes) return;
          const int begin = g.col_ptr[node], end = g.col_ptr[node + 1];
          const int lanes = Rows::kLanes;
          for (int from = begin; from < end; from += kSeveral * lanes) {
            Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](const int lane) {
              int edge[kSeveral], rank[kSeveral];
              for (int m = 0; m < kSeveral; ++m) {
                const int k = from + m * lanes + lane;
                edge[m] = k < end ? unordered[k] : -1;
                rank[m] = 0;
              }
              for (int k = begin; k < end; ++k) {
                const int other = unordered[k];
                for (int m = 0; m < kSeveral; ++m) rank[m] += other < edge[m] ? 1 : 0;
              }
              for (int m = 0; m < kSeveral; ++m)
                if (edge[m] >= 0) g.col_edge[begin + rank[m]] = edge[m];
            });
          }
        });
  }
}

template void order_edges<LMPDeviceType>(const clebsch::DeviceGraph&, const int*, const std::int64_t*);
#ifdef LMP_KOKKOS_GPU
template void order_edges<LMPHostType>(const clebsch::DeviceGraph&, const int*, const std::int64_t*);
#endif

}  // namespace clebsch_lammps
